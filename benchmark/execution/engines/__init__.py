"""Engines that run cells: worker processes, Ray, Slurm, or the process of the command itself."""

from __future__ import annotations

from pathlib import Path

from fedsub.benchmark.execution.engines.base import Engine, MakeFailure, Memory, RunCell, unknown_memory
from fedsub.benchmark.execution.engines.in_process import InProcess
from fedsub.benchmark.execution.engines.process import ProcessPool
from fedsub.benchmark.execution.engines.ray import RayEngine
from fedsub.benchmark.execution.engines.slurm import SlurmEngine, read_config
from fedsub.benchmark.machine import thread_variables

__all__ = [
    "Engine",
    "InProcess",
    "MakeFailure",
    "Memory",
    "ProcessPool",
    "RayEngine",
    "RunCell",
    "SlurmEngine",
    "create_engine",
    "thread_variables",
]


def create_engine(
    name: str,
    workers: int,
    threads: int,
    cells: int,
    timeout: float | None = None,
    *,
    results: Path = Path("results"),
    slurm_config: Path | None = None,
    memory: Memory = unknown_memory,
) -> Engine:
    """Return the engine called `name`; `timeout` is in seconds per cell. `in-process` and `flower` have no
    timeout and run one cell after another.

    `process` starts worker processes even for one worker, so that a cell that is killed or runs out of memory
    loses only itself; a single cell without a timeout runs in this process. Raises UserError for a faulty
    file `slurm_config`.
    """
    if name == "ray":
        return RayEngine(workers, threads, memory, timeout)
    if name == "slurm":
        folder = results.resolve() / "logs" / "slurm"
        return SlurmEngine(folder, threads, read_config(slurm_config), timeout, memory)
    if name in ("in-process", "flower") or (cells == 1 and timeout is None):
        return InProcess(threads)
    return ProcessPool(min(workers, cells), threads, timeout)
