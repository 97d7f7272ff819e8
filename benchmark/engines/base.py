"""What every engine is: a map over cells that no cell can stop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from benchmark.cell import Cell
from benchmark.record import Record

Work = Callable[[Cell], Record]
Failure = Callable[[Cell, str], Record]
"""Makes the record of a cell whose worker died, from the cell and a sentence."""


class Engine(Protocol):
    """Runs cells and hands over each record as soon as it is there, in any order."""

    def map(self, work: Work, cells: Iterable[Cell], failed: Failure) -> Iterator[Record]:
        """Yield one record per cell, taken when there is room for it; closing the iterator stops all."""
        ...


def limit_threads(threads: int) -> None:
    """Hold torch in this process, which has imported it already, to `threads` threads."""
    import torch

    torch.set_num_threads(threads)
