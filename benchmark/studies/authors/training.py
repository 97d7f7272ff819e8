"""One run of the authors' code in its environment: reads our clients, returns scores and seconds."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedsub.benchmark.studies.clients import WrittenClients
from fedsub.benchmark.studies.handover import Run, serve


class Timer:
    """Seconds and core share of training, from `start` to `stop`."""

    def start(self) -> None:
        """Start timing, once everything is loaded and set up."""
        self._started, self._processor = time.perf_counter(), time.process_time()

    def stop(self) -> None:
        """Stop timing, after training and evaluation."""
        self.seconds = time.perf_counter() - self._started
        self.core_share = (time.process_time() - self._processor) / self.seconds


Train = Callable[[WrittenClients, dict[str, Any], Timer], dict[str, float]]
"""Function that trains the cell's method on the clients; returns our names of scores → percent."""


def run(train: Train) -> None:
    """Serve one task with `train`, in a folder of its own."""

    def prepare(task: dict[str, Any]) -> tuple[dict[str, Any], Run]:
        clients = WrittenClients(Path(task["exchange"]))
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
        }
        return answer, lambda command: {}

    serve(prepare)
