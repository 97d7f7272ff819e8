"""Where cells run, one file an engine: worker processes, Ray, or the process of the command itself."""

from __future__ import annotations

from benchmark.engines.base import Engine, Failure, Work
from benchmark.engines.in_process import InProcess
from benchmark.engines.process import ProcessPool
from benchmark.engines.ray import RayEngine
from benchmark.threads import thread_variables
from datasets.errors import unknown

__all__ = [
    "ENGINES",
    "Engine",
    "Failure",
    "InProcess",
    "ProcessPool",
    "RayEngine",
    "Work",
    "create_engine",
    "thread_variables",
]

ENGINES = ("process", "ray", "in-process")


def create_engine(name: str, workers: int, threads: int, cells: int, timeout: float | None = None) -> Engine:
    """The engine called `name`; `timeout` is in seconds, for a cell, and binds `process` alone.

    `process` takes worker processes even for one worker, so that a cell that is killed or runs out of
    memory costs itself alone; for a single cell it needs none. Raises UserError for an unknown engine.
    """
    if name not in ENGINES:
        raise unknown("engine", name, ENGINES)
    if name == "ray":
        return RayEngine(workers, threads)
    if name == "in-process" or (cells == 1 and timeout is None):
        return InProcess(threads)
    return ProcessPool(min(workers, cells), threads, timeout)
