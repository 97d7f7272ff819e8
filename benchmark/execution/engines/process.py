"""Engine that runs cells in worker processes of this machine.

The library pebble does not do here: a worker that ends with exit code 0 leaves its cell waiting for ever, and
every cell pickles its work anew, with the user's graph (pebble 5.2.3).
"""

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import connection, get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

from fedsub.benchmark.execution.callbacks import Round
from fedsub.benchmark.execution.engines.base import KILLED, MakeFailure, RunCell, lacked_memory
from fedsub.benchmark.machine import thread_variables
from fedsub.benchmark.records.record import FAILED, Record
from fedsub.benchmark.spec.cell import Cell

_LONGEST_WAIT = 86400.0
"""Longest wait in seconds; the system counts milliseconds, up to about 24 days."""


@dataclass(frozen=True)
class ProcessPool:
    """Runs cells in worker processes; a worker that dies loses only its own cell.

    A cell that was killed or ran out of memory is retried after all others, with no other cell running.
    """

    workers: int
    threads: int = 1
    timeout: float | None = None
    """Seconds after which a cell is stopped and counts as failed."""
    retries: bool = True
    """Whether lost cells are retried."""
    on_round: Callable[[Round], Record | None] = field(default=lambda done: None, compare=False)
    """Called in this process with the rounds for which the work calls `to_pool`. A record that it returns
    ends the cell."""

    def map(self, work: RunCell, cells: Iterable[Cell], failed: MakeFailure) -> Generator[Record]:
        """See `Engine.map`."""
        # A cell is taken only when a worker is free for it: other processes may run the rest.
        waiting = iter(cells)
        timeout = math.inf if self.timeout is None else self.timeout
        idle: list[_Worker] = []
        busy: dict[_Worker, Cell] = {}
        lost: list[Cell] = []
        is_second = False

        def begin(cell: Cell) -> None:
            worker = idle.pop() if idle else _Worker(work, self.threads)
            busy[worker] = cell
            worker.give(cell)

        try:
            while True:
                for cell in islice(waiting, self.workers - len(busy)):
                    begin(cell)
                if not busy:
                    if not lost:
                        return
                    # Idle workers are stopped to free their memory for the retried cell.
                    while idle:
                        idle.pop().stop()
                    is_second = True
                    begin(lost.pop())
                patience = max(0.0, timeout - max(worker.age() for worker in busy))
                channels = [worker.channel for worker in busy]
                ready = connection.wait(channels, min(patience, _LONGEST_WAIT))
                for worker, cell in [*busy.items()]:
                    answer: Record | Round | None = None
                    if worker.channel in ready:
                        try:
                            answer = worker.answer()
                        except (EOFError, OSError):
                            answer = failed(cell, worker.why_gone(is_second))
                            worker.stop()
                    if isinstance(answer, Round) and (answer := self.on_round(answer)) is not None:
                        worker.stop()
                    if isinstance(answer, Record):
                        # After an error of CUDA every later call of its process may fail.
                        if answer.status == FAILED and cell.device != "cpu":
                            worker.stop()
                        del busy[worker]
                        # A worker that was stopped above has a closed channel.
                        if not worker.channel.closed:
                            idle.append(worker)
                        if self.retries and lacked_memory(answer) and not is_second:
                            lost.append(cell)
                        else:
                            yield answer
                    elif worker.age() >= timeout:
                        worker.stop()
                        del busy[worker]
                        yield failed(cell, f"it was stopped after {timeout:g} s, its --timeout")
        finally:
            for worker in (*busy, *idle):
                worker.stop()


class _Worker:
    """One process of the pool; it runs a cell at a time."""

    def __init__(self, work: RunCell, threads: int) -> None:
        context = get_context("spawn")
        self.channel, far_end = context.Pipe()
        self._begun: float | None = None
        self._process: SpawnProcess = context.Process(target=_serve, args=(far_end, work), daemon=True)
        # Starting the tracker later would unblock the interrupts that are blocked below.
        resource_tracker.ensure_running()
        # Numerical libraries read these once, when the new process imports them.
        os.environ.update(thread_variables(threads))
        # Ctrl-C is blocked for the new process, even before it can ignore it. This process gets a pending one
        # afterwards.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        far_end.close()

    def give(self, cell: Cell) -> None:
        self._begun = None
        # A worker may have died idle: its closed channel reads as ready, and `answer` reports the death.
        with suppress(BrokenPipeError):
            self.channel.send(cell)

    def age(self) -> float:
        """Return the seconds since the cell began; 0 while its process is still starting."""
        return 0.0 if self._begun is None else time.monotonic() - self._begun

    def answer(self) -> Record | Round | None:
        """Return the record of the cell, a round that it has finished, or None if it has just begun.

        Raises EOFError or OSError if the process died, even in the middle of its answer.
        """
        answer: Record | Round | None = self.channel.recv()
        if answer is None:
            self._begun = time.monotonic()
        return answer

    def why_gone(self, is_second: bool) -> str:
        """Return why the process ended, in one sentence; `is_second` attempts run without other cells."""
        self._process.join()
        code = self._process.exitcode or 0
        if code == -signal.SIGKILL:
            how_often = " twice, also without other cells" if is_second else ""
            return f"{KILLED}{how_often}, most likely because memory ran out"
        if code < 0:
            return f"the worker process was ended by signal {signal.Signals(-code).name}"
        return f"the worker process ended with exit code {code}"

    def stop(self) -> None:
        self._process.kill()
        self._process.join()
        self.channel.close()


_TO_POOL: list[Connection] = []
"""In a worker process, its end of the channel."""


def to_pool(done: Round) -> None:
    """Hand a round of a worker process to the pool."""
    _TO_POOL[0].send(done)


def _serve(channel: Connection, work: RunCell) -> None:
    """Body of a worker process: receive a cell, send its record, until the channel closes."""
    # Ctrl-C reaches the whole process group; only the parent handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _TO_POOL.append(channel)
    threading.Thread(target=_follow_parent, daemon=True).start()
    while True:
        try:
            cell = channel.recv()
        except EOFError:
            return
        channel.send(None)
        channel.send(work(cell))


def _follow_parent() -> None:
    """End this process when its parent ends, for whatever reason."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
