"""Types of callbacks and their argument."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedsub.benchmark.spec.cell import Cell
from fedsub.datasets.errors import UserError
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
    """Raised by a callback to end its cell as stopped, not failed; a later run begins the cell anew."""


Callback = Callable[[Round], None]
"""Function called after every round. `Stop` ends the cell as stopped, any other exception as failed."""


@dataclass
class FromWorkers:
    """Calls callbacks with the rounds of worker processes, until one raises an exception."""

    callbacks: Sequence[Callback]
    raised: Exception | None = None
    """The exception, for the end of the run."""

    def __call__(self, done: Round) -> None:
        """Call the callbacks with one round."""
        if self.raised is not None:
            return
        try:
            for callback in self.callbacks:
                callback(done)
        except Stop:
            self.raised = UserError("a callback can stop only cells of this process: set workers=1")
        except Exception as error:
            self.raised = error
