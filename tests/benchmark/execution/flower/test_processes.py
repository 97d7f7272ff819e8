"""SuperLink, SuperNodes and apps as processes on loopback; a test waits at most `PATIENCE` for an event."""

import datetime
import ipaddress
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from fedsub.benchmark.api import results
from fedsub.benchmark.cli.commands import INTERRUPTED, OK, main
from fedsub.benchmark.cli.parser import parse
from fedsub.benchmark.execution.flower import loopback
from fedsub.benchmark.records.record import Record
from fedsub.methods.core.steps import draw_attendance

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedsub-bench[flower]'")

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

PATIENCE = 600.0
"""Seconds; on an idle machine every event comes within 30."""
GRAPH = ("--dataset", "community[nodes=120]", "--partition", "metis", "--seeds", "1")
SMALL = ("--set", "hidden=8", "dropout=0", "optimiser=sgd")
OWN = """
from fedsub.methods.core.base import register
from fedsub.methods.fedpub import FedPub

@register("mine", title="Mine", paper="none", options=FedPub.info.options)
class Mine(FedPub):
    pass
"""


def wait_for(what: str, happened: Callable[[], bool], *logs: Path) -> None:
    """Wait until it happened; on timeout fail with a sentence and the ends of the logs."""
    until = time.monotonic() + PATIENCE
    while not happened():
        if time.monotonic() > until:
            ends = "\n".join(f"{log.name}: {log.read_text('utf-8', 'replace')[-1500:]}" for log in logs)
            pytest.fail(f"{what} did not happen within {PATIENCE:g} s\n{ends}")
        time.sleep(0.3)


def test_the_engine_stores_the_record_of_one_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a user's method from a file; checks the bytes of channel and wire, and that no process is left."""
    method, seen = tmp_path / "mine.py", {}
    before, begun = {*psutil.Process().children(recursive=True)}, set[psutil.Process]()
    method.write_text(OWN)

    def traffic(link: str, environment: Mapping[str, str], log: Path) -> dict[str, int]:
        # Asked while all run: orphans are no longer this process's children.
        begun.update({*psutil.Process().children(recursive=True)} - before)
        for folder in Path(environment["FLWR_HOME"]).parent.glob("client-*"):
            seen[folder.name] = sorted(path.name for path in folder.iterdir())
        return counted(link, environment, log)

    counted = loopback._traffic
    monkeypatch.setattr(loopback, "_traffic", traffic)
    records: dict[str, Record] = {}
    for engine in ("in-process", "flower"):
        folder = tmp_path / engine
        command = ["run", *GRAPH, "--method", str(method), "--clients", "2", "--rounds", "2", *SMALL]
        assert main(parse([*command, "--engine", engine, "--results", str(folder)])) == OK
        (records[engine],) = results(folder).records
    ours, theirs = records["in-process"], records["flower"]
    assert theirs.metrics == pytest.approx(ours.metrics, abs=1e-3)
    assert theirs.result.curve["loss"] == pytest.approx(ours.result.curve["loss"], abs=1e-4)
    assert theirs.bytes == ours.bytes
    assert theirs.privacy == ours.privacy
    assert seen == {f"client-{client}": [f"client-{client}.npz", "supernode.log"] for client in range(2)}
    for way, sent in theirs.extras["wire_bytes"].items():
        payload = theirs.rounds * theirs.bytes[way]
        # Names, shapes and scores add some 15 kB per message.
        assert payload < sent < payload + 2 * theirs.cell.clients * theirs.rounds * 30_000
    assert begun
    assert not any(each.is_running() for each in begun)


