"""Both suites in worker processes of their own, on the same clients."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedsub.benchmark.machine import ROOT
from fedsub.benchmark.studies.peers.grid import SCHEDULE, PeerCell
from fedsub.benchmark.studies.peers.worker import Worker, WorkerError, available_memory, lacks
from fedsub.datasets.errors import UserError

FOLDER = ROOT / ".venv-peers"
"""Where `make peers` installs openfgl-lib."""
VARIABLE, CHECKOUT = "FEDSUB_PEER_PYTHON", "FEDSUB_FEDGB"
IMPORTS = "import openfgl.config, openfgl.flcore.trainer, openfgl.task.node_cls, openfgl.data.simulation"
OURS, PEER = "fedsub.benchmark.studies.peers.our_worker", "fedsub.benchmark.studies.peers.openfgl_worker"


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


def cell_values(cell: PeerCell) -> dict[str, Any]:
    """What every record of a comparison begins with."""
    return {"method": cell.pairing.method, "dataset": cell.dataset, "clients": cell.clients}


@contextmanager
def both_suites(
    cell: PeerCell, python: Path, answer: float, checkout: Path | None = None, **more: Any
) -> Iterator[tuple[Worker, Worker, dict[str, Any]]]:
    """Our worker and the peer's, ready to train the cell, and the peer's `versions` and `counts`.

    The peer lies in `checkout`, or is installed where that is None. `answer`: the seconds after which a
    worker is given up; `more` replaces what both are told. Raises WorkerError.
    """
    with tempfile.TemporaryDirectory(prefix="fedsub-peers-") as folder, ExitStack() as stack:
        task = {
            **cell_values(cell),
            **asdict(cell.pairing),
            "schedule": SCHEDULE,
            "seed": 0,
            "exchange": str(Path(folder) / "clients.npz"),
            "checkout": checkout and str(checkout),
            **more,
        }
        ours = stack.enter_context(Worker("ours", sys.executable, OURS, answer))
        written = ours.ask({**task, "memory": available_memory(0.5)})["counts"]
        peer = stack.enter_context(Worker("peer", python, PEER, answer))
        ready = peer.ask({**task, "memory": available_memory(0.9)})
        if ready["counts"] != written:
            raise WorkerError("peer", f"read {ready['counts']} where {written} was written")
        yield ours, peer, {name: ready[name] for name in ("versions", "counts")}
