"""FED-PUB's public code: `python -m fedsub.benchmark.studies.authors.fedpub_worker FD`.

Clients, server, models, training and evaluation are the checkout's own. The loop over rounds follows its
`ParentProcess.start`, which passes the clients to processes and sleeps a second between them. Here every
client has its own worker object, as in the code with as many workers as clients. A client's state stays in
its object; in the code it is written to a file and read back in every round.
"""

import os
import sys
from importlib import import_module
from typing import Any

import numpy as np
import torch

from fedsub.benchmark.studies.authors.training import Timer, run
from fedsub.benchmark.studies.clients import WrittenClients
from fedsub.benchmark.studies.handover import stand_in_for_missing_extensions

PACKAGE = {"local": "fedavg", "fedavg": "fedavg", "fedpub": "fedpub"}
"""Our method → the code's package with client and server."""


def train(clients: WrittenClients, task: dict[str, Any], timer: Timer) -> dict[str, float]:
    """Return the mean over clients of the test accuracy, in percent, at the round of the best mean validation
    accuracy, as the public code does (`evaluations/visualizer.py`).
    """
    for kind in (torch.Tensor, torch.nn.Module):
        # There may be no CUDA: nothing is moved to another device.
        kind.cuda = lambda self, *_, **__: self  # type: ignore[method-assign]
    stand_in_for_missing_extensions()
    cell = task["cell"]
    loader: Any = import_module("data.loader")
    loader.get_data = _load_clients(clients)
    args = _arguments(clients, cell)
    package = f"models.{PACKAGE[cell['method']]}"
    shared: dict[Any, Any] = {}
    workers = [
        import_module(f"{package}.client").Client(args, number, 0, shared) for number in range(args.n_clients)
    ]
    for worker in workers:
        # Load batches in this process.
        worker.loader.n_workers = 0
    server = import_module(f"{package}.server").Server(args, shared, 0)
    # The server writes its state in every round and never reads it.
    server.save_state = lambda: None
    os.makedirs(args.log_path)
    timer.start()
    for number in range(args.n_rnds):
        if cell["method"] == "local":
            _round_alone(number, server, workers, shared)
        else:
            _round(number, args, server, workers)
    timer.stop()
    logs = [worker.log for worker in workers]
    scores = ([log[f"rnd_local_{role}_acc"] for log in logs] for role in ("val", "test"))
    return {"accuracy": reported(*map(np.array, scores))}


def reported(validation: np.ndarray, test: np.ndarray) -> float:
    """Return the mean test accuracy that the code reports, in percent, from (K, rounds) accuracies.

    The code rounds means to a hundredth of a percent before it takes the best; the first of ties counts.
    """
    best = np.argmax(np.round(100 * validation.mean(axis=0), 2))
    return 100 * float(test.mean(axis=0)[best])


def _arguments(clients: WrittenClients, cell: dict[str, Any]) -> Any:
    """Return the code's parsed command line with the flags of its scripts and the cell's settings."""
    overlapping = cell["partition"].startswith("metis-overlapping")
    given = {
        "model": PACKAGE[cell["method"]],
        "dataset": "Cora",
        "mode": "overlapping" if overlapping else "disjoint",
        "base-path": ".",
        "n-workers": cell["clients"],
        "n-clients": cell["clients"],
        "n-rnds": cell["rounds"],
        "n-eps": cell["local_epochs"],
        "n-dims": cell["hidden"][0],
        "frac": 1.0,
        "lr": cell["learning_rate"],
        "seed": cell["seed"],
    }
    if cell["method"] == "fedpub":
        options = cell["options"]
        given |= {"norm-scale": options["tau"], "l1": options["lambda1"], "loc-l2": options["lambda2"]}
    pairs = [text for name, value in given.items() for text in (f"--{name}", str(value))]
    sys.argv = ["main.py", *pairs, "--clsf-mask-one", "--laye-mask-one"]
    args = import_module("main").set_config(import_module("parser").Parser().parse())
    # The code knows these numbers only for Cora.
    args.n_feat, args.n_clss = clients.features.shape[1], clients.classes
    args.base_lr, args.weight_decay = cell["learning_rate"], cell["weight_decay"]
    return args


def _load_clients(clients: WrittenClients) -> Any:
    kind = import_module("torch_geometric.data").Data
    partitions = [
        kind(
            x=clients.features[rows],
            y=clients.labels[rows],
            edge_index=torch.from_numpy(clients.edges_of(number).copy()),
            train_mask=clients.masks["train"][rows],
            val_mask=clients.masks["validation"][rows],
            test_mask=clients.masks["test"][rows],
        )
        for number, rows in enumerate(clients.rows)
    ]
    return lambda _, client_id: [partitions[client_id]]


def _train_client(worker: Any, client: int, number: int) -> None:
    """Handle one message as a worker process of the code does, without the client's state file."""
    if number == 0:
        worker.switch_state(client)
    worker.on_receive_message(number)
    worker.on_round_begin()


def _round(number: int, args: Any, server: Any, workers: list[Any]) -> None:
    np.random.seed(args.seed + number)  # noqa: NPY002
    selected = np.random.choice(args.n_clients, round(args.n_clients * args.frac), replace=False)  # noqa: NPY002
    server.on_round_begin(number)
    for client in selected.tolist():
        _train_client(workers[client], client, number)
    server.on_round_complete(set(selected.tolist()))


def _round_alone(number: int, server: Any, workers: list[Any], shared: dict[Any, Any]) -> None:
    """Run a round of Local, which the code lacks: its FedAvg, with each client receiving its own model."""
    if number == 0:
        server.on_round_begin(number)
        shared["received"] = [shared["global"]] * len(workers)
    for client, worker in enumerate(workers):
        shared["global"] = shared["received"][client]
        _train_client(worker, client, number)
        shared["received"][client] = {"model": shared.pop(client)["model"]}


if __name__ == "__main__":
    run(train)
