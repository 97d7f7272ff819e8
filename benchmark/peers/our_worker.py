"""This suite's worker: `python -m benchmark.peers.our_worker FD`.

A round is local epochs, evaluation of every client and exchange, as in `methods.core.training.train`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmark.peers.pipe import Rounds, serve, timed
from benchmark.subjects import make_federation, make_method, one_round, prepare_process
from datasets.federation import Federation
from datasets.graph import as_scipy
from methods.core.base import Architecture, FederatedMethod, Schedule


def prepare(task: dict[str, Any]) -> tuple[dict[str, Any], Rounds]:
    """Make the clients and hand them to the peer through a file; the method is built for its first round."""
    prepare_process()
    federation = make_federation(task["dataset"], task["clients"])
    architecture, schedule = Architecture(**task["architecture"]), Schedule(**task["schedule"])

    def built(**options: Any) -> FederatedMethod:
        method = make_method(federation, task["method"], architecture, schedule, **task["options"] | options)
        method.build()
        return method

    @cache
    def training() -> Callable[[], None]:
        return one_round(built())

    def run(phase: str, rounds: int) -> list[float]:
        if phase == "round":
            return timed(training(), rounds)
        # FedSage+ trains its generators at set-up: all of that is charged to their epochs.
        return [built(generator_epochs=rounds).extras["generator_seconds"] / rounds] * rounds

    return {"counts": write_clients(federation, Path(task["exchange"]))}, run


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
    serve(prepare)
