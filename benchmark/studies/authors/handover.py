"""Start and end of every worker; runs in the environment of the authors' code."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedsub.benchmark.studies.clients import WrittenClients
from fedsub.benchmark.studies.pipe import PACKAGES, Run, serve

KEPT = "kept.npz"
"""Files that a worker leaves for later runs on the same graph."""


class Timer:
    """Seconds of training: from `start`, after all is loaded and set up, to the end."""

    def __init__(self) -> None:
        self.seconds = self.core_share = 0.0
        self.start()

    def start(self) -> None:
        """All is loaded and set up."""
        self._started, self._processor = time.perf_counter(), time.process_time()

    def stop(self) -> None:
        """Trained and evaluated."""
        self.seconds = time.perf_counter() - self._started
        self.core_share = (time.process_time() - self._processor) / self.seconds


Train = Callable[[WrittenClients, dict[str, Any], Timer], dict[str, float]]
"""Trains the cell's method on the clients; scores in percent by our names."""


def run(train: Train) -> None:
    """Serve one task with `train`: in a folder of its own, with one thread, seeded by the cell."""

    def prepare(task: dict[str, Any]) -> tuple[dict[str, Any], Run]:
        torch.set_num_threads(1)
        seed = task["cell"]["seed"]
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        random.seed(seed)
        clients = WrittenClients.read(Path(task["exchange"]))
        # The checkout is the user's: nothing is written into it.
        sys.dont_write_bytecode = True
        sys.path.insert(0, task["checkout"])
        os.chdir(task["folder"])
        timer = Timer()
        metrics = train(clients, task, timer)
        answer = {
            "counts": clients.counts,
            "metrics": metrics,
            "seconds": timer.seconds,
            "core_share": timer.core_share,
            "environment": {"python": platform.python_version(), **_versions(), "threads": 1},
        }
        return answer, lambda command: {}

    serve(prepare)


def without_cuda() -> None:
    """Make `.cuda()` of tensors and modules leave them where they are."""
    for kind in (torch.Tensor, torch.nn.Module):
        kind.cuda = lambda self, *_, **__: self  # type: ignore[method-assign]


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found
