"""The rounds of both suites, timed interleaved: A B A B …"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from fedsub.benchmark.studies.peers.both import both_suites, cell_values
from fedsub.benchmark.studies.peers.grid import PeerCell
from fedsub.benchmark.studies.peers.worker import Worker, WorkerError

SLOW = 30.0
"""Seconds of a peer's round beyond which one round is warm-up enough."""


@dataclass(frozen=True)
class Limits:
    """How much time a comparison may take."""

    pairs: int = 5
    """Blocks of rounds of each worker."""
    block: float = 2.0
    """Seconds that a block of the slower worker should take, at least one round."""
    most_rounds: int = 20
    """Rounds of a block at most."""
    answer: float = 300.0
    """Seconds after which a worker is given up."""


def compare(cell: PeerCell, python: Path, limits: Limits, checkout: Path | None = None) -> dict[str, Any]:
    """The record of one comparison: `status` is ok, or says which worker failed, then `error` says how.

    The peer lies in `checkout`, or is installed where that is None.
    `phases` holds, for each, the mean seconds of a round in every block of either worker.
    """
    phases: dict[str, Any] = {}
    values = {**cell_values(cell), "phases": phases}
    try:
        with both_suites(cell, python, limits.answer, checkout) as (ours, peer, told):
            values |= told
            for phase in cell.pairing.phases:
                phases[phase] = _interleave((ours, peer), phase, limits)
    except WorkerError as error:
        return {**values, "status": f"{error.worker} failed", "error": error.reason}
    return {**values, "status": "ok"}


def _interleave(workers: tuple[Worker, Worker], phase: str, limits: Limits) -> dict[str, Any]:
    """Warm both up, then time blocks in alternation: each worker's mean seconds of a round in every block."""

    def once(rounds: int) -> dict[str, dict[str, Any]]:
        return {each.name: each.ask({"phase": phase, "rounds": rounds}) for each in workers}

    warm = once(1)
    if warm["peer"]["seconds"][-1] < SLOW:
        # Ours is built, and either compiles, in the first command: a second warm-up tells what a round takes.
        warm = once(2)
    slowest = max(told["seconds"][-1] for told in warm.values())
    rounds = max(1, min(limits.most_rounds, int(limits.block / max(slowest, 1e-9))))
    blocks = [once(rounds) for _ in range(limits.pairs)]
    return {
        "rounds": rounds,
        **{each.name: [fmean(block[each.name]["seconds"]) for block in blocks] for each in workers},
    }
