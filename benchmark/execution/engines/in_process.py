"""Engine that runs cells in the command's own process, for debuggers and for a single cell."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass

from fedsub.benchmark.execution.engines.base import MakeFailure, RunCell
from fedsub.benchmark.records.record import Record
from fedsub.benchmark.spec.cell import Cell


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
