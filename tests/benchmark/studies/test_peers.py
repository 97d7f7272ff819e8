"""The comparison with openfgl-lib: plan, pipe, interleaving, the file in between; the peer is played."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from fedsub.benchmark.studies.command import main
from fedsub.benchmark.studies.peers import compare as comparing
from fedsub.benchmark.studies.peers.compare import (
    PAIRINGS,
    SCHEDULE,
    Measurements,
    PeerCell,
    Timing,
    compare,
    geometric_mean,
    write_page,
)
from fedsub.benchmark.studies.worker import Worker
from fedsub.methods.core import registry
from tests.benchmark.fakes import wait_until

FAKE = "tests.benchmark.studies.fake_worker"
PAIRS = 3


def cell(behaviour: str) -> PeerCell:
    return PeerCell(replace(PAIRINGS["fedavg"], algorithm=behaviour), "cora", 5)


@pytest.fixture(autouse=True)
def _played_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "OURS", FAKE)
    monkeypatch.setattr(comparing, "PEER", FAKE)
    monkeypatch.setattr(comparing, "BLOCK", 1.0)


@pytest.mark.parametrize("pairing", PAIRINGS.values(), ids=lambda pairing: pairing.method)
def test_our_methods_take_the_peers_options_and_network(pairing: Any) -> None:
    registry.make_options(pairing.method, pairing.options)
    assert pairing.architecture["backbone"] in registry.describe(pairing.method).backbones


def test_blocks_are_interleaved_with_the_same_number_of_rounds(tmp_path: Path) -> None:
    log = tmp_path / "blocks"
    record = compare(cell(f"writes:{log}"), Path(sys.executable), PAIRS)
    assert record["status"] == "ok"
    # Half a second a round: two rounds of warm-up, then two rounds a block.
    warm_up = ["1", "1", "2", "2"]
    assert log.read_text().splitlines() == warm_up + ["2"] * 2 * PAIRS
    assert record["phases"]["round"]["rounds"] == 2
    timing = msgspec.convert({**record, "key": "", "made": {"cpu": "", "machine": ""}}, Timing)
    assert timing.ratios == [1.0] * PAIRS
    low, mean, high = geometric_mean([[1.0, 4.0], [8.0], [4.0]])
    assert low < mean < high
    assert mean == pytest.approx(4.0)


def test_a_peer_that_read_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = Worker.ask

    def lie(self: Worker, command: dict[str, Any]) -> dict[str, Any]:
        answer = ask(self, command)
        return {**answer, "counts": {"nodes": 7}} if self.name == "peer" and "counts" in answer else answer

    monkeypatch.setattr(Worker, "ask", lie)
    record = compare(cell("fine"), Path(sys.executable), PAIRS)
    assert record["status"] == "peer failed"
    assert "read {'nodes': 7}" in record["error"]


def test_our_worker_trains_as_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    task = {
        "dataset": "community[nodes=120,communities=6,features=40]",
        "clients": 3,
        "seed": 0,
        "method": "fedavg",
        "options": {},
        "architecture": {**PAIRINGS["fedavg"].architecture, "hidden": (8,)},
        "schedule": SCHEDULE,
        "exchange": str(tmp_path / "clients.npz"),
        "memory": 10**11,
    }
    module = "fedsub.benchmark.studies.peers.our_worker"
    with Worker("ours", os.path.relpath(sys.executable), module, 120) as worker:
        assert worker.ask(task)["counts"]["train"] > 0
        # Until it answers, its environment may not be readable yet.
        assert not psutil.Process(worker.process.pid).environ()["CUDA_VISIBLE_DEVICES"]
        first = worker.ask({"rounds": 2})
        second = worker.ask({"rounds": 3})
        assert (len(first["seconds"]), len(second["seconds"])) == (2, 3)


def test_a_worker_whose_other_end_is_killed_ends_in_the_middle_of_its_work() -> None:
    code = (
        "import os, signal, sys; from fedsub.benchmark.studies.worker import Worker\n"
        f"worker = Worker('ours', sys.executable, {FAKE!r}, 60)\n"
        "worker.ask({'algorithm': 'sleeps', 'seed': 0, 'memory': 2**34})\n"
        "worker.pipe.send({'rounds': 1})\n"
        "print(worker.process.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    wait_until(lambda: not psutil.pid_exists(int(done.stdout)), 20)


def test_the_peers_environment_needs_nothing_of_ours() -> None:
    """Its worker imports `handover` and `clients`; it has numpy, scipy and torch, but no dgl."""
    code = (
        "import sys, fedsub.benchmark.studies.peers.openfgl_worker; "
        "print([name for name in ('dgl', 'msgspec', 'pandas', 'pyarrow', 'rich') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_machine_measures_what_it_lacks_and_its_page_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fedsub.benchmark.studies.peers.compare.lacks", lambda *asked: "")
    study = ["peers", "--method", "fedavg", "--dataset", "cora", "--clients", "5", "--results", str(tmp_path)]
    assert main([*study, "--dry-run"]) == 0
    assert capsys.readouterr().out == "fedavg cora 5\n"
    assert main([*study, "--python", "/bin/false"]) == 1
    assert main([*study, "--pairs", "1", "--rerun", "--python", sys.executable]) == 0
    kept = Measurements(tmp_path)
    kept.add("gone cora 5", {"method": "gone", "status": "ok"})
    timed = {"round": {"ours": [1.0], "peer": [99.0]}}
    kept.add("fedgb fedavg cora 5", {"method": "fedavg", "status": "ok", "phases": timed})
    assert not kept.lacks("fedavg cora 5")
    assert kept.lacks("fedavg cora 10")
    start = '{"key": "fedavg x 5", "method": "fedavg", "made": {"cpu": "", "machine": ""}, "phases": '
    with (tmp_path / "performance" / "peers.jsonl").open("a") as file:
        for phase in ('{"ours": [0], "peer": [1]}', '{"ours": [1e999]}', '{"ours": ["1"]}', "[]"):
            file.write(f'{start}{{"round": {phase}}}}}\n')
    page = write_page(tmp_path).read_text()
    assert "| FedAvg | least 1.0× |" in page
    assert "gone" not in page
