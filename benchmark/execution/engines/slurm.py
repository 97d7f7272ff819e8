"""Engine that runs cells as Slurm jobs, through submitit: one array job per batch."""

import math
import os
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from fedsub.benchmark.execution.engines import base
from fedsub.benchmark.execution.engines.base import MakeFailure, Memory, RunCell
from fedsub.benchmark.machine import thread_variables
from fedsub.benchmark.records.record import Record
from fedsub.benchmark.spec.cell import Cell
from fedsub.datasets.errors import UserError
from fedsub.datasets.extras import needed

ARRAY = 500
"""Maximum cells of one array job; Slurm's default limit is 1,000."""
USUAL_TIME = 24 * 60
"""Minutes that a job requests if there is no timeout."""
PAUSE = 1.0
"""Seconds between two checks of the jobs."""
_ENDED = ("CANCELLED", "TIMEOUT")
"""Slurm's states of jobs that were cancelled or reached their time limit."""


@dataclass(frozen=True)
class SlurmEngine:
    """Runs cells as Slurm jobs of one task; this process waits for the jobs and cancels them when it ends.

    A cell that is lost with its node or runs out of memory is retried once, with twice the memory.
    """

    folder: Path
    """Folder of submitit's files, which the jobs must be able to read and write too."""
    threads: int = 1
    config: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of submitit's AutoExecutor, such as `slurm_partition`; they override this engine's own."""
    timeout: float | None = None
    """Maximum seconds of a cell; Slurm counts whole minutes."""
    memory: Memory = lambda cell: 0.0
    cluster: str = "slurm"
    """`slurm`; `local` and `debug` run the jobs on this machine, without Slurm."""

    def map(self, work: RunCell, cells: Iterable[Cell], failed: MakeFailure) -> Generator[Record]:
        """See `Engine.map`. Raises UserError if a batch cannot be submitted."""
        _needed("submitit")
        # Jobs inherit the environment variables of the submitting process.
        os.environ.update(thread_variables(self.threads))
        waiting = iter(cells)
        while batch := list(islice(waiting, ARRAY)):
            lost: list[Cell] = []
            yield from self._run(work, batch, failed, lost)
            yield from self._run(work, lost, failed, None)

    def _run(
        self, work: RunCell, cells: list[Cell], failed: MakeFailure, lost: list[Cell] | None
    ) -> Iterator[Record]:
        """Yield the records of the cells; cells to retry join `lost`, which is None in the second attempt."""
        jobs: list[tuple[Any, Cell]] = []
        try:
            for on_cuda in (False, True):
                same = [cell for cell in cells if (cell.device != "cpu") == on_cuda]
                if same:
                    jobs += zip(self._submit(work, same, 2 if lost is None else 1), same, strict=True)
            while jobs:
                for job, cell in [(job, cell) for job, cell in jobs if job.done()]:
                    jobs.remove((job, cell))
                    record, may_recover = _outcome(job, cell, failed)
                    if may_recover and lost is not None:
                        lost.append(cell)
                    else:
                        yield record
                if jobs:
                    time.sleep(PAUSE)
        finally:
            for job, _ in jobs:
                with suppress(OSError):
                    job.cancel(check=False)

    def _submit(self, work: RunCell, cells: list[Cell], times: int) -> list[Any]:
        """Submit all cells as one array job, with `times` their expected memory."""
        submitit = _needed("submitit")
        try:
            executor = submitit.AutoExecutor(folder=self.folder, cluster=self.cluster)
            executor.update_parameters(**{**self._needs(cells, times), **self.config})
            with executor.batch():
                return [executor.submit(work, cell) for cell in cells]
        except (AssertionError, NameError, OSError, RuntimeError, TypeError, ValueError) as error:
            raise UserError(
                f"Slurm rejected the cells: {' '.join(str(error).split())}; check --slurm-config"
            ) from error

    def _needs(self, cells: list[Cell], times: int) -> dict[str, Any]:
        timeout = math.inf if self.timeout is None else self.timeout
        megabytes = times * base.SPARE * max(map(self.memory, cells))
        return {
            "name": "fedsub",
            "cpus_per_task": self.threads,
            "gpus_per_node": 1 if cells[0].device != "cpu" else None,
            "mem_gb": math.ceil(megabytes / 1024) or None,
            # Slurm needs a finite time limit.
            "timeout_min": USUAL_TIME if math.isinf(timeout) else math.ceil(timeout / 60),
        }


def _outcome(job: Any, cell: Cell, failed: MakeFailure) -> tuple[Record, bool]:
    """Return the record of a job that has ended, and whether a retry may succeed."""
    from submitit.core.utils import FailedJobError, UncompletedJobError

    error = job.exception()
    if error is None:
        record: Record = job.result()
        return record, base.lacked_memory(record)
    if isinstance(error, UncompletedJobError) and not isinstance(error, FailedJobError):
        state = str(job.state)
        sentence = f"Slurm's job {job.job_id} ended without a result, in the state {state}"
        return failed(cell, f"{sentence}: see {job.paths.stderr}"), not state.startswith(_ENDED)
    return failed(cell, f"it cannot run in Slurm's job {job.job_id}: {error}"), False


def read_config(path: Path | None) -> dict[str, Any]:
    """Return the parameters in a YAML file. Raises UserError if it holds none or cannot be read."""
    if path is None:
        return {}
    yaml = _needed("yaml")
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UserError(f"cannot read {path}: {' '.join(str(error).split())}") from error
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise UserError(f"{path} must hold parameters of submitit, such as `slurm_partition: gpu`")
    return found


def _needed(module: str) -> Any:
    return needed(module, "slurm", "the Slurm engine")
