"""Progress of a run, with an estimate: a bar on a terminal, otherwise one line per cell."""

import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fedsub.benchmark.execution.callbacks import Round
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.records.record import FAILED, OK, Record
from fedsub.benchmark.records.store import file_of
from fedsub.benchmark.spec.cell import Cell

WIDTH = 400
"""Width of a table outside a terminal."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Go on without progress; for output leave the exit code to the command. rich exits with 1."""
        if not self.stderr:
            raise
        self.quiet = True


def console_for(is_terminal: bool, stderr: bool = False) -> Console:
    """Return a console on standard output or error; outside a terminal it does not wrap at 80 columns."""
    return _Console(stderr=stderr, width=None if is_terminal else WIDTH)


class GridProgress:
    """Reports finished cells on standard error."""

    def __init__(self, expected: Mapping[str, float], console: Console, capped: bool = False) -> None:
        """`expected`: key of each cell → weight; the remaining time extrapolates the pace so far. `capped`:
        some cells may not be run."""
        self._expected, self._about = dict(expected), "up to" if capped else "about"
        self._done = 0
        """Number of finished cells."""
        self._spent: dict[str, float] = {}
        """Key of a cell → weight of its finished rounds."""
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
        self._task = self._bar.add_task("cells", cells=len(expected), done=0, total=sum(expected.values()))

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
        self._spent[done.cell.key] = self._expected[done.cell.key] * done.round / done.rounds
        self._bar.update(self._task, completed=sum(self._spent.values()))

    def finished(self, record: Record) -> None:
        """Count one cell; a failed one is named with its cause."""
        self._done += 1
        if record.status != OK:
            # Its time tells nothing of the others'.
            self._expected[record.key] = 0.0
        self._spent[record.key] = self._expected[record.key]
        spent, whole = sum(self._spent.values()), sum(self._expected.values())
        self._bar.update(self._task, completed=spent, done=self._done, total=whole)
        left = (time.monotonic() - self._started) / max(spent, 1e-9) * max(whole - spent, 0.0)
        summary = _summary(record)
        if record.status == FAILED:
            self._console.print(f"failed: {summary}", markup=False, highlight=False, soft_wrap=True)
        elif not self._console.is_terminal:
            line = f"[{self._done}/{len(self._expected)}] {summary} ({self._about} {duration(left)} left)"
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def expected_seconds(cells: Sequence[Cell], records: Records) -> dict[str, float]:
    """Return key → core-seconds that a cell is expected to take: its local epochs times the median seconds of
    one, set-up and evaluation included.

    The median is over the successes of its method on its graph, else of all methods on its graph, else on the
    graphs of all cells. Without any, and for a single cell, an epoch counts as a second.
    """

    def groups(cell: Cell) -> tuple[tuple[str, ...], ...]:
        """Return groups of similar cells, the most similar first."""
        return (cell.dataset.text, cell.method), (cell.dataset.text,), ()

    def epochs(cell: Cell) -> int:
        return cell.schedule.rounds * cell.schedule.local_epochs

    of_one: dict[tuple[str, ...], list[float]] = defaultdict(list)
    # Reading the records takes long, and the weight of a single cell has no effect.
    for each in {file_of(cell.dataset): cell for cell in cells}.values() if len(cells) > 1 else ():
        for record in records.of_graph(each):
            if record.status == OK:
                seconds = sum(record.core_seconds.values()) / epochs(record.cell)
                for group in groups(record.cell):
                    of_one[group].append(seconds)
    median = {group: statistics.median(found) for group, found in of_one.items()}
    return {
        cell.key: epochs(cell) * next((median[each] for each in groups(cell) if each in median), 1.0)
        for cell in cells
    }


def counted(
    cells: Iterable[Cell], waiting: Iterable[Cell], ready: Iterable[Cell], capped: bool = False
) -> str:
    """Return a sentence with the numbers of distinct cells, of those done before, and of those to run. If
    `capped`, some of these may not be run."""
    every, left, able = (len({cell.key for cell in each}) for each in (cells, waiting, ready))
    to_run = f"{'up to ' * (capped and able > 0)}{able} to run"
    rest = f", {left - able} without their graph" if able < left else ""
    return f"{every} cell{'s' * (every != 1)}: {every - left} done before, {to_run}{rest}"


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
