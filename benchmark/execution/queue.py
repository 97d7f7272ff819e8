"""Queue of a run's cells, which are claimed one by one so that no other process runs them too."""

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


def passes(
    cells: Iterable[Cell],
    records: Records,
    leases: Leases,
    rerun: bool,
    until: float,
    wanted: Wanted | None,
) -> Iterator[Iterator[Cell]]:
    """Yield passes over the cells that no process is running or has finished, until none is left.

    A pass leaves out the cells that others hold at that time. `rerun` yields finished cells too. No cell is
    yielded after the time `until`, of `time.monotonic`, nor a cell that is not `wanted` when its turn comes.
    """
    waiting = {cell.key: cell for cell in cells}
    before = {key: records.runs(cell) for key, cell in waiting.items()}

    def is_open(cell: Cell) -> bool:
        # A record that another process made since this run began is kept, also a failure.
        is_new = records.runs(cell) > before[cell.key]
        is_left = not is_new and (rerun or not records.done(cell))
        return is_left and (wanted is None or wanted(cell, records))

    def claimed() -> Iterator[Cell]:
        for cell in [*waiting.values()]:
            if time.monotonic() >= until:
                return
            if leases.claim(cell.key):
                del waiting[cell.key]
                # Another process may have finished it between the plan and the claim.
                records.refresh()
                if is_open(cell):
                    yield cell
                else:
                    leases.give_back(cell.key)

    left, pauses = 0, 0
    while waiting and time.monotonic() < until:
        if len(waiting) == left:
            # The last pass found none.
            time.sleep(PAUSE)
            pauses += 1
            if pauses == TELL_AFTER:
                first = next(iter(waiting.values())).title
                print(f"waiting for {left} cells that other processes run, such as {first}", file=sys.stderr)
        left = len(waiting)
        yield claimed()
