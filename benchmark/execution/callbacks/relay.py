"""Relay of rounds from worker processes to callbacks in the main process."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection

from fedsub.benchmark.execution.callbacks.base import Callback, Round, Stop
from fedsub.benchmark.spec.cell import Cell
from fedsub.datasets.errors import UserError

LARGEST = 4000
"""Maximum bytes of a message, below what a pipe writes atomically (PIPE_BUF). Workers share one pipe without
a lock, since a killed worker would never release it."""


@dataclass(frozen=True)
class Sender:
    """The callback of a worker process."""

    pipe: Connection

    def __call__(self, done: Round) -> None:
        """Send one round."""
        figures = {name: getattr(done, name) for name in ("losses", "scores", "bytes", "seconds")}
        message = json.dumps([done.cell.key, done.round, done.rounds, figures]).encode()
        if len(message) > LARGEST:
            raise ValueError(f"the message of a round has {len(message)} bytes; the maximum is {LARGEST}")
        self.pipe.send_bytes(message)


@contextmanager
def relayed(cells: Sequence[Cell], callbacks: Sequence[Callback]) -> Iterator[Sender]:
    """Yield the callback for workers that are started inside the block. It calls `callbacks` in this process,
    on a separate thread. The first exception of a callback is raised at the end of the block."""
    by_key = {cell.key: cell for cell in cells}
    here, there = get_context("spawn").Pipe(duplex=False)
    raised: list[BaseException] = []

    def listen() -> None:
        while message := here.recv_bytes():
            key, number, rounds, figures = json.loads(message)
            try:
                if not raised:
                    done = Round(cell=by_key[key], round=number, rounds=rounds, **figures)
                    for callback in callbacks:
                        callback(done)
            except Stop:
                raised.append(UserError("a callback can stop only cells of this process: set workers=1"))
            except Exception as error:
                raised.append(error)

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield Sender(there)
    finally:
        there.send_bytes(b"")
        thread.join()
        here.close()
        there.close()
    if raised:
        raise raised[0]
