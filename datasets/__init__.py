"""Graphs, partition schemes, splits, and the federation of clients made from them."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedsub.datasets.errors import UserError
    from fedsub.datasets.federation import Federation, federate
    from fedsub.datasets.graph import Dataset
    from fedsub.datasets.own import from_dgl, from_networkx, from_pyg
    from fedsub.datasets.partition import Partition
    from fedsub.datasets.registry import load
    from fedsub.datasets.splits import Split, make_split

__all__ = [
    "Dataset",
    "Federation",
    "Partition",
    "Split",
    "UserError",
    "federate",
    "from_dgl",
    "from_networkx",
    "from_pyg",
    "load",
    "make_split",
]

_HOMES = {
    "Dataset": "graph",
    "Federation": "federation",
    "Partition": "partition",
    "Split": "splits",
    "UserError": "errors",
    "federate": "federation",
    "from_dgl": "own",
    "from_networkx": "own",
    "from_pyg": "own",
    "load": "registry",
    "make_split": "splits",
}
"""Name → module, imported at first use: code that needs only names or errors loads no torch and no DGL."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
