"""Queue of a run's cells, which are claimed one by one so that no other process runs them too."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator

from fedsub.benchmark.execution.leases import Leases
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.spec.cell import Cell

Wanted = Callable[[Cell, Records], bool]
"""Whether a cell is to run, given the present records."""
PAUSE = 1.0
"""Seconds between two passes while other processes hold all cells."""
TELL_AFTER = 10
"""Number of such pauses before a line says which cells are waited for."""


class Queue:
    """Yields the cells that no process is running or has finished.

    Iterate until it is no longer open: a pass leaves out the cells that others hold at that time.
    """

    def __init__(
        self,
        cells: Iterable[Cell],
        records: Records,
        leases: Leases,
        rerun: bool = False,
        until: float = float("inf"),
        wanted: Wanted | None = None,
    ) -> None:
        """`rerun` yields finished cells too. No cell is yielded after the time `until`, of `time.monotonic`,
        nor a cell that is not `wanted` when its turn comes."""
        self._waiting = {cell.key: cell for cell in cells}
        self._records, self._leases = records, leases
        self._rerun, self._until, self._wanted = rerun, until, wanted
        self._before = {key: records.runs(cell) for key, cell in self._waiting.items()}
        self._handed_out = False
        self._passes = self._pauses = 0

    def is_open(self) -> bool:
        """Whether another pass may find a cell; waits first if the last pass found none."""
        if self._passes and not self._handed_out and self._waiting and not self._is_late():
            time.sleep(PAUSE)
            self._pauses += 1
            if self._pauses == TELL_AFTER:
                first = next(iter(self._waiting.values())).title
                others = f"{len(self._waiting)} cells that other processes run, such as {first}"
                print(f"waiting for {others}", file=sys.stderr)
        return bool(self._waiting) and not self._is_late()

    def __iter__(self) -> Iterator[Cell]:
        self._passes += 1
        self._handed_out = False
        for cell in [*self._waiting.values()]:
            if self._is_late():
                return
            if not self._leases.claim(cell.key):
                continue
            del self._waiting[cell.key]
            # Another process may have finished it between the plan and the claim.
            self._records.refresh()
            if self._is_wanted(cell):
                self._handed_out = True
                yield cell
            else:
                self._leases.give_back(cell.key)

    def _is_wanted(self, cell: Cell) -> bool:
        # A record that another process made since this run began is kept, also a failure.
        is_new = self._records.runs(cell) > self._before[cell.key]
        is_open = not is_new and (self._rerun or not self._records.done(cell))
        return is_open and (self._wanted is None or self._wanted(cell, self._records))

    def _is_late(self) -> bool:
        return time.monotonic() >= self._until
