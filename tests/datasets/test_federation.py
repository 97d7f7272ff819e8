"""Federations: which edges clients hold, and which no client holds."""

from pathlib import Path

import numpy as np

from fedsub.datasets.federation import federate
from fedsub.datasets.graph import build_dataset
from fedsub.datasets.partition import partition
from fedsub.datasets.splits import make_split


def test_overlapping_clients_without_an_edge_between_them(tmp_path: Path) -> None:
    """Two edges, 0-1 and 3-4, one at each of two clients that share node 2."""
    labels = np.array([0, 1, 0, 1, 0])
    graph = build_dataset("two edges", np.array([0, 3]), np.array([1, 4]), np.eye(5), labels)
    np.savez(tmp_path / "clients.npz", own_nodes=np.array([0, 1, 2, 2, 3, 4]), own_sizes=np.array([3, 3]))
    clients = partition(graph, f"file[path={tmp_path / 'clients.npz'},key=own]", 2, 0)
    split = make_split(labels, clients, "ratio[train=0.4,validation=0.2,test=0.4]", 0, 2)
    federation = federate(graph, clients, split)
    assert federation.graph.num_edges() == 4
    assert federation.missing_edges().tolist() == [[0, 0], [0, 0]]
