"""FedSpray's public code: `python -m benchmark.studies.authors.fedspray_worker FD`.

Its `main.run` is called as it stands, with the cell's settings; its graph and client files give way to ours.
The code keeps features dense. Where nearly all of them are zero, they are handed over as sparse matrices, and
what a first layer propagates of them is kept, for it never changes: the same arithmetic without the zeros.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import torch

from fedsub.benchmark.studies.authors.handover import Timer, run
from fedsub.benchmark.studies.peers.clients import WrittenClients

NETWORKS = {"gcn": "GCN", "sgc": "SGC", "graphsage": "SAGE"}
"""Our backbone → the code's class."""

SPARSE = 0.05
"""Features of which a smaller share is not zero go as sparse matrices."""


def train(clients: WrittenClients, task: dict[str, Any], timer: Timer) -> dict[str, float]:
    """Accuracy over all test nodes and over the minority ones at the round of the lowest validation loss."""
    cell = task["cell"]
    main: Any = import_module("main")
    client: Any = import_module("client")
    features = clients.features
    sparse = int(torch.count_nonzero(features)) < SPARSE * features.numel()
    # The code always builds its GraphSAGE; the other networks stand beside it, unused.
    network = getattr(import_module("model"), NETWORKS[cell["backbone"]])
    client.SAGE = _keeping(network, cell["backbone"]) if sparse else network
    main.load_data = lambda *_: _handed_over(clients, SparseRows(features) if sparse else features)
    # It lists its client files before it loads them.
    os.mkdir("partition")
    scores: list[float] = []

    class Watched(main.Server):
        """Trains for the cell's rounds, and keeps what it returns, which the code only prints."""

        def train(self, rounds: int) -> Any:
            timer.start()
            scores[:] = found = super().train(cell["rounds"])
            timer.stop()
            return found

    main.Server = Watched
    options = cell["options"]
    main.run(
        cell["dataset"],
        epochs=cell["local_epochs"],
        hidden=cell["hidden"][0],
        lr=cell["learning_rate"],
        # Without soft targets each client trains its own network on its own labels.
        lambda_1=0.0 if cell["method"] == "local" else options["lambda1"],
        proxy_dim=options.get("width", 64),
        seed=cell["seed"],
    )
    return {"accuracy": 100 * float(scores[0]), "minority_accuracy": 100 * float(scores[1])}


class SparseRows:
    """Features whose rows, when a client takes its own, are a sparse matrix."""

    def __init__(self, features: torch.Tensor) -> None:
        self._features, self.shape = features, features.shape

    def __getitem__(self, rows: list[int]) -> torch.Tensor:
        return self._features[rows].to_sparse_csr()


def _keeping(network: Any, backbone: str) -> Callable[..., Any]:
    """Builds the code's network, whose first layer takes sparse features and propagates them once.

    A graph convolution propagates what its weights made of them, so that nothing is to be kept.
    """

    def build(**sizes: int) -> Any:
        built = network(**sizes)
        layer, propagate = built.l1, built.l1.propagate
        kept: list[torch.Tensor] = []

        def dense(edges: torch.Tensor, x: torch.Tensor, **rest: Any) -> Any:
            return propagate(edges, x=x.to_dense(), **rest)

        def once(edges: torch.Tensor, x: tuple[torch.Tensor, torch.Tensor], **rest: Any) -> torch.Tensor:
            if not kept:
                sent, own = (features.to_dense() for features in x)
                kept.append(propagate(edges, x=(sent, own), **rest).to_sparse_csr())
            return kept[0]

        if backbone == "sgc":
            # torch_geometric's own option: what all propagations gave is kept.
            layer.cached, layer.propagate = True, dense
        elif backbone == "graphsage":
            layer.propagate = once
        return built

    return build


def _handed_over(
    clients: WrittenClients,
    features: torch.Tensor | SparseRows,
) -> tuple[Any, int, list[list[int]], list[list[int]], list[list[int]]]:
    """What the code's `load_data` returns: the graph, how many clients, and each one's nodes by role."""
    graph = SimpleNamespace(
        x=features,
        y=clients.labels,
        edge_index=torch.from_numpy(clients.edges),
        num_nodes=len(clients.labels),
    )

    class Dataset:
        num_classes = clients.classes
        num_node_features = features.shape[1]

        def __getitem__(self, number: int) -> Any:
            return graph

    roles = [
        [(clients.mask(role, rows).nonzero().flatten() + rows.start).tolist() for rows in clients.rows]
        for role in ("train", "validation", "test")
    ]
    return Dataset(), len(clients.rows), roles[0], roles[1], roles[2]


if __name__ == "__main__":
    run(train)
