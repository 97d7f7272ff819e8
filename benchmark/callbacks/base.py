"""What a callback is, and what it is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmark.cell import Cell

if TYPE_CHECKING:
    from methods.core import training


@dataclass(frozen=True)
class Round:
    """What a cell has come to after one of its rounds."""

    cell: Cell
    round: int
    """From 1."""
    rounds: int
    """Of the whole cell."""
    losses: Mapping[str, float]
    """`train`: mean over clients of the local loss in the round's last epoch; `validation`, where the round
    was evaluated: mean over all validation items."""
    scores: Mapping[str, float]
    """`validation` and `test` in percent by the task's first metric; empty where it was not evaluated."""
    bytes: Mapping[str, int]
    """`up`, `down` and `once` so far, summed over clients."""
    seconds: Mapping[str, float]
    """`setup`, `train` and `evaluate` so far."""

    @classmethod
    def of(cls, cell: Cell, done: training.Round) -> Round:
        """A round as the training loop tells it, with the cell that it belongs to."""
        scores = {name: 100 * score for name, score in done.scores.items()}
        return cls(cell, done.number, done.rounds, done.losses, scores, done.bytes, done.seconds)

    @property
    def figures(self) -> dict[str, float]:
        """Every figure by a name with its group, as `scores/test`."""
        groups = {"losses": self.losses, "scores": self.scores, "bytes": self.bytes, "seconds": self.seconds}
        return {f"{group}/{name}": value for group, found in groups.items() for name, value in found.items()}


Callback = Callable[[Round], None]
"""Called after every round; what it raises ends the cell as a failure."""
