"""How far the grid is: a bar with an estimate on a terminal, one plain line per cell elsewhere."""

from __future__ import annotations

import time
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from benchmark.callbacks.base import Round
from benchmark.record import FAILED, Record


class GridProgress:
    """Reports finished cells on standard error."""

    def __init__(self, cells: int, console: Console) -> None:
        self._cells = cells
        self._done = 0
        self._running: dict[str, float] = {}
        """Key → share of its rounds, of the cells that run."""
        self._started = time.monotonic()
        self._console = console
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            # Cells are few and long: average over all of them.
            TimeRemainingColumn(),
        )
        self._bar = Progress(*columns, console=console, transient=True, speed_estimate_period=1e6)
        self._task = self._bar.add_task("cells", total=cells)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def round(self, done: Round) -> None:
        """Move the bar within a cell that runs."""
        self._running[done.cell.key] = done.round / done.rounds
        self._show()

    def _show(self) -> None:
        # A copy: rounds are told on a thread beside this one.
        self._bar.update(self._task, completed=self._done + sum(tuple(self._running.values())))

    def finished(self, record: Record) -> None:
        """Count one cell; a failed one is named with its cause."""
        self._done += 1
        self._running.pop(record.key, None)
        self._show()
        elapsed = time.monotonic() - self._started
        left = elapsed / self._done * (self._cells - self._done)
        summary = _summary(record)
        if record.status == FAILED:
            self._console.print(f"failed: {summary}", markup=False, highlight=False, soft_wrap=True)
        elif not self._console.is_terminal:
            line = f"[{self._done}/{self._cells}] {summary} (about {left:.0f} s left)"
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def _summary(record: Record) -> str:
    title = record.cell.title
    if record.status == FAILED:
        return f"{title}: {record.error}"
    name, value = next(iter(record.metrics.items()), ("", None))
    score = "" if value is None else f"{name} {value:.2f}, "
    return f"{title}: {score}{sum(record.result.seconds.values()):.1f} s"