def test_no_process_is_left_after_ctrl_c(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fedsub.benchmark", "run", *GRAPH, "--method", "fedavg"]
    log = tmp_path / "log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [*command, "--clients", "2", "--engine", "flower", "--results", str(tmp_path / "results")],
            stdout=stream,
            stderr=stream,
            # A test run in the background may be started with the signal ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
    started: list[psutil.Process] = []

    def client_started() -> bool:
        assert process.poll() is None, log.read_text()
        started[:] = psutil.Process(process.pid).children(recursive=True)
        return runs(started, "clientapp")

    try:
        wait_for("the start of a client's app", client_started, log)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == INTERRUPTED
        wait_for("the end of all processes", lambda: not any(each.is_running() for each in started), log)
    finally:
        for each in [process, *(each for each in started if each.is_running())]:
            each.kill()


def runs(processes: list[psutil.Process], name: str) -> bool:
    """Whether one of these processes has the name in its command."""
    for each in processes:
        with suppress(psutil.Error):
            if any(name in part for part in each.cmdline()):
                return True
    return False


class Federation:
    """A SuperLink with TLS that lets in those whose keys are registered."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self.stack = folder, stack
        self.home = folder / "home"
        self.home.mkdir()
        (self.port,) = loopback.free_ports(1)
        self.address = f"127.0.0.1:{self.port}"
        authority = certificates(folder)
        (self.home / "config.toml").write_text(
            f'[superlink.federation]\naddress = "{self.address}"\nroot-certificates = "{authority}"\n'
        )
        own = {"PATH": loopback._path(), "FLWR_HOME": str(self.home)}
        self.environment = {**os.environ, **loopback.ENVIRONMENT, **own}
        tls = [
            f"--ssl-certfile={folder}/server.pem",
            f"--ssl-keyfile={folder}/server.key",
            f"--ssl-ca-certfile={authority}",
        ]
        command = ("flower-superlink", *tls, "--enable-supernode-auth", "--port", str(self.port))
        self.start("superlink", *command, "--disable-runtime-dependency-installation")
        loopback._wait_for(self.port, self.log("superlink"))

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        """A process that ends with the test; its log is called `name`."""
        return self.stack.enter_context(loopback.started([*command], self.environment, self.log(name)))

    def ask(self, *command: str) -> str:
        """Run a command of Flower and return its output."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def node(self, name: str, client: int, key: str | None, *command: str) -> subprocess.Popen[bytes]:
        """A SuperNode for a client, with the private key of that name, started by `command`."""
        data = self.folder / f"data-{client}" / f"client-{client}.npz"
        config = f'partition-id={client} num-partitions=2 data="{data}"'
        keys = [f"--auth-supernode-private-key={self.folder / key}"] if key else []
        node = [*(command or ["flower-supernode"]), f"--root-certificates={self.folder / 'ca.crt'}", *keys]
        node += ["--superlink", self.address, "--port", str(loopback.free_ports(1)[0])]
        return self.start(name, *node, "--node-config", config)

    def keys(self, name: str) -> None:
        """Make a private and a public key and register the latter."""
        private = ec.generate_private_key(ec.SECP384R1())
        kept = private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        )
        told = private.public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
        (self.folder / name).write_bytes(kept)
        (self.folder / f"{name}.pub").write_bytes(told)
        self.ask("flwr", "supernode", "register", str(self.folder / f"{name}.pub"), "federation")


