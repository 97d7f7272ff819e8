"""The comparison with openfgl-lib: plan, pipe, interleaving, the file in between; the peer is played."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import types
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from scipy.sparse import csr_matrix

from fedsub.benchmark.cli.arguments import parse
from fedsub.benchmark.report.performance import ratios
from fedsub.benchmark.studies.peers import both, interleaved, trained
from fedsub.benchmark.studies.peers.both import peer_checkout, peer_python
from fedsub.benchmark.studies.peers.clients import write_clients
from fedsub.benchmark.studies.peers.extensions import random_walks, stand_in_for_product
from fedsub.benchmark.studies.peers.grid import (
    CLIENTS,
    DATASETS,
    FEDGB,
    OPENFGL,
    PAIRINGS,
    SCHEDULE,
    Pairing,
    PeerCell,
    plan,
)
from fedsub.benchmark.studies.peers.interleaved import Limits, compare
from fedsub.benchmark.studies.peers.openfgl_worker import Clients
from fedsub.benchmark.studies.peers.pipe import one_line
from fedsub.benchmark.studies.peers.trained import Training, train
from fedsub.benchmark.studies.peers.worker import Worker
from fedsub.benchmark.studies.performance import parts
from fedsub.datasets.errors import UserError
from fedsub.methods import fedala
from fedsub.methods.core import registry
from tests.methods.federations import small_federation

FAKE = "tests.benchmark.studies.fake_worker"
LIMITS = Limits(pairs=3, block=1.0, most_rounds=4, answer=30)


def cell(behaviour: str) -> PeerCell:
    return PeerCell(replace(PAIRINGS["fedavg"], algorithm=behaviour), "cora", 5)


@pytest.fixture(autouse=True)
def _played_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(both, "OURS", FAKE)
    monkeypatch.setattr(both, "PEER", FAKE)


def test_plan_is_the_whole_grid_and_filters_narrow_it() -> None:
    assert len(list(plan((), (), (), (OPENFGL, FEDGB)))) == len(PAIRINGS) * len(DATASETS) * len(CLIENTS)
    assert {cell.pairing.peer for cell in plan((), (), ())} == {OPENFGL}
    (only,) = plan(["cora"], ["fedpub"], [10])
    assert (only.key, only.pairing.algorithm) == ("fedpub cora 10", "fedpub")


@pytest.mark.parametrize(("datasets", "methods"), [(["coar"], ["fedavg"]), (["cora"], ["fedstruct"])])
def test_plan_refuses_what_the_suites_do_not_share(datasets: list[str], methods: list[str]) -> None:
    with pytest.raises(UserError, match="of the comparison"):
        list(plan(datasets, methods, ()))


def test_only_numbers_of_clients_that_the_page_shows_are_compared() -> None:
    with pytest.raises(UserError, match="with 5, 10, 20, 50, 100 clients, not with 7"):
        list(plan(["cora"], ["fedavg"], (7,)))


@pytest.mark.parametrize("pairing", PAIRINGS.values(), ids=lambda pairing: pairing.key)
def test_our_methods_take_the_peers_options_and_network(pairing: Any) -> None:
    registry.make_options(pairing.method, pairing.options)
    assert pairing.architecture["backbone"] in registry.describe(pairing.method).backbones


def test_fedala_says_the_settings_by_which_fedgb_differs() -> None:
    said = re.findall(r"`(\w+) = ([\d.]+)`", fedala.__doc__ or "")
    named = {**asdict(fedala.FedALAOptions()), **{name: float(value) for name, value in said}}
    assert len(said) == 3
    assert named == {**asdict(fedala.FedALAOptions()), **PAIRINGS["fedgb fedala"].options}


def test_blocks_are_interleaved_with_the_same_number_of_rounds(tmp_path: Path) -> None:
    log = tmp_path / "blocks"
    record = compare(cell(f"writes:{log}"), Path(sys.executable), LIMITS)
    assert record["status"] == "ok"
    # Half a second a round: two rounds of warm-up, then two rounds a block.
    warm_up = ["round 1", "round 1", "round 2", "round 2"]
    assert log.read_text().splitlines() == warm_up + ["round 2"] * 2 * LIMITS.pairs
    assert record["phases"]["round"]["rounds"] == 2
    assert ratios(record) == [1.0] * LIMITS.pairs


def test_slow_workers_get_every_pair_after_one_round_of_warm_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interleaved, "SLOW", 0.4)
    log = tmp_path / "blocks"
    record = compare(cell(f"writes:{log}"), Path(sys.executable), replace(LIMITS, block=0.1))
    assert log.read_text().splitlines() == ["round 1"] * 2 + ["round 1"] * 2 * LIMITS.pairs
    assert len(ratios(record)) == LIMITS.pairs


def test_phases_are_timed_in_their_order() -> None:
    pairing = replace(cell("fine").pairing, phases=("generator", "round"))
    record = compare(replace(cell("fine"), pairing=pairing), Path(sys.executable), LIMITS)
    assert list(record["phases"]) == ["generator", "round"]


@pytest.mark.parametrize(
    ("behaviour", "error"),
    [
        ("fails", "ValueError: not like this"),
        ("dies", "ended with exit code 3: last words"),
        ("sleeps", "no answer within 2 s"),
    ],
)
def test_failures_are_told_in_one_line(behaviour: str, error: str) -> None:
    record = compare(
        cell(behaviour), Path(sys.executable), replace(LIMITS, answer=2.0 if behaviour == "sleeps" else 30)
    )
    assert (record["status"], record["error"]) == ("ours failed", error)


def test_a_peer_that_read_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = Worker.ask

    def lie(self: Worker, command: dict[str, Any]) -> dict[str, Any]:
        answer = ask(self, command)
        return {**answer, "counts": {"nodes": 7}} if self.name == "peer" and "counts" in answer else answer

    monkeypatch.setattr(Worker, "ask", lie)
    record = compare(cell("fine"), Path(sys.executable), LIMITS)
    assert record["status"] == "peer failed"
    assert "read {'nodes': 7}" in record["error"]


def test_our_worker_trains_as_told(tmp_path: Path) -> None:
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
    with Worker("ours", sys.executable, "fedsub.benchmark.studies.peers.our_worker", 120) as worker:
        assert worker.ask(task)["counts"]["train"] > 0
        first = worker.ask({"phase": "round", "rounds": 2})
        second = worker.ask({"phase": "round", "rounds": 3})
        assert (len(first["seconds"]), len(second["seconds"])) == (2, 3)
        assert 0 <= second["accuracy"] <= 1


def test_what_a_worker_leaves_among_temporary_files_goes_with_it() -> None:
    with Worker("fake", sys.executable, FAKE, 120) as worker:
        worker.ask({"algorithm": "litters", "memory": 10**11})
        left = Path(worker.ask({"phase": "round", "rounds": 1})["left"])
        assert left.exists()
    assert not left.exists()


class PlayedData:
    """torch_geometric's Data, as far as it is used here."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


