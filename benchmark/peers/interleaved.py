"""Both suites in worker processes of their own, their rounds timed interleaved: A B A B …"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from multiprocessing import Pipe
from pathlib import Path
from statistics import fmean
from typing import Any

import psutil

from benchmark.engines import thread_variables
from benchmark.environment import ROOT
from benchmark.peers.grid import SCHEDULE, PeerCell
from datasets.errors import UserError

SLOW = 30.0
"""Seconds of a peer's round beyond which one round is warm-up enough."""
FOLDER = ROOT / ".venv-peers"
"""Where `make peers` installs openfgl-lib."""
VARIABLE = "FEDSUB_PEER_PYTHON"
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
    try:
        done = subprocess.run([python, "-c", IMPORTS], capture_output=True, text=True)
        reason = (done.stderr.strip() or "no message").splitlines()[-1] if done.returncode else ""
    except OSError as error:
        reason = error.strerror or str(error)
    if reason:
        raise UserError(
            f"{python} has no openfgl-lib ({reason}): run make peers, which installs it, "
            "or name an interpreter with --peer-python"
        )
    return python


class WorkerError(Exception):
    """A worker failed: its name, and the reason in one line."""

    def __init__(self, worker: str, reason: str) -> None:
        super().__init__(worker, reason)
        self.worker, self.reason = worker, reason


class Worker:
    """One process with one thread, commanded through a pipe."""

    def __init__(self, name: str, python: Path | str, module: str, seconds: float) -> None:
        self.name = name
        self.seconds = seconds
        self.errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
        self.pipe, theirs = Pipe()
        self.process = subprocess.Popen(
            [str(python), "-m", module, str(theirs.fileno())],
            pass_fds=(theirs.fileno(),),
            stdout=subprocess.DEVNULL,
            stderr=self.errors,
            cwd=ROOT,
            env={**os.environ, **thread_variables(1), "DGLBACKEND": "pytorch"},
        )
        # With its copy open here the end of the process would not be seen.
        theirs.close()

    def ask(self, command: dict[str, Any]) -> dict[str, Any]:
        """Send a command and wait for the answer. Raises WorkerError."""
        try:
            self.pipe.send(command)
            late = {"error": f"no answer within {self.seconds:.0f} s"}
            answer: dict[str, Any] = self.pipe.recv() if self.pipe.poll(self.seconds) else late
        except (EOFError, OSError):
            answer = {"error": self._epitaph()}
        if "error" in answer:
            raise WorkerError(self.name, answer["error"])
        return answer

    def _epitaph(self) -> str:
        """Why the process is gone, in one line."""
        code = self.process.wait()
        self.errors.seek(0)
        last = (self.errors.read().strip() or "no message").splitlines()[-1]
        return f"died of signal {-code}" if code < 0 else f"ended with exit code {code}: {last}"

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *error: object) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()
        self.pipe.close()
        self.errors.close()


def compare(cell: PeerCell, python: Path, limits: Limits) -> dict[str, Any]:
    """The record of one comparison: `status` is ok, or says which worker failed, then `error` says how.

    `phases` holds, for each, the mean seconds of a round in every block of either worker.
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
        task = {**asdict(cell.pairing), **values, "schedule": SCHEDULE, "seed": 0, "exchange": exchange}
        try:
            ours = stack.enter_context(Worker("ours", sys.executable, OURS, limits.answer))
            written = ours.ask({**task, "memory": _memory(0.5)})["counts"]
            peer = stack.enter_context(Worker("peer", python, PEER, limits.answer))
            ready = peer.ask({**task, "memory": _memory(0.9)})
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

    def once(rounds: int) -> dict[str, list[float]]:
        return {each.name: each.ask({"phase": phase, "rounds": rounds})["seconds"] for each in workers}

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


def _memory(share: float) -> int:
    return int(share * psutil.virtual_memory().available)
