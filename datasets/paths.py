"""Which names are paths; without torch, so that plans and lists start at once."""

from __future__ import annotations

PLUGIN, ARCHIVE, TENSORS, GRAPHML, TABLE = ".py", ".npz", ".pt", ".graphml", ".csv"
"""Endings: code of one's own, the archive format, what torch saves, GraphML and tables."""


def is_path(name: str) -> bool:
    """Whether a graph's name, without options, is the path of a file, or of a folder, written with a `/`;
    of what is not there, too."""
    return name.endswith((PLUGIN, ARCHIVE, TENSORS, GRAPHML, TABLE)) or "/" in name
