"""FedSpray's public code: `python -m fedsub.benchmark.studies.authors.fedspray_worker FD`.

Its `main.run` is called unchanged, with the cell's settings; our graph and clients replace its files.
"""

import os
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import torch

from fedsub.benchmark.studies.authors.training import Timer, run
from fedsub.benchmark.studies.clients import ROLES, WrittenClients

NETWORKS = {"gcn": "GCN", "sgc": "SGC", "graphsage": "SAGE"}
"""Our backbone → the code's class."""


def train(clients: WrittenClients, task: dict[str, Any], timer: Timer) -> dict[str, float]:
    """Return the accuracy (%) over all and over minority test nodes at the round of least validation loss."""
    cell = task["cell"]
    main: Any = import_module("main")
    client: Any = import_module("client")
    # The code always builds its GraphSAGE and never its other networks: the wanted one takes that name.
    client.SAGE = getattr(import_module("model"), NETWORKS[cell["backbone"]])
    main.load_data = lambda *_: _load_clients(clients)
    # The code lists the folder of its client files before it loads them.
    os.mkdir("partition")
    scores: list[float] = []

    class Watched(main.Server):
        """Trainer for the cell's rounds that keeps the results, which the code only prints."""

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


def _load_clients(clients: WrittenClients) -> tuple[Any, ...]:
    """Replace the code's `load_data`: return graph, number of clients, and each client's nodes by role."""
    graph = SimpleNamespace(
        x=clients.features,
        y=clients.labels,
        edge_index=torch.from_numpy(clients.edges),
        num_nodes=len(clients.labels),
    )

    class Dataset:
        num_classes = clients.classes
        num_node_features = clients.features.shape[1]

        def __getitem__(self, number: int) -> Any:
            return graph

    roles = [
        [(clients.masks[role][rows].nonzero().flatten() + rows.start).tolist() for rows in clients.rows]
        for role in ROLES
    ]
    return Dataset(), len(clients.rows), *roles


if __name__ == "__main__":
    run(train)
