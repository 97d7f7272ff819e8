"""Formatting of figures, lists and partition names as text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedsub.datasets.options import Spec

PUBLISHED = "partitions"
"""The folder of clients that came with a paper, each file named by its method."""


def milliseconds(seconds: float) -> str:
    """Three significant figures, at least."""
    value = 1000 * seconds
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def sentence_list(items: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, [", ".join(items[:-1]), *items[-1:]]))


def partition_title(scheme: str) -> str:
    """A scheme for a reader: clients read from a file are called by the file, not by its path.

    `file[path=partitions/fedspray.npz,key=PubMed]` is "fedspray's clients (PubMed)".
    """
    spec = Spec(scheme)
    if spec.name != "file" or "path" not in spec.written:
        return scheme
    path = Path(spec.written["path"])
    title = f"{path.stem}'s clients" if path.parent.name == PUBLISHED else path.name
    return f"{title} ({spec.written['key']})" if "key" in spec.written else title
