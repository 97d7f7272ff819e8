"""Engine that runs cells as Ray tasks."""

import os
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from fedsub.benchmark.execution.engines import base
from fedsub.benchmark.execution.engines.base import MakeFailure, Memory, RunCell
from fedsub.benchmark.execution.engines.process import ProcessPool
from fedsub.benchmark.machine import IMPORTED_FROM, thread_variables
from fedsub.benchmark.records.record import Record
from fedsub.benchmark.spec.cell import Cell
from fedsub.datasets.errors import UserError
from fedsub.datasets.extras import needed


@dataclass(frozen=True)
class RayEngine:
    """Runs cells as Ray tasks, on this machine or on the cluster that RAY_ADDRESS names.

    A cell that is lost with its node or process, or runs out of memory, is retried once, with twice the
    memory and all cores of a node. A cell with a timeout runs in a process that its task starts and can stop.
    """

    workers: int
    threads: int = 1
    memory: Memory = lambda cell: 0.0
    timeout: float | None = None
    """Seconds after which a cell is stopped and counts as failed."""

    def map(self, work: RunCell, cells: Iterable[Cell], failed: MakeFailure) -> Generator[Record]:
        """See `Engine.map`. Raises UserError if no node is left; its running cells do not count as failed."""
        ray = needed("ray", "ray", "the Ray engine", "leave --engine out")
        ours = {name: value for name, value in os.environ.items() if name.startswith("FEDSUB_")}
        path = os.pathsep.join(filter(None, (str(IMPORTED_FROM), os.environ.get("PYTHONPATH"))))
        variables = {**ours, **thread_variables(self.threads), "PYTHONPATH": path}
        cores = None if os.environ.get("RAY_ADDRESS") else self.workers * self.threads
        how = {"log_to_driver": False, "include_dashboard": False, "runtime_env": {"env_vars": variables}}
        try:
            ray.init(num_cpus=cores, **how)
        except ConnectionError as error:
            raise UserError(f"no Ray cluster answers: correct or unset RAY_ADDRESS ({error})") from error
        waiting = iter(cells)
        pending: dict[Any, tuple[Cell, bool]] = {}
        # It can stop a cell that its task runs, and leaves a second attempt to Ray.
        apart = ProcessPool(1, self.threads, self.timeout, retries=False)

        def run(cell: Cell) -> Record:
            # Ray accepts only functions, and `work` may be another callable.
            return work(cell) if apart.timeout is None else next(apart.map(work, [cell], failed))

        def begin(cell: Cell, is_second: bool) -> None:
            needs = self._needs(cell, _largest(ray), is_second)
            pending[task.options(**needs).remote(cell)] = cell, is_second

        try:
            task = ray.remote(run)
            while True:
                # A cell is taken only when cores are free for it: other processes may run the rest.
                free = max(1, int(ray.cluster_resources().get("CPU", 1)) // self.threads) - len(pending)
                for cell in islice(waiting, max(0, free)):
                    if cell.device != "cpu" and not ray.cluster_resources().get("GPU"):
                        # Its task would wait for ever.
                        yield failed(cell, "no node of this Ray cluster has a GPU: leave out --device")
                    else:
                        begin(cell, is_second=False)
                if not pending:
                    return
                (reference,), _ = ray.wait(list(pending), num_returns=1)
                cell, is_second = pending.pop(reference)
                try:
                    record: Record = ray.get(reference)
                    may_recover = base.lacked_memory(record)
                except ray.exceptions.RayTaskError as error:
                    record, may_recover = failed(cell, f"it cannot run in Ray: {error.cause!r}"), False
                except ray.exceptions.RayError as error:
                    if isinstance(error, ray.exceptions.LocalRayletDiedError) or not _largest(ray):
                        raise UserError(
                            f"Ray has no node left; {len(pending) + 1} cells did not finish: start "
                            "Ray again and repeat the command"
                        ) from error
                    record, may_recover = failed(cell, f"Ray lost the task: {error}"), True
                if may_recover and not is_second:
                    begin(cell, is_second=True)
                else:
                    yield record
        finally:
            ray.shutdown()

    def _needs(self, cell: Cell, largest: Mapping[str, float], is_second: bool) -> dict[str, Any]:
        """Return the resources requested from Ray, memory in bytes, at most those of the `largest` node: a
        task that fits no node would wait for ever. The second attempt gets all cores of that node."""
        times = 2 * base.SPARE if is_second else base.SPARE
        return {
            "num_cpus": largest.get("CPU", self.threads) if is_second else self.threads,
            "num_gpus": int(cell.device != "cpu"),
            "memory": int(min(times * self.memory(cell) * 2**20, largest.get("memory", 0))),
            "max_retries": 0,
        }


def _largest(ray: Any) -> dict[str, float]:
    """Return the resources of the node with the most memory."""
    resources: list[dict[str, float]] = [node["Resources"] for node in ray.nodes() if node.get("Alive")]
    return max(resources, key=lambda each: each.get("memory", 0), default={})
