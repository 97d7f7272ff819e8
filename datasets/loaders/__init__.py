"""Parsers of upstream formats. Every module's `parse(files)` turns downloaded files into a `RawGraph`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from fedsub.datasets.loaders import (
    acdne,
    am_gcn,
    facebook100,
    gnn_benchmark,
    graphsaint,
    heterophilous,
    musae,
    ogb,
    planetoid,
    wikics,
)
from fedsub.datasets.loaders.raw import MalformedFileError, RawGraph

__all__ = ["PARSERS", "MalformedFileError"]

_FORMATS = (
    acdne, am_gcn, facebook100, gnn_benchmark, graphsaint, heterophilous, musae, ogb, planetoid, wikics,
)  # fmt: skip

PARSERS: Mapping[str, Callable[[Mapping[str, Path]], RawGraph]] = {
    each.__name__.rpartition(".")[2]: each.parse for each in _FORMATS
}
"""Name in `DatasetInfo.loader` → parser."""
