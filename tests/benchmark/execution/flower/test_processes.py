"""SuperLink, SuperNodes and apps as processes on loopback; a test waits at most `PATIENCE` for an event."""

from __future__ import annotations

import datetime
import ipaddress
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from fedsub.benchmark.api import results
from fedsub.benchmark.cli.commands import INTERRUPTED, OK, main
from fedsub.benchmark.cli.parser import parse
from fedsub.benchmark.execution.flower import loopback
from fedsub.benchmark.records.record import Record

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedsub-bench[flower]'")

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

PATIENCE = 300.0
"""Seconds; on an idle machine every event comes within 70."""
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
    """Until it happened; fails with a sentence and the ends of the logs."""
    until = time.monotonic() + PATIENCE
    while not happened():
        if time.monotonic() > until:
            ends = "\n".join(f"{log.name}: {log.read_text('utf-8', 'replace')[-1500:]}" for log in logs)
            pytest.fail(f"{what} did not happen within {PATIENCE:g} s\n{ends}")
        time.sleep(0.3)


def test_the_engine_stores_the_record_of_one_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's method by file; the bytes of the channel, with the wire's beside; no process is left."""
    method, seen = tmp_path / "mine.py", {}
    before = {*psutil.Process().children(recursive=True)}
    method.write_text(OWN)

    def traffic(link: str, environment: Mapping[str, str]) -> dict[str, int]:
        for folder in Path(environment["FLWR_HOME"]).parent.glob("client-*"):
            seen[folder.name] = sorted(path.name for path in folder.iterdir())
        return counted(link, environment)

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
        # Names, shapes and scores cost some 15 kB a message.
        assert payload < sent < payload + 2 * theirs.cell.clients * theirs.rounds * 30_000
    assert {*psutil.Process().children(recursive=True)} <= before


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
    every = psutil.Process(process.pid)
    try:
        wait_for("the start of a client's app", lambda: running(every, "clientapp"), log)
        started = every.children(recursive=True)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == INTERRUPTED
        wait_for("the end of all processes", lambda: not any(each.is_running() for each in started), log)
    finally:
        for each in [process, *(each for each in started if each.is_running())]:
            each.kill()


def running(process: psutil.Process, name: str) -> bool:
    """Whether a process below this one has the name in its command."""
    for each in process.children(recursive=True):
        try:
            if any(name in part for part in each.cmdline()):
                return True
        except psutil.Error:
            continue
    return False


class Federation:
    """A SuperLink with TLS that lets in those whose keys are registered."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self.stack = folder, stack
        self.home = folder / "home"
        self.home.mkdir()
        self.port = loopback.free_port()
        self.address = f"127.0.0.1:{self.port}"
        authority = certificates(folder)
        (self.home / "config.toml").write_text(
            f'[superlink.federation]\naddress = "{self.address}"\nroot-certificates = "{authority}"\n'
        )
        self.environment = {
            **os.environ,
            "PATH": loopback._path(),
            "FLWR_HOME": str(self.home),
            "FLWR_TELEMETRY_ENABLED": "0",
        }
        tls = [
            f"--ssl-certfile={folder}/server.pem",
            f"--ssl-keyfile={folder}/server.key",
            f"--ssl-ca-certfile={authority}",
        ]
        self.start(
            "superlink",
            "flower-superlink",
            *tls,
            "--enable-supernode-auth",
            "--disable-runtime-dependency-installation",
            "--port",
            str(self.port),
        )
        loopback._wait_for(self.port, self.log("superlink"))

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        """A process that ends with the test; its log is called `name`."""
        return self.stack.enter_context(loopback.started([*command], self.environment, self.log(name)))

    def ask(self, *command: str) -> str:
        """What a command of Flower's prints."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def node(self, name: str, client: int, key: str | None) -> subprocess.Popen[bytes]:
        """A SuperNode for a client, with the private key of that name."""
        data = self.folder / f"data-{client}" / f"client-{client}.npz"
        config = f'partition-id={client} num-partitions=2 data="{data}"'
        keys = [f"--auth-supernode-private-key={self.folder / key}"] if key else []
        return self.start(
            name,
            "flower-supernode",
            f"--root-certificates={self.folder / 'ca.crt'}",
            *keys,
            "--superlink",
            self.address,
            "--port",
            str(loopback.free_port()),
            "--node-config",
            config,
        )

    def keys(self, name: str) -> None:
        """A private and a public key, the latter registered."""
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


def test_with_keys_a_killed_client_is_missed_and_comes_back_and_a_stranger_stays_out(
    federation: Federation, tmp_path: Path
) -> None:
    """By the command of the loopback, with the name of the SuperLink."""
    app, rounds, killed = tmp_path / "app", 6, 1
    cell = [*GRAPH, "--method", "fedavg", "--clients", "2", "--rounds", str(rounds), *SMALL]
    assert main(parse(["flower", "create", str(app), *cell])) == OK
    for client in range(2):
        (tmp_path / f"data-{client}").mkdir()
        data = f"client-{client}.npz"
        (app / "clients" / data).rename(tmp_path / f"data-{client}" / data)
        federation.keys(f"key-{client}")
    stranger = federation.node("stranger", 0, None)
    nodes = [federation.node(f"node-{client}", client, f"key-{client}") for client in range(2)]
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    federation.environment |= {"FEDSUB_SUPERLINK": "federation", "TMPDIR": str(scratch)}
    command = (sys.executable, "-m", "fedsub.benchmark", "run", *cell, "--engine", "flower")
    run = federation.start("run", *command, "--results", str(tmp_path / "results"))
    logs = [federation.log(name) for name in ("run", "superlink", "node-0", "node-1", "stranger")]

    def seen(name: str, what: str) -> int:
        """How often a SuperNode has received or answered the order to train."""
        return federation.log(name).read_text("utf-8", "replace").count(f"{what}: train message")

    def still(happened: bool) -> bool:
        assert happened or run.poll() is None, logs[0].read_text()
        return happened

    wait_for("the first round", lambda: still(seen("node-1", "Sending") > 0), *logs)
    for each in loopback.family(nodes[killed].pid):
        each.kill()
    answered = seen("node-1", "Sending")
    # The order after next comes when a round without the killed client is over.
    wait_for(
        "a round without the killed client", lambda: still(seen("node-0", "Receiving") >= answered + 2), *logs
    )
    federation.node("node-1-again", killed, "key-1")
    again = federation.log("node-1-again")
    wait_for("its return", lambda: still(seen("node-1-again", "Sending") > 0), *logs, again)
    wait_for("the end of the run", lambda: run.poll() is not None, *logs, again)
    (record,) = results(tmp_path / "results").records
    assert len(record.result.curve["loss"]) == seen("node-0", "Sending") == rounds
    assert answered + seen("node-1-again", "Sending") < rounds
    assert record.extras["engine"] == "flower"
    assert stranger.poll() not in (None, 0)
    assert "SuperNode authentication is enabled" in logs[-1].read_text()
    known = json.loads(federation.ask("flwr", "supernode", "list", "federation", "--format", "json"))
    assert len(known["nodes"]) == 2
