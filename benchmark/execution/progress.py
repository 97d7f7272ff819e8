"""Progress of a run: a bar with an estimate on a terminal, otherwise one line per cell."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from fedsub.benchmark.execution.callbacks.base import Round
from fedsub.benchmark.records.record import FAILED, Record
from fedsub.benchmark.spec.cell import Cell

WIDTH = 400
"""Width of a table outside a terminal."""


def console_for(is_terminal: bool, stderr: bool = False) -> Console:
    """Return a console on standard output or error; outside a terminal it does not wrap at 80 columns."""
    return Console(stderr=stderr, width=None if is_terminal else WIDTH)


class GridProgress:
    """Reports finished cells on standard error."""

    def __init__(self, expected: Mapping[str, float], console: Console) -> None:
        """`expected`: key of each cell → weight; the remaining time extrapolates the pace so far."""
        self._expected = expected
        self._done = 0
        self._weight_left = self._weight = sum(expected.values())
        self._running: dict[str, float] = {}
        """Key of a running cell → weight of its finished rounds."""
        self._started = time.monotonic()
        self._console = console
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[done]}/{task.fields[cells]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            # Cells are few and long: average over all of them.
            TimeRemainingColumn(),
        )
        self._bar = Progress(*columns, console=console, transient=True, speed_estimate_period=1e6)
        self._task = self._bar.add_task("cells", cells=len(expected), done=0, total=self._weight)

    @property
    def is_seen(self) -> bool:
        """Whether a bar is shown."""
        return self._console.is_terminal and not self._console.quiet

    def __enter__(self) -> Self:
        if self.is_seen:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def round(self, done: Round) -> None:
        """Advance the bar within a running cell."""
        self._running[done.cell.key] = self._expected[done.cell.key] * done.round / done.rounds
        self._show()

    def _show(self) -> None:
        # `tuple` copies, because another thread reports rounds.
        spent = self._weight - self._weight_left + sum(tuple(self._running.values()))
        self._bar.update(self._task, completed=spent, done=self._done)

    def finished(self, record: Record) -> None:
        """Count one cell; a failed one is named with its cause."""
        self._done += 1
        self._running.pop(record.key, None)
        self._weight_left -= self._expected[record.key]
        spent = self._weight - self._weight_left
        self._show()
        elapsed = time.monotonic() - self._started
        left = elapsed / max(spent, 1e-9) * max(self._weight_left, 0.0)
        summary = _summary(record)
        if record.status == FAILED:
            self._console.print(f"failed: {summary}", markup=False, highlight=False, soft_wrap=True)
        elif not self._console.is_terminal:
            line = f"[{self._done}/{len(self._expected)}] {summary} (about {duration(left)} left)"
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def counted(cells: Iterable[Cell], waiting: Iterable[Cell], ready: Iterable[Cell]) -> str:
    """Return a sentence with the numbers of distinct cells, of those done before, and of those to run."""
    every, left, able = (len({cell.key for cell in each}) for each in (cells, waiting, ready))
    rest = f", {left - able} without their graph" if able < left else ""
    return f"{every} cell{'s' * (every != 1)}: {every - left} done before, {able} to run{rest}"


def duration(seconds: float) -> str:
    """Return seconds as text in a readable unit: `45 s`, `12 min`, `3.2 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"


def _summary(record: Record) -> str:
    title = record.cell.title
    if record.error is not None:
        return f"{title}: {record.error}"
    name, value = next(iter(record.metrics.items()), ("", None))
    score = "" if value is None else f"{name} {value:.2f}, "
    return f"{title}: {score}{sum(record.result.seconds.values()):.1f} s"
