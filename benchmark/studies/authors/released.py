"""Convert the clients of Cora in FedTAD's public code into a graph and a partition that a run can name.

The code (github.com/xkLi-Allen/FedTAD, commit 07a1617) has one partition into ten clients, with its split,
in dataset/Cora/Client10/Louvain. Edges between clients are missing.

    python -m fedsub.benchmark.studies.authors.released CLONE FOLDER
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

CLIENTS = 10
PLACE = Path("dataset", "Cora", "Client10", "Louvain")
ROLES = {"split_train": "train_idx", "split_validation": "val_idx", "split_test": "test_idx"}
"""Name in our archives → name in a PyG `Data` of the code."""


class _Read:
    """Replacement of PyG's classes, so that PyG need not be installed."""

    _store: "_Read"
    _mapping: dict[str, torch.Tensor]


_CLASSES = ("data.Data", "data.DataEdgeAttr", "data.DataTensorAttr", "storage.GlobalStorage")


def read(path: Path) -> dict[str, Any]:
    """Return the arrays of one client; nothing in the file is executed."""
    stand_ins: list[Any] = [(_Read, f"torch_geometric.data.{name}") for name in _CLASSES]
    with torch.serialization.safe_globals(stand_ins):
        found = torch.load(path, weights_only=True)
    return {name: value.numpy() for name, value in found._store._mapping.items()}


def write(clone: Path, folder: Path) -> tuple[Path, Path]:
    """Write `fedtad-cora.npz` (graph) and `fedtad-cora.npy` (client of each node); returns their paths."""
    parts = [read(clone / PLACE / f"data{client}.pt") for client in range(CLIENTS)]
    sizes = [len(part["y"]) for part in parts]
    starts = np.cumsum([0, *sizes[:-1]])
    ends = np.concatenate([part["edge_index"] + start for part, start in zip(parts, starts, strict=True)], 1)
    names = {"feat": "x", "label": "y", **ROLES}
    arrays: dict[str, Any] = {
        ours: np.concatenate([part[theirs] for part in parts]) for ours, theirs in names.items()
    }
    graph, owner = folder / "fedtad-cora.npz", folder / "fedtad-cora.npy"
    np.savez_compressed(graph, edge_src=ends[0], edge_dst=ends[1], **arrays)
    np.save(owner, np.repeat(np.arange(CLIENTS), sizes))
    return graph, owner


if __name__ == "__main__":
    print(*write(*map(Path, sys.argv[1:])))
