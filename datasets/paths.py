"""Which names are paths; without torch, so that plans and lists start at once."""

from __future__ import annotations

from pathlib import Path

PLUGIN, ARCHIVE, TENSORS, GRAPHML, TABLE = ".py", ".npz", ".pt", ".graphml", ".csv"
"""Endings: code of one's own, the archive format, what torch saves, GraphML and tables."""


def is_path(name: str) -> bool:
    """Whether a graph's name, without options, is the path of a file or of a folder, written with a `/`."""
    return name.endswith((PLUGIN, ARCHIVE, TENSORS, GRAPHML, TABLE)) or ("/" in name and Path(name).is_dir())
