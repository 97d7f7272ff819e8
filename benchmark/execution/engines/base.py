"""The interface of engines: a map over cells that continues when a cell fails."""

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Protocol

from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.records.record import Record
from fedsub.benchmark.spec.cell import Cell

RunCell = Callable[[Cell], Record]
Wanted = Callable[[Cell, Records], bool]
"""Whether a cell is to run, given the present records."""
MakeFailure = Callable[[Cell, str], Record]
"""Makes a failure record from a cell and a sentence, for example if its worker died."""
Memory = Callable[[Cell], float]
"""Expected memory of a cell in MiB; 0 if unknown."""
SPARE = 1.25
"""Factor of the expected memory in requests to a cluster."""
KILLED = "the worker process was killed"
"""Begins the error of a cell whose process was killed, as the kernel does when memory runs out."""
_OUT_OF_MEMORY = ("MemoryError:", "OutOfMemoryError:", KILLED)
_TORCH_LACKS = "DefaultCPUAllocator: "


def lacked_memory(record: Record) -> bool:
    """Whether the cell ran out of memory, so that a retry on its own or on another machine may succeed."""
    said = record.error or ""
    return said.startswith(_OUT_OF_MEMORY) or _TORCH_LACKS in said


class Engine(Protocol):
    """Runs cells and yields each record as soon as it exists, in any order."""

    def map(self, work: RunCell, cells: Iterable[Cell], failed: MakeFailure) -> Generator[Record]:
        """Yield one record per cell, taken only when it can start; closing the generator stops all."""
        ...


@dataclass(frozen=True)
class InProcess:
    """Runs cells one after another in this process. A crash ends the run; finished cells are kept."""

    threads: int = 1

    def map(self, work: RunCell, cells: Iterable[Cell], failed: MakeFailure) -> Generator[Record]:
        """See `Engine.map`."""
        import torch

        torch.set_num_threads(self.threads)
        for cell in cells:
            yield work(cell)
