"""openfgl-lib's worker, run by the peer's own interpreter: `python -m benchmark.peers.openfgl_worker FD`.

Clients, server, messages, local training and evaluation are the library's own, in the order of its
`FGLTrainer.train`, whose loop is repeated here so that it can stop between rounds. The library takes its
clients from its data class, which is replaced by one that holds ours, and its split from files, which are
written beside the file of clients.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import pickle
import random
import sys
import types
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix

from benchmark.peers.pipe import Rounds, serve, timed

PACKAGES = ("openfgl-lib", "torch", "torch-geometric", "numpy", "scipy")


def prepare(task: dict[str, Any]) -> tuple[dict[str, Any], Rounds]:
    """Build the trainer on the clients that the file holds."""
    torch.set_num_threads(1)
    torch.manual_seed(task["seed"])
    np.random.seed(task["seed"])  # noqa: NPY002
    random.seed(task["seed"])
    stand_in_for_missing_extensions()
    exchange = Path(task["exchange"])
    clients = Clients(exchange, exchange.parent)
    loop = Loop(make_trainer(clients, task))
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    answer = {"counts": clients.counts, "versions": versions}
    return answer, lambda phase, rounds: timed(partial(loop.run, phase), rounds)


def stand_in_for_missing_extensions() -> None:
    """Replace torch_scatter and torch_sparse where they are not installed.

    They have no wheels for this torch. FED-PUB's layer takes one function from the first, for the
    nodes' degrees, and from the second only a class that it never meets here.
    """
    nothing = dict.fromkeys(("fill_diag", "matmul", "mul", "sum"))
    contents: dict[str, dict[str, Any]] = {
        "torch_scatter": {"scatter_add": _scatter_add},
        "torch_sparse": {"SparseTensor": type("SparseTensor", (), {}), **nothing},
    }
    for name, content in contents.items():
        if importlib.util.find_spec(name) is None:
            sys.modules[name] = types.ModuleType(name)
            sys.modules[name].__dict__.update(content)


def _scatter_add(source: torch.Tensor, index: torch.Tensor, dim: int, dim_size: int) -> torch.Tensor:
    return source.new_zeros(dim_size).scatter_add_(dim, index, source)


class Clients:
    """What the library's data class offers: `local_data`, `global_data`, `processed_dir`."""

    def __init__(self, exchange: Path, folder: Path) -> None:
        self.processed_dir = str(folder)
        with np.load(exchange, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        self.arrays = arrays
        parts = (arrays["feature_values"], arrays["feature_columns"], arrays["feature_rows"])
        # The library loads features dense.
        dense = csr_matrix(parts, shape=tuple(arrays["feature_shape"])).toarray()
        self.features = torch.from_numpy(dense)
        self.labels = torch.from_numpy(arrays["labels"])
        self.ends = np.concatenate([[0], np.cumsum(arrays["sizes"])])
        self.clients = len(arrays["sizes"])
        split = folder / "node_cls" / "default_split"
        split.mkdir(parents=True)
        self.local_data = [self._client(number, split) for number in range(self.clients)]
        self.global_data = self._data(slice(None), np.stack([arrays["source"], arrays["target"]]))
        self.counts = {
            "nodes": len(self.labels),
            "edges": sum(int(data.edge_index.shape[1]) for data in self.local_data),
            "features": sum(int(torch.count_nonzero(data.x)) for data in self.local_data),
            **{role: int(arrays[role].sum()) for role in ("train", "validation", "test")},
        }

    def _data(self, rows: slice, edges: np.ndarray) -> Any:
        data = import_module("torch_geometric.data").Data(
            x=self.features[rows], edge_index=torch.from_numpy(edges.copy()), y=self.labels[rows]
        )
        data.num_global_classes = int(self.arrays["classes"])
        return data

    def _client(self, number: int, split: Path) -> Any:
        first, last = int(self.ends[number]), int(self.ends[number + 1])
        source, target = self.arrays["source"], self.arrays["target"]
        own = (source >= first) & (source < last)
        data = self._data(slice(first, last), np.stack([source[own], target[own]]) - first)
        data.global_map = {local: first + local for local in range(last - first)}
        for role, name in (("train", "train"), ("validation", "val"), ("test", "test")):
            mask = torch.from_numpy(self.arrays[role][first:last])
            torch.save(mask, split / f"{name}_{number}.pt")
            chosen = [first + int(local) for local in mask.nonzero().flatten()]
            (split / f"glb_{name}_{number}.pkl").write_bytes(pickle.dumps(chosen))
        return data


def make_trainer(clients: Clients, task: dict[str, Any]) -> Any:
    """The library's trainer for the task's algorithm, with its own defaults but for what is set here."""
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
    return library.FGLTrainer(args)


class Loop:
    """The loop of `FGLTrainer.train`, a round at a time, counted on."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self.number = 0
        self.phase = ""

    def run(self, phase: str) -> None:
        """One round of `phase`: FedSage+ trains generators until its first `round`."""
        trainer = self.trainer
        if phase != self.phase and trainer.args.fl_algorithm == "fedsage_plus":
            config = import_module("openfgl.flcore.fedsage_plus.fedsage_plus_config").config
            config["gen_rounds"] = 10**9 if phase == "generator" else self.number
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


if __name__ == "__main__":
    serve(prepare)
