"""This suite's worker: `python -m benchmark.peers.our_worker FD`.

Rounds are timed inside `methods.core.training.train` itself, from the end of one to the end of the next:
local epochs, exchange, evaluation of every client.
"""

from __future__ import annotations

from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmark.peers.clients import write_clients
from benchmark.peers.pipe import Clock, serve
from benchmark.subjects import make_federation, make_method, prepare_process
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
    train(make_method(federation, task["method"], **settings), lambda done, rounds: clock.lap())


if __name__ == "__main__":
    serve(session)
