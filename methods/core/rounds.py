"""What a run has come to after a round; without torch, so that who only waits for it starts at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Round:
    """What a run has come to after one of its rounds."""

    round: int
    """From 1."""
    rounds: int
    """Of the whole run."""
    losses: Mapping[str, float]
    """`train`: mean over clients of the local loss in the round's last epoch; `validation`, where the round
    was evaluated: mean over all validation items."""
    scores: Mapping[str, float]
    """`validation` and `test` in percent by the task's first metric; empty where it was not evaluated."""
    bytes: Mapping[str, int]
    """`up`, `down` and `once` so far, summed over clients."""
    seconds: Mapping[str, float]
    """`setup`, `train` and `evaluate` so far."""
