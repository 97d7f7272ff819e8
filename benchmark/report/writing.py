"""Atomic writing of pages."""

from __future__ import annotations

from pathlib import Path

from fedsub.benchmark.records.store import StoreError
from fedsub.datasets.files import explained, write_atomically


def write_page(path: Path, content: bytes) -> None:
    """Write a page so that a reader sees the old or the new one, never a part.

    Raises StoreError if it cannot be written.
    """
    with explained("write", path, "free space there or choose another folder with --results", StoreError):
        write_atomically(path, content)
