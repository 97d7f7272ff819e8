"""The worker's end of the pipe, in a separate environment: it receives commands and sends answers."""

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
"""Packages whose versions are recorded if the worker's environment has them."""

Run = Callable[[dict[str, Any]], dict[str, Any]]
"""Function that runs a command and returns the answer."""


def serve(prepare: Callable[[dict[str, Any]], tuple[dict[str, Any], Run]]) -> None:
    """Prepare the task of the first command and answer; then run every further command. Uses one thread.

    The pipe is inherited; its file descriptor is the process's only argument. The process ends when the other
    end closes, even in the middle of a command. An exception becomes the last answer.
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
    """End this process when the other end of the pipe closes, so that no training continues unused."""
    gone = select.poll()
    # Mask 0: only the closing of the pipe is reported.
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
    """Run so many rounds; return the seconds of each."""
    ends = [time.perf_counter()]
    for _ in range(rounds):
        one_round()
        ends.append(time.perf_counter())
    return [end - start for start, end in pairwise(ends)]


def stand_in_for_missing_extensions() -> None:
    """Replace torch_scatter and torch_sparse, which have no wheels for this torch, if they are not installed.
    Only scatter_add, which adds up degrees, does anything: the other names are imported but never used."""

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
