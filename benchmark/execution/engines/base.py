"""What every engine is: a map over cells that no cell can stop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from fedsub.benchmark.records.record import Record
from fedsub.benchmark.spec.cell import Cell

RunCell = Callable[[Cell], Record]
MakeFailure = Callable[[Cell, str], Record]
"""Makes the record of a cell whose worker died, from the cell and a sentence."""
Memory = Callable[[Cell], float]
"""MiB that a cell is likely to take, 0 where that is not known."""
SPARE = 1.25
"""Times what a cell is likely to take is what a cluster is asked for."""
_OUT_OF_MEMORY = ("MemoryError:", "OutOfMemoryError:")


def unknown_memory(cell: Cell) -> float:
    """Knows of no cell what it takes."""
    return 0.0


def lacked_memory(record: Record) -> bool:
    """Whether the cell failed because it was refused memory, which it may get elsewhere or alone."""
    return record.error is not None and record.error.startswith(_OUT_OF_MEMORY)


def uses_cuda(cell: Cell) -> bool:
    """Whether the cell runs on a CUDA device."""
    return cell.device.startswith("cuda")


class Engine(Protocol):
    """Runs cells and hands over each record as soon as it is there, in any order."""

    def map(self, work: RunCell, cells: Iterable[Cell], failed: MakeFailure) -> Iterator[Record]:
        """Yield one record per cell, taken when there is room for it; closing the iterator stops all."""
        ...


def limit_threads(threads: int) -> None:
    """Hold torch in this process, which has imported it already, to `threads` threads."""
    import torch

    torch.set_num_threads(threads)
