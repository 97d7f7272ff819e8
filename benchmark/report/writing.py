"""Atomic writing of pages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedsub.benchmark.records.store import StoreError
from fedsub.datasets.files import explained, write_atomically


def write_page(path: Path, content: bytes) -> None:
    """Write a page so that a reader sees the old or the new one, never a part.

    Raises StoreError if it cannot be written.
    """
    with explained("write", path, "free space there or choose another folder with --results", StoreError):
        write_atomically(path, content)


def write_list(path: Path, items: Iterable[Mapping[str, Any]]) -> None:
    """Write a list as JSON, an item a line. Raises as `write_page`."""
    listed = ",\n".join(json.dumps(item, ensure_ascii=False, separators=(",", ":")) for item in items)
    write_page(path, f"[\n{listed}\n]\n".encode())
