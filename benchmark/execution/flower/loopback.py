"""Runs of a cell through Flower's SuperLink and SuperNodes, each client a process of its own.

These are started on this machine, or belong to a running federation. In that case FEDSUB_SUPERLINK holds the
name of its SuperLink in `$FLWR_HOME/config.toml`, and this machine is the SuperLink's.
"""

import ctypes
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from fedsub.benchmark.execution.flower.create import PATIENCE, create
from fedsub.benchmark.spec.cell import Cell
from fedsub.datasets.errors import UserError
from fedsub.datasets.federation import Federation
from fedsub.methods.core.training import Outcome

STARTING = 120.0
"""Maximum seconds until the SuperLink listens."""
ENDING = 10.0
"""Seconds that processes have to end before they are killed."""
LINK = "loopback"
Process = subprocess.Popen[bytes]
Nodes = dict[Path, Process]
"""A SuperNode's log → its process."""
_LIBC = ctypes.CDLL(None) if psutil.LINUX else None
_PR_SET_PDEATHSIG = 1
ENVIRONMENT = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1"}
"""Flower's settings: no telemetry, and a message's process starts within a tenth of a second."""


def run(cell: Cell, federation: Federation) -> Outcome:
    """Run a cell with processes for clients and server, which all end with the run; return its outcome.

    `extras` also has `engine`, and in `wire_bytes` `up` and `down`: the bytes of all serialised messages, as
    counted by Flower. Raises UserError for a cell that cannot run so, without Flower, and if the run fails.
    """
    if shutil.which("flower-superlink", path=_path()) is None:
        raise UserError("Flower is not installed: install the extra with pip install -e '.[flower]'")
    with tempfile.TemporaryDirectory(prefix="fedsub-flower-") as scratch, ExitStack() as stack:
        folder = Path(scratch)
        app, target, log = folder / "app", folder / "outcome.json", folder / "run.log"
        create(cell, federation, app)
        environment = {**os.environ, **ENVIRONMENT, "PATH": _path(), "OMP_NUM_THREADS": "1"}
        link, nodes = environment.get("FEDSUB_SUPERLINK", ""), Nodes()
        if not link:
            link, environment["FLWR_HOME"] = LINK, str(folder / "home")
            nodes = _start(app, cell.clients, environment, stack)
        command = ["flwr", "run", str(app), link, "--stream", "--run-config", f'outcome="{target}"']
        running = stack.enter_context(started(command, environment, log))
        found = _outcome(target, log, running, PATIENCE * (cell.schedule.rounds + 2), nodes)
        found["extras"] |= {"engine": "flower", "wire_bytes": _traffic(link, environment, log)}
        return Outcome(**found)


def _start(app: Path, clients: int, environment: Mapping[str, str], stack: ExitStack) -> Nodes:
    """Start the SuperLink and, each in a folder with only its client's data, the SuperNodes; return these."""
    home, folder, log = Path(environment["FLWR_HOME"]), app.parent, app.parent / "superlink.log"
    (port, *others), nodes = free_ports(1 + clients), Nodes()
    home.mkdir()
    address = f"127.0.0.1:{port}"
    (home / "config.toml").write_text(f'[superlink.{LINK}]\naddress = "{address}"\ninsecure = true\n')
    command = ["flower-superlink", "--insecure", "--disable-runtime-dependency-installation"]
    stack.enter_context(started([*command, "--port", str(port)], environment, log))
    _wait_for(port, log)
    for client, own_port in enumerate(others):
        own = folder / f"client-{client}"
        own.mkdir()
        data = shutil.move(app / "clients" / f"client-{client}.npz", own)
        config = f'partition-id={client} num-partitions={clients} data="{data}" repeatable=true'
        command = ["flower-supernode", "--insecure", "--superlink", address, "--port", str(own_port)]
        command, log = [*command, "--node-config", config], own / "supernode.log"
        nodes[log] = stack.enter_context(started(command, environment, log))
    return nodes