def test_a_folder_that_cannot_be_removed_costs_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*path: Any, **options: Any) -> None:
        raise OSError(errno.ENOTEMPTY, "Directory not empty")

    task = asdict(cell("fine")) | {"algorithm": "fine", "memory": 2**34}
    with Worker("ours", sys.executable, FAKE, 60) as worker:
        answer = worker.ask(task)
        monkeypatch.setattr(os, "rmdir", refuse)
    monkeypatch.undo()
    worker.folder.cleanup()
    assert answer["counts"] == {"nodes": 1}


def test_a_worker_whose_other_end_is_killed_ends_in_the_middle_of_its_work() -> None:
    code = (
        "import os, signal, sys; from benchmark.studies.peers.worker import Worker\n"
        f"worker = Worker('ours', sys.executable, {FAKE!r}, 60)\n"
        "worker.ask({'algorithm': 'sleeps', 'memory': 2**34})\n"
        "worker.pipe.send({'phase': 'round', 'rounds': 1})\n"
        "print(worker.process.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    _, left = psutil.wait_procs(map(psutil.Process, _living(int(done.stdout))), timeout=20)
    for process in left:
        process.kill()
    assert not left


def _living(process: int) -> list[int]:
    return [process] if psutil.pid_exists(process) else []


def test_the_peer_reads_the_clients_that_were_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("torch_geometric.data")
    module.__dict__["Data"] = PlayedData
    monkeypatch.setitem(sys.modules, "torch_geometric.data", module)
    federation = small_federation(clients=4)
    counts = write_clients(federation, tmp_path / "clients.npz")
    clients = Clients(tmp_path / "clients.npz", tmp_path / "peer")
    assert clients.counts == counts
    source, target = federation.graph.edges()
    start = 0
    for number, data in enumerate(clients.local_data):
        size = int(federation.sizes[number])
        rows = slice(start, start + size)
        own = (source >= start) & (source < start + size)
        assert np.array_equal(data.edge_index, torch.stack([source[own], target[own]]) - start)
        assert torch.equal(data.x, federation.features.to_dense()[rows])
        assert torch.equal(data.y, federation.labels[rows])
        split = tmp_path / "peer" / "node_cls" / "default_split"
        for name, mask in (
            ("train", federation.train),
            ("val", federation.validation),
            ("test", federation.test),
        ):
            assert torch.equal(torch.load(split / f"{name}_{number}.pt", weights_only=True), mask[rows])
        start += size


TRAINER = """
class Party:
    phase = 0
    def send_message(self): pass
    def execute(self): pass

class FGLTrainer:
    def __init__(self, args):
        self.args, self.message_pool, self.server = args, {}, Party()
        data = FGLDataset(args)
        self.clients = [Party() for _ in data.local_data]
        self.log = data.processed_dir + "/log"
        args.metrics = ["accuracy", "f1"]
        self.logger = Party()

    def evaluate(self):
        from importlib import import_module
        config = import_module(f"fedgb.training.{self.args.fl_algorithm}_config").config
        seen = self.message_pool["round"], config[config["watched"]], self.server.phase
        print(*seen, len(self.clients), self.args.hid_dim, *self.args.metrics, file=open(self.log, "a"))
        self.logger.add_log({"current_test_accuracy": seen[0] / 4})
"""
CHECKOUT = {
    "fedgb/training/trainer.py": TRAINER,
    "fedgb/training/adafgl_config.py": "config = {'watched': 'num_rounds_vanilla'}",
    "fedgb/training/fedsage_plus_config.py": "config = {'watched': 'gen_rounds'}",
    "fedgb/legacy_config.py": "from argparse import Namespace\nargs = Namespace()",
    "torch_geometric/__init__.py": "",
    "torch_geometric/data.py": "from types import SimpleNamespace as Data",
}


def checkout_task(folder: Path, pairing: Pairing) -> tuple[dict[str, Any], dict[str, int]]:
    """What the peer's worker is told of a stand-in for FedGB, and what was written for it."""
    for name, text in CHECKOUT.items():
        (folder / "checkout" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "checkout" / name).write_text(text)
    counts = write_clients(small_federation(clients=4), folder / "clients.npz")
    task = {
        **asdict(pairing),
        "peer": {**asdict(FEDGB), "packages": ("torch",)},
        "schedule": SCHEDULE,
        "seed": 0,
        "exchange": str(folder / "clients.npz"),
        "checkout": str(peer_checkout(folder / "checkout")),
        "memory": 10**11,
    }
    return task, counts


def test_a_checkout_trains_on_the_clients_that_were_written(tmp_path: Path) -> None:
    task, counts = checkout_task(tmp_path, PAIRINGS["fedgb adafgl"])
    with Worker("peer", sys.executable, "fedsub.benchmark.studies.peers.openfgl_worker", 120) as worker:
        assert worker.ask(task)["counts"] == counts
        answer = worker.ask({"phase": "personal", "rounds": 2})
    assert (len(answer["seconds"]), answer["accuracy"]) == (2, 0.25)
    # Its personal step begins in the first round that is one.
    assert (tmp_path / "log").read_text().splitlines() == ["0 0 0 4 128 accuracy", "1 0 0 4 128 accuracy"]
    assert not list((tmp_path / "checkout").rglob("__pycache__"))


def test_a_checkout_learns_together_until_its_first_personal_round(tmp_path: Path) -> None:
    task, _ = checkout_task(tmp_path, PAIRINGS["fedgb adafgl"])
    with Worker("peer", sys.executable, "fedsub.benchmark.studies.peers.openfgl_worker", 120) as worker:
        worker.ask(task)
        for phase, rounds in (("round", 2), ("personal", 2)):
            worker.ask({"phase": phase, "rounds": rounds})
    seen = [line.split()[:2] for line in (tmp_path / "log").read_text().splitlines()]
    assert seen == [["0", str(10**9)], ["1", str(10**9)], ["2", "2"], ["3", "2"]]


def test_both_suites_are_trained_to_the_end(tmp_path: Path) -> None:
    """The peer is told every phase, ours trains generators in the set-up."""
    log = tmp_path / "told"
    pairing = replace(PAIRINGS["fedsage+"], algorithm=f"writes:{log}")
    asked = Training(PeerCell(pairing, "cora", 5), seed=3)
    record = train(asked, Path(sys.executable))
    assert log.read_text().splitlines() == ["round 50", "generator 7", "round 50"]
    assert (record["status"], record["accuracy"]) == ("ok", {"ours": 0.7, "peer": 0.7})
    assert (asked.key, record["seed"], record["rounds"]) == ("fedsage+ cora 5 seed 3", 3, 50)


def test_a_training_that_fails_says_which_suite() -> None:
    record = train(Training(cell("fails"), 0), Path(sys.executable))
    assert (record["status"], record["error"]) == ("ours failed", "ValueError: not like this")


def test_ours_is_trained_as_the_peer_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """AdaFGL: as many rounds together as the peer's; another seed, other weights."""
    monkeypatch.setattr(both, "OURS", "fedsub.benchmark.studies.peers.our_worker")
    monkeypatch.setattr(both, "PEER", "fedsub.benchmark.studies.peers.our_worker")
    monkeypatch.setitem(trained.PHASES, "adafgl", (("round", 2), ("personal", 2)))
    told: list[dict[str, Any]] = []
    ask = Worker.ask

    def note(self: Worker, command: dict[str, Any]) -> dict[str, Any]:
        told.append(command)
        return {"versions": {}, **ask(self, command)}

    monkeypatch.setattr(Worker, "ask", note)
    pairing = replace(PAIRINGS["adafgl"], architecture={**PAIRINGS["adafgl"].architecture, "hidden": (8,)})
    graph = "community[nodes=120,communities=6,features=40]"
    records = [train(Training(PeerCell(pairing, graph, 3), seed), Path(sys.executable)) for seed in (0, 1)]
    assert [record["status"] for record in records] == ["ok", "ok"]
    assert {command["options"]["federated"] for command in told if "options" in command} == {0.5}
    assert {command["schedule"]["rounds"] for command in told if "schedule" in command} == {4}
    assert records[0]["accuracy"]["ours"] != records[1]["accuracy"]["ours"]


def test_all_pairings_are_trained_seed_by_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDSUB_FEDGB", raising=False)
    found = list(parts.PARTS["trained"](parse(["--performance", "trained", "--method", "moon", "feddc"])))
    assert found[:3] == ["moon cora 5 seed 0", "feddc cora 5 seed 0", "moon cora 5 seed 1"]
    assert len(found) == 2 * trained.SEEDS


def test_a_checkout_trains_generators_until_the_first_round(tmp_path: Path) -> None:
    task, _ = checkout_task(tmp_path, replace(PAIRINGS["fedsage+"], peer=FEDGB))
    with Worker("peer", sys.executable, "fedsub.benchmark.studies.peers.openfgl_worker", 120) as worker:
        worker.ask(task)
        for phase, rounds in (("generator", 2), ("round", 1), ("round", 1)):
            worker.ask({"phase": phase, "rounds": rounds})
    seen = [line.split()[:3] for line in (tmp_path / "log").read_text().splitlines()]
    # The clients mend their graphs where the round is the one that ends the generators'; its server averages.
    endless = str(10**9)
    assert seen == [["0", endless, "0"], ["1", endless, "0"], ["2", "2", "1"], ["3", "2", "1"]]


def test_fedgb_is_planned_where_a_checkout_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ["--peers", "--method", "moon", "--dataset", "cora", "--clients", "5"]
    monkeypatch.delenv("FEDSUB_FEDGB", raising=False)
    monkeypatch.setattr(both, "peer_python", lambda given: Path(sys.executable))
    assert list(parts.PARTS["peers"](parse(asked))) == ["moon cora 5"]
    monkeypatch.setenv("FEDSUB_FEDGB", str(tmp_path))
    with pytest.raises(UserError, match="is no checkout of FedGB"):
        parts.PARTS["peers"](parse(asked))
    trainer = tmp_path / "clone" / "fedgb" / "training" / "trainer.py"
    trainer.parent.mkdir(parents=True)
    trainer.touch()
    found = parts.PARTS["peers"](parse([*asked, "--peer-checkout", str(tmp_path / "clone")]))
    assert list(found) == ["moon cora 5", "fedgb moon cora 5"]
    monkeypatch.setattr(interleaved, "compare", lambda *asked: {"versions": {"torch": "2"}})
    assert list(found["fedgb moon cora 5"]()["versions"]) == ["FedGB", "torch"]


def test_an_interpreter_without_the_peer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no openfgl-lib"):
        peer_python(Path(sys.executable))
    with pytest.raises(UserError, match=r"No such file or directory.*make peers"):
        peer_python(tmp_path / "python")


def test_errors_fit_a_line() -> None:
    assert one_line(ValueError("a\n b")) == "ValueError: a b"
    assert one_line(KeyError()) == "KeyError"


def test_a_product_that_is_compiled_elsewhere_is_scipys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "theirs", module := types.ModuleType("theirs"))
    stand_in_for_product("theirs")
    matrix = np.array([[0, 0.5], [2, 0]])
    product = module.__dict__["csr_sparse_dense_matmul"](csr_matrix(matrix), np.eye(2, dtype=np.float32))
    assert (product.dtype, product.tolist()) == (np.float32, matrix.tolist())


