"""Types of callbacks and their argument."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

from fedsub.benchmark.spec.cell import Cell
from fedsub.methods.core import rounds


@dataclass(frozen=True, kw_only=True)
class Round(rounds.RoundDone):
    """The state of a cell after one of its rounds."""

    cell: Cell

    @classmethod
    def of(cls, cell: Cell, done: rounds.RoundDone) -> Round:
        """Return a round of the training loop with its cell."""
        return cls(cell=cell, **{item.name: getattr(done, item.name) for item in fields(done)})

    @property
    def figures(self) -> dict[str, float]:
        """Group and name, such as `scores/test` → figure."""
        groups = {"losses": self.losses, "scores": self.scores, "bytes": self.bytes, "seconds": self.seconds}
        return {f"{group}/{name}": value for group, found in groups.items() for name, value in found.items()}


class Stop(Exception):
    """Raised by a callback to end its cell as stopped, not failed; a later run begins the cell anew."""


Callback = Callable[[Round], None]
"""Function called after every round. `Stop` ends the cell as stopped, any other exception as failed."""
