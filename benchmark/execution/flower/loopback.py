"""A cell through Flower's SuperLink and SuperNodes on this machine, each client a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from fedsub.benchmark.execution.flower.create import create
from fedsub.benchmark.spec.cell import Cell
from fedsub.datasets.errors import UserError
from fedsub.datasets.federation import Federation

STARTING = 60.0
"""Seconds that the SuperLink is given to listen."""
LINK = "loopback"


def run(cell: Cell, federation: Federation, *, patience: float = 300.0) -> Mapping[str, Any]:
    """The outcome of a cell, by the names of `methods.core.training.Outcome`.

    Raises UserError if Flower is not there, or the run fails. All processes end with the run.
    """
    if shutil.which("flower-superlink", path=_path()) is None:
        raise UserError("Flower is not installed: pip install 'fedsub-bench[flower]'")
    with tempfile.TemporaryDirectory(prefix="fedsub-flower-") as scratch, ExitStack() as stack:
        folder, home = Path(scratch), Path(scratch) / "home"
        app, target = folder / "app", folder / "outcome.json"
        create(cell, federation, app)
        home.mkdir()
        port = free_port()
        address = f"127.0.0.1:{port}"
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "{LINK}"\n\n[superlink.{LINK}]\naddress = "{address}"\ninsecure = true\n'
        )
        environment = {
            **os.environ,
            "PATH": _path(),
            "FLWR_HOME": str(home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "OMP_NUM_THREADS": "1",
        }
        stack.enter_context(
            started(
                [
                    "flower-superlink",
                    "--insecure",
                    "--disable-runtime-dependency-installation",
                    "--port",
                    str(port),
                ],
                environment,
                folder / "superlink.log",
            )
        )
        _wait_for(port, folder / "superlink.log")
        for client in range(cell.clients):
            own = folder / f"client-{client}"
            own.mkdir()
            shutil.move(app / "clients" / f"client-{client}.npz", own)
            config = f'partition-id={client} num-partitions={cell.clients} data="{own}/client-{client}.npz"'
            stack.enter_context(started(supernode(address, config), environment, own / "supernode.log"))
        config = f'outcome="{target}" patience={patience:g}'
        command = ["flwr", "run", str(app), LINK, "--stream", "--run-config", config]
        stack.enter_context(started(command, environment, folder / "run.log"))
        return _outcome(target, folder, patience * (cell.schedule.rounds + 2))


def supernode(address: str, config: str) -> list[str]:
    """The command of a client's SuperNode."""
    command = ["flower-supernode", "--insecure", "--superlink", address, "--port", str(free_port())]
    return [*command, "--node-config", config]


@contextmanager
def started(
    command: list[str], environment: Mapping[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Inside, the command runs, with its processes in a group that is ended at the end."""
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        for number, seconds in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
            try:
                os.killpg(process.pid, number)
                process.wait(seconds)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _path() -> str:
    """Where Flower's commands are looked for: this environment first."""
    return os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))


def _wait_for(port: int, log: Path) -> None:
    until = time.monotonic() + STARTING
    while time.monotonic() < until:
        with socket.socket() as caller:
            if caller.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise UserError(f"Flower's SuperLink did not start within {STARTING:g} s: {_tail(log)}")


def _outcome(target: Path, folder: Path, patience: float) -> Mapping[str, Any]:
    until = time.monotonic() + patience
    while time.monotonic() < until:
        if target.exists() and (text := target.read_text("utf-8")).endswith("}"):
            found: dict[str, Any] = json.loads(text)
            if "error" in found:
                raise UserError(found["error"])
            return found
        log = folder / "run.log"
        if "Traceback" in log.read_text("utf-8", "replace"):
            time.sleep(1)
            raise UserError(f"the server failed: {_tail(log)}")
        time.sleep(0.2)
    raise UserError(f"the federation gave no outcome within {patience:g} s: {_tail(folder / 'run.log')}")


def _tail(log: Path) -> str:
    """The last line that a process wrote."""
    lines = log.read_text("utf-8", "replace").strip().splitlines() or ["it wrote nothing"]
    return lines[-1]
