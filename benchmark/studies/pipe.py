"""The worker's end of the pipe: commands in, answers out. Standard library only."""

from __future__ import annotations

import os
import resource
import select
import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from multiprocessing.connection import Connection
from typing import Any

ERROR_LENGTH = 300
PACKAGES = ("torch", "torch-geometric", "numpy", "scipy")
"""Packages of the worker's environment whose versions are recorded."""

Run = Callable[[dict[str, Any]], dict[str, Any]]
"""Runs a command; returns the answer."""


def serve(prepare: Callable[[dict[str, Any]], tuple[dict[str, Any], Run]]) -> None:
    """Prepare the task of the first command and answer; then run every further one.

    The pipe is inherited; its file descriptor is the process's one argument. Ends when the other end is gone,
    in the middle of a command too; an exception becomes the last answer.
    """
    pipe = Connection(int(sys.argv[1]))
    threading.Thread(target=_follow, args=(pipe,), daemon=True).start()
    try:
        task = pipe.recv()
        # An allocation beyond the limit fails in this process, not in its neighbours.
        resource.setrlimit(resource.RLIMIT_DATA, (task["memory"], task["memory"]))
        answer, run = prepare(task)
        pipe.send(answer)
        while True:
            pipe.send(run(pipe.recv()))
    except EOFError:
        return
    except Exception as error:
        pipe.send({"error": one_line(error)})


def _follow(pipe: Connection) -> None:
    """End this process when the other end of the pipe is gone: nobody waits for what it trains for hours."""
    gone = select.poll()
    # Of no event but the end, which is always told.
    gone.register(pipe.fileno(), 0)
    gone.poll()
    os._exit(1)


def timed(one_round: Callable[[], object], rounds: int) -> list[float]:
    """The seconds of each of so many rounds."""
    ends = [time.perf_counter()]
    for _ in range(rounds):
        one_round()
        ends.append(time.perf_counter())
    return [end - start for start, end in pairwise(ends)]


def one_line(error: BaseException) -> str:
    """The exception in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:ERROR_LENGTH].rstrip(": ")
