"""Progress of a run after a round; free of torch, so that a process that only waits for it starts at once."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class RoundDone:
    """Progress of a run after one of its rounds."""

    round: int
    """Number of the round, from 1."""
    rounds: int
    """Number of rounds of the whole run."""
    losses: Mapping[str, float]
    """`train`: mean over clients of the local loss in the round's last epoch; `validation`, if the round was
    evaluated: mean over all validation items."""
    scores: Mapping[str, float]
    """`validation` and `test` in percent by the task's first metric; empty if the round was not evaluated."""
    bytes: Mapping[str, int]
    """Bytes `up`, `down` and `once` so far, summed over clients."""
    seconds: Mapping[str, float]
    """Seconds spent so far in `setup`, `train` and `evaluate`."""
