"""Graphs in, clients out: the registry of datasets, the partition schemes, the federation."""

from datasets.errors import UserError
from datasets.federation import Federation, federate
from datasets.graph import Dataset
from datasets.own import from_dgl, from_networkx, from_pyg
from datasets.partition import Partition, partition
from datasets.registry import load
from datasets.splits import Split, make_split

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
    "partition",
]
