"""Engines that run cells: worker processes, Ray, Slurm, or the process of the command itself."""

from fedsub.benchmark.execution.engines.base import Engine, InProcess, Memory, RunCell
from fedsub.benchmark.execution.engines.process import ProcessPool
from fedsub.benchmark.execution.engines.ray import RayEngine
from fedsub.benchmark.execution.engines.slurm import SlurmEngine, read_config
from fedsub.benchmark.spec.request import Request

__all__ = ["Engine", "InProcess", "ProcessPool", "RayEngine", "RunCell", "SlurmEngine", "create_engine"]


def create_engine(request: Request, cells: int, memory: Memory = lambda cell: 0.0) -> Engine:
    """Return the engine that a request names, for this many cells. `in-process` and `flower` have no timeout
    and run one cell after another.

    `process` starts worker processes even for one worker, so that a cell that is killed or runs out of memory
    loses only itself; a single cell without a timeout runs in this process. Raises UserError for a faulty
    file `slurm_config`.
    """
    name, threads, timeout = request.engine, request.threads, request.timeout
    if name == "ray":
        return RayEngine(request.workers, threads, memory, timeout)
    if name == "slurm":
        folder = request.results.resolve() / "logs" / "slurm"
        return SlurmEngine(folder, threads, read_config(request.slurm_config), timeout, memory)
    if name in ("in-process", "flower") or (cells == 1 and timeout is None):
        return InProcess(threads)
    return ProcessPool(min(request.workers, cells), threads, timeout)
