"""A peer's worker, run by its own interpreter: `python -m benchmark.studies.peers.openfgl_worker FD`.

openfgl-lib, or FedGB, which is of the same design, from the user's checkout.

Clients, server, messages, local training and evaluation are the library's own, in the order of its
`FGLTrainer.train`, whose loop is repeated here so that it can stop between rounds. The library takes its
clients from its data class, which is replaced by one that holds ours, and its split from files, which are
written beside the file of clients.
"""

from __future__ import annotations

import importlib.metadata
import pickle
import random
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedsub.benchmark.studies.peers.clients import WrittenClients
from fedsub.benchmark.studies.peers.extensions import stand_in_for_missing_extensions, stand_in_for_product
from fedsub.benchmark.studies.peers.pipe import Rounds, serve, timed


def prepare(task: dict[str, Any]) -> tuple[dict[str, Any], Rounds]:
    """Build the trainer on the clients that the file holds."""
    torch.set_num_threads(1)
    torch.manual_seed(task["seed"])
    np.random.seed(task["seed"])  # noqa: NPY002
    random.seed(task["seed"])
    stand_in_for_missing_extensions()
    if task["checkout"]:
        # The checkout is the user's: nothing is written into it.
        sys.dont_write_bytecode = True
        sys.path.insert(0, task["checkout"])
    exchange = Path(task["exchange"])
    clients = Clients(exchange, exchange.parent)
    loop = Loop(make_trainer(clients, task))
    versions = {name: importlib.metadata.version(name) for name in task["peer"]["packages"]}
    answer = {"counts": clients.counts, "versions": versions}

    def run(phase: str, rounds: int) -> dict[str, Any]:
        seconds, accuracy = timed(partial(loop.run, phase), rounds)
        return {"seconds": seconds, "accuracy": accuracy}

    return answer, run


ENDLESS = 10**9
"""Rounds of a phase that goes on until another is asked for."""


class Clients:
    """What the library's data class offers: `local_data`, `global_data`, `processed_dir`."""

    def __init__(self, exchange: Path, folder: Path) -> None:
        self.processed_dir = str(folder)
        self.written = WrittenClients.read(exchange)
        self.clients = len(self.written.rows)
        split = folder / "node_cls" / "default_split"
        split.mkdir(parents=True)
        self.local_data = [self._client(number, split) for number in range(self.clients)]
        self.global_data = self._data(slice(None), self.written.edges)
        self.counts = self.written.counts

    def _data(self, rows: slice, edges: np.ndarray) -> Any:
        # The library loads features dense.
        data = import_module("torch_geometric.data").Data(
            x=self.written.features[rows],
            edge_index=torch.from_numpy(edges.copy()),
            y=self.written.labels[rows],
        )
        data.num_global_classes = self.written.classes
        return data

    def _client(self, number: int, split: Path) -> Any:
        rows = self.written.rows[number]
        data = self._data(rows, self.written.edges_of(number))
        data.global_map = {local: rows.start + local for local in range(rows.stop - rows.start)}
        for role, name in (("train", "train"), ("validation", "val"), ("test", "test")):
            mask = self.written.mask(role, rows)
            torch.save(mask, split / f"{name}_{number}.pt")
            chosen = [rows.start + int(local) for local in mask.nonzero().flatten()]
            (split / f"glb_{name}_{number}.pkl").write_bytes(pickle.dumps(chosen))
        return data


def make_trainer(clients: Clients, task: dict[str, Any]) -> Any:
    """The library's trainer for the task's algorithm, with its own defaults but for what is set here."""
    library = import_module(task["peer"]["trainer"])
    args = import_module(task["peer"]["arguments"]).args
    schedule, architecture = task["schedule"], task["architecture"]
    settings = {
        "use_cuda": False,
        "root": clients.processed_dir,
        "scenario": "subgraph_fl",
        "simulation_mode": "subgraph_fl_metis",
        "dataset": ["Cora"],
        "task": "node_cls",
        "train_val_test": "default_split",
        "evaluation_mode": "local_model_on_local_data",
        "metrics": ["accuracy"],
        "fl_algorithm": task["algorithm"],
        "num_clients": clients.clients,
        "num_epochs": schedule["local_epochs"],
        "lr": schedule["learning_rate"],
        "weight_decay": schedule["weight_decay"],
        "model": [architecture["backbone"]],
        "num_layers": 2,
        "hid_dim": architecture["hidden"][0],
        "dropout": architecture["dropout"],
        "seed": task["seed"],
    }
    for name, value in settings.items():
        setattr(args, name, value)
    library.__dict__["FGLDataset"] = lambda _: clients
    trainer = library.FGLTrainer(args)
    # FedGB adds metrics of its own.
    args.metrics = ["accuracy"]
    if task["algorithm"] == "adafgl" and not task["checkout"]:
        stand_in_for_product(f"{_package(trainer)}.op")
    return trainer


def _package(trainer: Any) -> str:
    """Where the library keeps the algorithm."""
    return type(trainer.server).__module__.rpartition(".")[0]


class Loop:
    """The loop of `FGLTrainer.train`, a round at a time, counted on."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self.number = 0
        self.phase = ""
        trainer.logger.add_log = self._keep

    def _keep(self, evaluation: dict[str, Any]) -> None:
        self.accuracy = float(evaluation["current_test_accuracy"])

    def run(self, phase: str) -> float:
        """The test accuracy after one round of `phase`: FedSage+ trains generators until its first `round`,
        AdaFGL learns alone from its first `personal` on."""
        trainer, algorithm = self.trainer, self.trainer.args.fl_algorithm
        if phase != self.phase and algorithm in ("fedsage_plus", "adafgl"):
            config = import_module(f"{_package(trainer)}.{algorithm}_config").config
            config["num_rounds_vanilla"] = self.number if phase == "personal" else ENDLESS
            config["gen_rounds"] = ENDLESS if phase == "generator" else self.number
            if self.phase == "generator":
                # What its server does in the last round of generators: from now on it averages.
                trainer.server.phase = 1
        self.phase = phase
        everyone = list(range(trainer.args.num_clients))
        trainer.message_pool["round"] = self.number
        trainer.message_pool["sampled_clients"] = everyone
        trainer.server.send_message()
        for client in everyone:
            trainer.clients[client].execute()
            trainer.clients[client].send_message()
        trainer.server.execute()
        trainer.evaluate()
        self.number += 1
        return self.accuracy


if __name__ == "__main__":
    serve(prepare)
