"""Types of callbacks and their argument."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

from fedsub.benchmark.spec.cell import Cell
from fedsub.methods.core import rounds


@dataclass(frozen=True, kw_only=True)
class Round(rounds.Round):
    """The state of a cell after one of its rounds."""

    cell: Cell

    @classmethod
    def of(cls, cell: Cell, done: rounds.Round) -> Round:
        """A round of the training loop, with its cell."""
        return cls(cell=cell, **{item.name: getattr(done, item.name) for item in fields(done)})

    @property
    def figures(self) -> dict[str, float]:
        """Every figure by its name and group, such as `scores/test`."""
        groups = {"losses": self.losses, "scores": self.scores, "bytes": self.bytes, "seconds": self.seconds}
        return {f"{group}/{name}": value for group, found in groups.items() for name, value in found.items()}


class Stop(Exception):
    """Raised by a callback: the cell ends here, stopped and not failed, and a later run begins it anew."""


Callback = Callable[[Round], None]
"""Called after every round. `Stop` ends the cell as stopped, anything else that it raises as a failure."""
