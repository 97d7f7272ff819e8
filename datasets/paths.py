"""Recognising names that are paths, without importing torch."""

PLUGIN, ARCHIVE, TENSORS, GRAPHML, TABLE = ".py", ".npz", ".pt", ".graphml", ".csv"
"""File endings of user code, archives, torch tensors, GraphML and tables."""


def is_path(name: str) -> bool:
    """Whether a graph's name, without options, is the path of a file, or of a folder written with a `/`,
    existing or not."""
    return name.endswith((PLUGIN, ARCHIVE, TENSORS, GRAPHML, TABLE)) or "/" in name
