"""The worker's end of the pipe, in an environment of its own: commands in, answers out."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import random
import resource
import select
import sys
import threading
import time
import types
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch

ERROR_LENGTH = 300
PACKAGES = ("torch", "torch-geometric", "numpy", "scipy", "openfgl-lib")
"""Packages of the worker's environment whose versions are recorded, those that it has."""

Run = Callable[[dict[str, Any]], dict[str, Any]]
"""Runs a command; returns the answer."""


def serve(prepare: Callable[[dict[str, Any]], tuple[dict[str, Any], Run]]) -> None:
    """Prepare the task of the first command and answer; then run every further one, with one thread.

    The pipe is inherited; its file descriptor is the process's one argument. Ends when the other end is gone,
    in the middle of a command too; an exception becomes the last answer.
    """
    pipe = Connection(int(sys.argv[1]))
    threading.Thread(target=_follow, args=(pipe,), daemon=True).start()
    try:
        task = pipe.recv()
        # An allocation beyond the limit fails in this process, not in its neighbours.
        resource.setrlimit(resource.RLIMIT_DATA, (task["memory"], task["memory"]))
        torch.set_num_threads(1)
        torch.manual_seed(task["seed"])
        np.random.seed(task["seed"])  # noqa: NPY002
        random.seed(task["seed"])
        answer, run = prepare(task)
        pipe.send({**answer, "versions": _versions()})
        while True:
            pipe.send(run(pipe.recv()))
    except EOFError:
        return
    except Exception as error:
        text = " ".join(str(error).split())
        pipe.send({"error": f"{type(error).__name__}: {text}"[:ERROR_LENGTH].rstrip(": ")})


def _follow(pipe: Connection) -> None:
    """End this process when the other end of the pipe is gone: nobody waits for what it trains for hours."""
    gone = select.poll()
    # Of no event but the end, which is always told.
    gone.register(pipe.fileno(), 0)
    gone.poll()
    os._exit(1)


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def timed(one_round: Callable[[], object], rounds: int) -> list[float]:
    """The seconds of each of so many rounds."""
    ends = [time.perf_counter()]
    for _ in range(rounds):
        one_round()
        ends.append(time.perf_counter())
    return [end - start for start, end in pairwise(ends)]


def stand_in_for_missing_extensions() -> None:
    """Replace torch_scatter and torch_sparse, which have no wheels for this torch, where they are not
    installed: one function, which adds up degrees, and a class that is imported and never used."""

    def scatter_add(source: torch.Tensor, index: torch.Tensor, dim: int, dim_size: int) -> torch.Tensor:
        return source.new_zeros(dim_size).scatter_add_(dim, index, source)

    nothing = dict.fromkeys(("fill_diag", "matmul", "mul", "sum"))
    contents: dict[str, dict[str, Any]] = {
        "torch_scatter": {"scatter_add": scatter_add},
        "torch_sparse": {"SparseTensor": type("SparseTensor", (), {}), **nothing},
    }
    for name, content in contents.items():
        if importlib.util.find_spec(name) is None:
            sys.modules[name] = types.ModuleType(name)
            sys.modules[name].__dict__.update(content)
