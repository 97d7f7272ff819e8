"""Cells as tasks of Ray."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.cell import Cell
from benchmark.engines.base import Failure, Work
from benchmark.record import Record
from benchmark.threads import thread_variables
from datasets.errors import UserError


@dataclass(frozen=True)
class RayEngine:
    """Cells as Ray tasks, on this machine or on the cluster that RAY_ADDRESS names."""

    workers: int
    threads: int = 1

    def map(self, work: Work, cells: Iterable[Cell], failed: Failure) -> Iterator[Record]:
        """See `Engine.map`."""
        try:
            import ray
        except ImportError as error:
            raise UserError(
                "the Ray engine needs Ray: install the extra with pip install -e '.[ray]', "
                "or leave --engine out"
            ) from error
        waiting = [*cells]
        if not waiting:
            return
        root = str(Path(__file__).resolve().parents[2])
        variables = {**thread_variables(self.threads), "PYTHONPATH": _join_path(root)}
        if "FEDSUB_DATA" in os.environ:
            variables["FEDSUB_DATA"] = os.environ["FEDSUB_DATA"]
        arguments: dict[str, Any] = {} if os.environ.get("RAY_ADDRESS") else {"num_cpus": self.workers}
        ray.init(
            include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": variables}, **arguments
        )
        task = ray.remote(num_cpus=1, max_retries=0)(work)
        pending = {task.remote(cell): cell for cell in waiting}
        try:
            while pending:
                (reference,), _ = ray.wait(list(pending), num_returns=1)
                cell = pending.pop(reference)
                try:
                    record: Record = ray.get(reference)
                except ray.exceptions.RayError as error:
                    record = failed(cell, f"Ray lost the task: {error}")
                yield record
        finally:
            ray.shutdown()


def _join_path(root: str) -> str:
    return os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
