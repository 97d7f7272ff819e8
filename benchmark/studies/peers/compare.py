"""Timing of both suites in worker processes on the same clients, in alternation: A B A B …"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from fedsub.benchmark.machine import ROOT
from fedsub.benchmark.studies.measurements import Measurements
from fedsub.benchmark.studies.peers.grid import SCHEDULE, PeerCell
from fedsub.benchmark.studies.worker import Worker, WorkerError, available_memory, lacks
from fedsub.datasets.errors import UserError

FOLDER = ROOT / ".venv-peers"
"""Where `make peers` installs openfgl-lib."""
VARIABLE = "FEDSUB_PEER_PYTHON"
IMPORTS = "import openfgl.config, openfgl.flcore.trainer, openfgl.task.node_cls, openfgl.data.simulation"
OURS, PEER = "fedsub.benchmark.studies.peers.our_worker", "fedsub.benchmark.studies.peers.openfgl_worker"
SLOW = 30.0
"""Seconds of a peer's round above which one warm-up round is enough."""


@dataclass(frozen=True)
class Limits:
    """Time limits of a comparison."""

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
            "or name an interpreter with --python"
        )
    return python


def timings(
    results: Path, cells: Sequence[PeerCell], python: Path, limits: Limits, rerun: bool
) -> Iterator[dict[str, Any]]:
    """The records of the comparisons that this machine lacks, as they are made; of all with `rerun`."""
    kept = Measurements(results, "peers")
    for number, cell in enumerate(cells, start=1):
        if rerun or kept.lacks(cell.key):
            print(f"{number}/{len(cells)}: {cell.key}", file=sys.stderr)
            yield kept.add(cell.key, compare(cell, python, limits))


def compare(cell: PeerCell, python: Path, limits: Limits) -> dict[str, Any]:
    """The record of one comparison: `status` is ok, or says which worker failed, then `error` says how.

    `phases` holds, under `round`, the mean seconds of a round in every block of either worker.
    """
    values: dict[str, Any] = {
        "method": cell.pairing.method,
        "dataset": cell.dataset,
        "clients": cell.clients,
        "phases": {},
    }
    try:
        with tempfile.TemporaryDirectory(prefix="fedsub-peers-") as folder:
            task = {
                **values,
                **asdict(cell.pairing),
                "schedule": SCHEDULE,
                "seed": 0,
                "exchange": str(Path(folder) / "clients.npz"),
            }
            with (
                Worker("ours", sys.executable, OURS, limits.answer) as ours,
                Worker("peer", python, PEER, limits.answer) as peer,
            ):
                written = ours.ask({**task, "memory": available_memory(0.5)})["counts"]
                ready = peer.ask({**task, "memory": available_memory(0.9)})
                if ready["counts"] != written:
                    raise WorkerError("peer", f"it read {ready['counts']}, but {written} was written")
                values |= {name: ready[name] for name in ("versions", "counts")}
                values["phases"]["round"] = _interleave((ours, peer), limits)
    except WorkerError as error:
        return {**values, "status": f"{error.worker} failed", "error": error.reason}
    return {**values, "status": "ok"}


def _interleave(workers: tuple[Worker, Worker], limits: Limits) -> dict[str, Any]:
    """Warm both up, then time blocks in alternation: each worker's mean seconds of a round in every block."""

    def once(rounds: int) -> dict[str, list[float]]:
        return {each.name: each.ask({"rounds": rounds})["seconds"] for each in workers}

    warm = once(1)
    if warm["peer"][-1] < SLOW:
        # Ours is built, and either compiles, in the first command: a second warm-up tells what a round takes.
        warm = once(2)
    slowest = max(seconds[-1] for seconds in warm.values())
    rounds = max(1, min(limits.most_rounds, int(limits.block / max(slowest, 1e-9))))
    blocks = [once(rounds) for _ in range(limits.pairs)]
    return {
        "rounds": rounds,
        **{each.name: [fmean(block[each.name]) for block in blocks] for each in workers},
    }