@contextmanager
def started(command: list[str], environment: Mapping[str, str], log: Path) -> Iterator[Process]:
    """Run a command during the block; at its end, end the command and every process that it started."""
    with log.open("wb") as stream:
        # In a session of its own, so that Ctrl-C reaches only this process.
        own: dict[str, Any] = {"env": environment, "start_new_session": True, "preexec_fn": _end_with_parent}
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, **own)
    try:
        yield process
    finally:
        every = family(process.pid)
        for stop in (psutil.Process.terminate, psutil.Process.kill):
            for each in every:
                with suppress(psutil.NoSuchProcess):
                    stop(each)
            _, every = psutil.wait_procs(every, ENDING)
        process.wait()


def _end_with_parent() -> None:
    """On Linux, have this process ended when the one that started it is killed."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))


def family(leader: int) -> list[psutil.Process]:
    """Return the descendants of a process group's leader and the group's members, which may outlive it."""
    found: list[psutil.Process] = []
    with suppress(psutil.NoSuchProcess):
        found += psutil.Process(leader).children(recursive=True)
    for each in psutil.process_iter():
        with suppress(ProcessLookupError):
            if os.getpgid(each.pid) == leader:
                found.append(each)
    return [*dict.fromkeys(found)]


def free_ports(count: int) -> list[int]:
    """Return different ports that are free now."""
    with ExitStack() as stack:
        # All are held until the last is found, so that none is found twice.
        held = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(each.getsockname()[1]) for each in held]


def _path() -> str:
    """Return the search path for Flower's commands: this environment first."""
    return os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))


def _wait_for(port: int, log: Path) -> None:
    until = time.monotonic() + STARTING
    while time.monotonic() < until:
        with socket.socket() as caller:
            if caller.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise UserError(f"Flower's SuperLink did not start within {STARTING:g} s: {_tail(log)}")


def _outcome(target: Path, log: Path, running: Process, patience: float, nodes: Nodes) -> dict[str, Any]:
    until = time.monotonic() + patience
    while time.monotonic() < until:
        # Asked before the file is read, which is written before the command ends.
        has_ended = running.poll() is not None
        if target.exists() and (text := target.read_text("utf-8")).endswith("}"):
            found: dict[str, Any] = json.loads(text)
            if "error" in found:
                raise UserError(found["error"])
            return found
        if has_ended or "Traceback" in log.read_text("utf-8", "replace"):
            time.sleep(1)
            raise UserError(f"the server failed: {_tail(log)}")
        for said, node in nodes.items():
            # A SuperNode that ends after it joined, and so told its ID, costs the run only its part.
            if node.poll() is not None and "SuperNode ID" not in said.read_text("utf-8", "replace"):
                raise UserError(f"a SuperNode did not start: {_tail(said)}")
        time.sleep(0.2)
    raise UserError(f"the federation gave no result within {patience:g} s: {_tail(log)}")


def _traffic(link: str, environment: Mapping[str, str], log: Path) -> dict[str, int]:
    """Return the bytes between the SuperLink and all SuperNodes, as counted by Flower, in the run whose start
    the log tells: a SuperLink may have other runs."""
    # The streamed log of the server follows Flower's own line.
    number, *_ = re.findall(r"started run (\d+)", log.read_text("utf-8", "replace"))
    command = ["flwr", "list", link, "--run-id", number, "--format", "json"]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    traffic = json.loads(said)["runs"][0]["network-traffic"]
    return {"up": traffic["inbound-bytes"], "down": traffic["outbound-bytes"]}


def _tail(log: Path) -> str:
    """Return the text in the frame that Flower draws around its errors, or the last line of a process."""
    lines = log.read_text("utf-8", "replace").strip().splitlines() or ["it wrote nothing"]
    return " ".join(line.strip("│ ") for line in lines if line.startswith("│")) or lines[-1]