def test_walks_follow_edges_and_turn_as_often_as_node2vec_says() -> None:
    """From 1, reached from 0, the walk returns to 0, goes on to their neighbour 2 or away to 3, as 1/p : 1 :
    1/q; node 4 has no neighbour."""
    matrix = csr_matrix(([1] * 8, ([0, 0, 1, 1, 1, 2, 2, 3], [1, 2, 0, 2, 3, 0, 1, 1])), shape=(5, 5))
    pointer, column = (torch.from_numpy(part).long() for part in (matrix.indptr, matrix.indices))
    torch.manual_seed(0)
    p, q = 4.0, 0.5
    walks = random_walks(pointer, column, torch.tensor([0] * 40_000 + [4]), 3, p, q)
    assert walks.shape == (40_001, 4)
    assert walks[-1].tolist() == [4, 4, 4, 4]
    steps = torch.stack([walks[:-1, :-1], walks[:-1, 1:]], dim=-1).reshape(-1, 2).numpy()
    assert matrix[steps[:, 0], steps[:, 1]].all()
    turned = walks[(walks[:, 0] == 0) & (walks[:, 1] == 1), 2]
    shares = torch.bincount(turned, minlength=4)[[0, 2, 3]] / len(turned)
    weights = torch.tensor([1 / p, 1.0, 1 / q])
    assert torch.allclose(shares, weights / weights.sum(), atol=0.015)


def test_the_peers_environment_needs_nothing_of_ours() -> None:
    """Its worker imports the pipe; numpy and torch it has, dgl and the like not."""
    code = (
        "import sys, benchmark.studies.peers.pipe; "
        "files = [str(getattr(module, '__file__', '')) for module in sys.modules.values()]; "
        "print([file for file in files if 'site-packages' in file])"
    )
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
