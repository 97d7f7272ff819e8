"""This suite's worker: `python -m benchmark.peers.our_worker FD`.

Rounds are timed inside `methods.core.training.train` itself, from the end of one to the end of the next:
local epochs, exchange, evaluation of every client.
"""

from __future__ import annotations

from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from benchmark.peers.pipe import Clock, serve
from benchmark.subjects import make_federation, make_method, prepare_process
from datasets.federation import Federation
from datasets.graph import as_scipy
from methods.core.base import Architecture, Schedule
from methods.core.training import train

ROUNDS = 10**6
"""More than are ever run: the other end says when to stop."""


def session(pipe: Connection, task: dict[str, Any]) -> None:
    """Make the clients, hand them to the peer through a file, then train as told."""
    prepare_process()
    federation = make_federation(task["dataset"], task["clients"])
    pipe.send({"counts": write_clients(federation, Path(task["exchange"]))})
    settings = {
        "architecture": Architecture(**task["architecture"]),
        "schedule": Schedule(rounds=ROUNDS, **task["schedule"]),
        **task["options"],
    }
    clock = Clock(pipe)
    while clock.phase == "generator":
        # FedSage+ trains its generators at set-up: all of that is charged to their epochs.
        method = make_method(federation, task["method"], **{**settings, "generator_epochs": clock.rounds})
        method.build()
        clock.answer([method.extras["generator_seconds"] / clock.rounds] * clock.rounds)
    train(make_method(federation, task["method"], **settings), lambda _: clock.lap())


def write_clients(federation: Federation, path: Path) -> dict[str, int]:
    """Write graph, features, labels, clients and split as plain arrays to an .npz file; `counts` of it."""
    features = as_scipy(federation.features)
    source, target = federation.graph.edges()
    masks = {role: getattr(federation, role).numpy() for role in ("train", "validation", "test")}
    np.savez(
        path,
        feature_values=features.data,
        feature_columns=features.indices,
        feature_rows=features.indptr,
        feature_shape=np.array(features.shape),
        source=source.numpy(),
        target=target.numpy(),
        labels=federation.labels.numpy(),
        sizes=federation.sizes.numpy(),
        classes=np.array(federation.classes),
        **masks,
    )
    counts = {"nodes": federation.nodes, "edges": len(source), "features": len(features.data)}
    return counts | {role: int(mask.sum()) for role, mask in masks.items()}


if __name__ == "__main__":
    serve(session)