def certificates(folder: Path) -> Path:
    """Write ca.crt, server.pem and server.key for 127.0.0.1; returns the first."""
    authority, server = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    names = [x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]) for name in ("ca", "localhost")]
    today = datetime.datetime.now(datetime.UTC)
    signed = []
    for name, key in zip(names, (authority, server), strict=True):
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(names[0])
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(today - datetime.timedelta(days=1))
            .not_valid_after(today + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=key is authority, path_length=None), critical=True)
        )
        if key is server:
            local = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
            builder = builder.add_extension(x509.SubjectAlternativeName(local), critical=False)
        signed.append(builder.sign(authority, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    (folder / "ca.crt").write_bytes(signed[0])
    (folder / "server.pem").write_bytes(signed[1])
    kept = server.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "server.key").write_bytes(kept)
    return folder / "ca.crt"


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    with ExitStack() as stack:
        yield Federation(tmp_path, stack)


HASTY = """
from flwr.supercore import heartbeat
from flwr.supernode import fleet_http_connection
from flwr.supernode.cli import flower_supernode

heartbeat.HEARTBEAT_DEFAULT_INTERVAL = fleet_http_connection.HEARTBEAT_DEFAULT_INTERVAL = 10
flower_supernode()
"""
"""A SuperNode that counts as lost after 20 s without a heartbeat (Flower's minimum) instead of 60 s."""
WAITING = """
import time
from pathlib import Path

from fedsub.methods.core.base import register
from fedsub.methods.fedavg import FedAvg

@register("waiting", title="Waiting", paper="none")
class Waiting(FedAvg):
    def train_round(self):
        while self.round_number == 2 and self.federation.source.name == "client-1":
            time.sleep(0.1)
        while self.round_number == 3 and not Path({gate!r}).exists():
            time.sleep(0.1)
        return super().train_round()
"""
"""Client 1 trains in its second round until it is killed; the third waits for a file."""


def test_with_keys_a_killed_client_is_missed_and_comes_back_and_a_stranger_stays_out(
    federation: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uses the loopback's command with the name of the SuperLink. Client 1 misses rounds 2 and 3."""
    app, gate, method = tmp_path / "app", tmp_path / "gate", tmp_path / "waiting.py"
    method.write_text(WAITING.format(gate=str(gate)))
    cell = [*GRAPH, "--method", str(method), "--clients", "2", "--rounds", "4", *SMALL]
    assert main(parse(["flower", "create", str(app), *cell])) == OK
    for client in range(2):
        (tmp_path / f"data-{client}").mkdir()
        data = f"client-{client}.npz"
        (app / "clients" / data).rename(tmp_path / f"data-{client}" / data)
        federation.keys(f"key-{client}")
    stranger = federation.node("stranger", 0, None)
    federation.node("node-0", 0, "key-0")
    killed = federation.node("node-1", 1, "key-1", sys.executable, "-c", HASTY)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    federation.environment |= {"FEDSUB_SUPERLINK": "federation", "TMPDIR": str(scratch)}
    command = (sys.executable, "-m", "fedsub.benchmark", "run", *cell, "--engine", "flower")
    run = federation.start("run", *command, "--results", str(tmp_path / "results"))
    logs = [federation.log(name) for name in ("run", "superlink", "node-0", "node-1", "stranger")]

    def seen(name: str, what: str) -> int:
        """Return how often a SuperNode's log contains this."""
        assert run.poll() is None, logs[0].read_text()
        return federation.log(name).read_text("utf-8", "replace").count(what)

    wait_for("the second round", lambda: seen("node-1", "Receiving: train message") == 2, *logs)
    for each in loopback.family(killed.pid):
        each.kill()
    wait_for("a round without client 1", lambda: seen("node-0", "Receiving: train message") == 3, *logs)
    federation.node("node-1-again", 1, "key-1")
    logs.append(federation.log("node-1-again"))
    wait_for("its return", lambda: seen("node-1-again", "SuperNode ID") == 1, *logs)
    gate.touch()
    wait_for("the end of the run", lambda: run.poll() is not None, *logs)
    (record,) = results(tmp_path / "results").records
    whole = draw_attendance(replace(record.cell.schedule, participation=1 - 1e-9), 2, 0)
    whole[1:3, 1] = 0
    monkeypatch.setattr("fedsub.methods.core.base.draw_attendance", lambda *arguments: whole)
    here = tmp_path / "here"
    partial = [*cell, "participation=0.999999999", "--engine", "in-process", "--results", str(here)]
    assert main(parse(["run", *partial])) == OK
    (expected,) = results(here).records
    ours, theirs = record.result.curve, expected.result.curve
    # In between the server has no loss of the lost client.
    assert (ours["loss"][0], ours["loss"][3]) == pytest.approx(
        (theirs["loss"][0], theirs["loss"][3]), abs=1e-4
    )
    assert ours["test"] == pytest.approx(theirs["test"], abs=1e-3)
    assert record.bytes["up"] == expected.bytes["up"]
    assert record.extras["engine"] == "flower"
    wait_for("the stranger's end", lambda: stranger.poll() not in (None, 0), *logs)
    assert "SuperNode authentication is enabled" in federation.log("stranger").read_text()
    known = json.loads(federation.ask("flwr", "supernode", "list", "federation", "--format", "json"))
    assert len(known["nodes"]) == 2
