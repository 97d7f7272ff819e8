"""This suite's worker: `python -m benchmark.studies.peers.our_worker FD`.

A round is local epochs, evaluation of every client and exchange, as in `methods.core.training.train`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from fedsub.benchmark.studies.peers.clients import write_clients
from fedsub.benchmark.studies.peers.pipe import Rounds, serve, timed
from fedsub.benchmark.studies.subjects import make_federation, make_method, one_round, prepare_process
from fedsub.methods.core.base import Architecture, FederatedMethod, Schedule
from fedsub.methods.core.selection import Curve
from fedsub.methods.core.tasks.base import Evaluation


def prepare(task: dict[str, Any]) -> tuple[dict[str, Any], Rounds]:
    """Make the clients and hand them to the peer through a file; the method is built for its first round."""
    prepare_process()
    federation = make_federation(task["dataset"], task["clients"])
    architecture, schedule = Architecture(**task["architecture"]), Schedule(**task["schedule"])

    def built(**options: Any) -> FederatedMethod:
        options = task["options"] | options
        method = make_method(federation, task["method"], architecture, schedule, task["seed"], **options)
        method.build()
        return method

    @cache
    def training(phase: str) -> Callable[[], Evaluation]:
        step = one_round(built())
        if phase == "personal":
            # AdaFGL's one round of FedAvg.
            step()
        return step

    def run(phase: str, rounds: int) -> dict[str, Any]:
        if phase == "generator":
            # FedSage+ trains its generators at set-up: all of that is charged to their epochs.
            return {"seconds": [built(generator_epochs=rounds).extras["generator_seconds"] / rounds] * rounds}
        seconds, last = timed(training(phase), rounds)
        # The peer weighs its clients' scores by all of their nodes.
        scores = Curve.of([last.test], federation.sizes.numpy())
        return {"seconds": seconds, "accuracy": float(scores.averaged("node-weighted")[0])}

    return {"counts": write_clients(federation, Path(task["exchange"]))}, run


if __name__ == "__main__":
    serve(prepare)
