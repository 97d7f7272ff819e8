"""openfgl-lib's worker, run by an interpreter that has it: `python -m …peers.openfgl_worker FD`.

Clients, server, messages, local training and evaluation are the library's own. The loop of its
`FGLTrainer.train` is repeated here in the same order, so that it can stop between rounds. The library takes
its clients from its data class, which is replaced by one with our clients. It takes its split from files,
which are written beside the file of clients.
"""

import pickle
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedsub.benchmark.studies.clients import WrittenClients
from fedsub.benchmark.studies.handover import Run, serve, stand_in_for_missing_extensions, timed


def prepare(task: dict[str, Any]) -> tuple[dict[str, Any], Run]:
    """Build the trainer on the clients of the file."""
    stand_in_for_missing_extensions()
    clients = Clients(Path(task["exchange"]))
    one_round = partial(run_round, make_trainer(clients, task), count())
    return {"counts": clients.counts}, lambda command: {"seconds": timed(one_round, command["rounds"])}


class Clients:
    """Replacement of the library's data class: `local_data`, `global_data`, `processed_dir`."""

    def __init__(self, exchange: Path) -> None:
        self.processed_dir = str(exchange.parent)
        self.written = WrittenClients(exchange)
        self.clients = len(self.written.rows)
        split = exchange.parent / "node_cls" / "default_split"
        split.mkdir(parents=True)
        self.local_data = [self._client(number, split) for number in range(self.clients)]
        self.global_data = self._data(slice(None), self.written.edges)
        self.counts = self.written.counts

    def _data(self, rows: slice, edges: np.ndarray) -> Any:
        # Dense, as the library loads features.
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
            mask = self.written.masks[role][rows]
            torch.save(mask, split / f"{name}_{number}.pt")
            chosen = [rows.start + int(local) for local in mask.nonzero().flatten()]
            (split / f"glb_{name}_{number}.pkl").write_bytes(pickle.dumps(chosen))
        return data


def make_trainer(clients: Clients, task: dict[str, Any]) -> Any:
    """Make the library's trainer for the task's algorithm, with its own defaults except the settings here."""
    library = import_module("openfgl.flcore.trainer")
    args = import_module("openfgl.config").args
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
    trainer.logger.add_log = lambda evaluation: None
    return trainer


def run_round(trainer: Any, numbers: Iterator[int]) -> None:
    """Run one round of the loop of `FGLTrainer.train`, evaluation included; the next of `numbers` is its."""
    everyone = list(range(trainer.args.num_clients))
    trainer.message_pool["round"] = next(numbers)
    trainer.message_pool["sampled_clients"] = everyone
    trainer.server.send_message()
    for client in everyone:
        trainer.clients[client].execute()
        trainer.clients[client].send_message()
    trainer.server.execute()
    trainer.evaluate()


if __name__ == "__main__":
    serve(prepare)
