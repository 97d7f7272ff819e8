"""Types of callbacks and their argument."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fedsub.benchmark.spec.cell import Cell
from fedsub.methods.core import rounds


@dataclass(frozen=True, kw_only=True)
class Round(rounds.RoundDone):
    """The state of a cell after one of its rounds."""

    cell: Cell

    @property
    def figures(self) -> dict[str, float]:
        """Group and name, such as `scores/test` → figure."""
        groups = {"losses": self.losses, "scores": self.scores, "bytes": self.bytes, "seconds": self.seconds}
        return {f"{group}/{name}": value for group, found in groups.items() for name, value in found.items()}


class Stop(Exception):
    """Raised by a callback to end its cell as stopped, not failed; a later run runs the cell again."""


Callback = Callable[[Round], None]
"""Function called after every round, in the process of the run. `Stop` ends the cell as stopped, any other
exception as failed. A cell in a worker process may by then be some rounds further, which are lost."""
