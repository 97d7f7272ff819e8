"""Both suites in worker processes of their own, their rounds timed interleaved: A B A B …"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmark.environment import ROOT
from benchmark.peers.grid import SCHEDULE, PeerCell
from benchmark.peers.worker import Worker, WorkerError, available_memory, lacks
from datasets.errors import UserError

SLOW = 30.0
"""Seconds of a peer's round beyond which one round is warm-up enough."""
FOLDER = ROOT / ".venv-peers"
"""Where `make peers` installs openfgl-lib."""
VARIABLE, CHECKOUT = "FEDSUB_PEER_PYTHON", "FEDSUB_FEDGB"
IMPORTS = "import openfgl.config, openfgl.flcore.trainer, openfgl.task.node_cls, openfgl.data.simulation"
OURS, PEER = "benchmark.peers.our_worker", "benchmark.peers.openfgl_worker"


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


def peer_python(given: Path | None) -> Path:
    """The interpreter that has the peer: `given`, else FEDSUB_PEER_PYTHON, else that of `make peers`.

    Raises UserError if it lacks the peer.
    """
    python = given or Path(os.environ.get(VARIABLE) or FOLDER / "bin" / "python")
    if reason := lacks(python, IMPORTS):
        raise UserError(
            f"{python} has no openfgl-lib ({reason}): run make peers, which installs it, "
            "or name an interpreter with --peer-python"
        )
    return python


def peer_checkout(given: Path | None) -> Path | None:
    """The user's checkout of FedGB: `given`, else FEDSUB_FEDGB; None where neither names one.

    Raises UserError if it is none.
    """
    named = given or os.environ.get(CHECKOUT)
    if not named:
        return None
    if not (Path(named) / "fedgb/training/trainer.py").is_file():
        raise UserError(
            f"{named} is no checkout of FedGB: name a clone of https://github.com/SuperYeYu/FedGB with "
            f"--peer-checkout or {CHECKOUT}"
        )
    return Path(named).resolve()


def compare(cell: PeerCell, python: Path, limits: Limits, checkout: Path | None = None) -> dict[str, Any]:
    """The record of one comparison: `status` is ok, or says which worker failed, then `error` says how.

    The peer lies in `checkout`, or is installed where that is None.
    `phases` holds, for each, the mean seconds of a round in every block of either worker, and the test
    accuracy after the last.
    """
    phases: dict[str, Any] = {}
    values = {
        "method": cell.pairing.method,
        "dataset": cell.dataset,
        "clients": cell.clients,
        "phases": phases,
    }
    with tempfile.TemporaryDirectory(prefix="fedsub-peers-") as folder, ExitStack() as stack:
        exchange = str(Path(folder) / "clients.npz")
        task = {**values, **asdict(cell.pairing), "schedule": SCHEDULE, "seed": 0, "exchange": exchange}
        task["checkout"] = checkout and str(checkout)
        try:
            ours = stack.enter_context(Worker("ours", sys.executable, OURS, limits.answer))
            written = ours.ask({**task, "memory": available_memory(0.5)})["counts"]
            peer = stack.enter_context(Worker("peer", python, PEER, limits.answer))
            ready = peer.ask({**task, "memory": available_memory(0.9)})
            values |= {name: ready[name] for name in ("versions", "counts")}
            if ready["counts"] != written:
                raise WorkerError("peer", f"read {ready['counts']} where {written} was written")
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
        "accuracy": {name: told.get("accuracy") for name, told in blocks[-1].items()},
    }
