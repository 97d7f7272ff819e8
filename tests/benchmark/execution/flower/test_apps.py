"""The apps of clients and server, with messages handed over in this process, do what one program does."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from fedsub.benchmark.cli.commands import OK, main
from fedsub.benchmark.cli.parser import parse
from fedsub.benchmark.execution import runner
from fedsub.benchmark.execution.progress import GridProgress
from fedsub.benchmark.execution.runner import attempt, make_clients
from fedsub.benchmark.execution.setting import ALWAYS_SCORED
from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.custom import NamedFiles, user_objects_of
from fedsub.datasets.errors import UserError
from fedsub.datasets.federation import Federation
from fedsub.datasets.options import Spec
from fedsub.datasets.plugins import user_objects
from fedsub.methods.core import registry
from fedsub.methods.core.base import FederatedMethod
from fedsub.methods.core.steps import draw_attendance
from fedsub.methods.core.training import Outcome, train
from tests.benchmark.fakes import make_cell, write_method
from tests.methods.federations import make_method
from tests.methods.variants import APART, APART_OPTIONS

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedsub-bench[flower]'")

from flwr.app import Array, Context, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from fedsub.benchmark.execution.flower import client as client_side
from fedsub.benchmark.execution.flower import loopback
from fedsub.benchmark.execution.flower.create import create
from fedsub.benchmark.execution.flower.server import server_app

CLIENTS, ROUNDS = 3, 3
OWN_METHOD = """
client_state = ("sent",)
sent = 0

def send(self):
    self.sent = self.sent + 1
    return {name: FACTOR * value for name, value in super().send().items()}
"""
DRAWING = """
def send(self):
    noise = float(np.random.rand())
    return {name: noise * value for name, value in super().send().items()}
"""


def cell_of(method: str, **schedule: Any) -> Cell:
    return make_cell(
        protocol="",
        dataset="community[nodes=120]",
        clients=CLIENTS,
        method=method,
        options=APART_OPTIONS.get(method, {}),
        backbone="gcn" if "gcn" in registry.describe(method).backbones else "graphsage",
        hidden=[8],
        dropout=0.0,
        **{"rounds": ROUNDS, "optimiser": "sgd", "learning_rate": 0.1, "local_epochs": 1, **schedule},
    )


class Loop:
    """Flower's grid in this process; nodes lost in a round do not answer, and return as other nodes."""

    repeatable = True

    def __init__(self, app: Path, cell: Cell, lost: Mapping[int, int] | None = None) -> None:
        """`lost`: round → the client whose message does not arrive although it trained and sent it."""
        self.app = client_side.client_app(app)
        self.folder, self.cell, self.lost = app / "clients", cell, dict(lost or {})
        self.config = tomllib.loads((app / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
        self.nodes = {1000 + client: client for client in range(cell.clients)}
        self.asked: list[tuple[str, int]] = []

    def get_node_ids(self) -> list[int]:
        return [*self.nodes]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        self.pushed = {str(number): message for number, message in enumerate(messages)}
        for number, message in self.pushed.items():
            message.metadata.__dict__["_message_id"] = number
        return [*self.pushed]

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        return [self._reply(self.pushed[each]) for each in sorted(message_ids)]

    def _reply(self, message: Message) -> Message:
        node, kind = message.metadata.dst_node_id, message.metadata.message_type
        client = self.nodes[node]
        self.asked.append((kind, client))
        data = str(self.folder / f"client-{client}.npz")
        known = {"partition-id": client, "data": data, "repeatable": self.repeatable}
        context = Context(1, node, node_config=known, state=RecordDict(), run_config=self.config)
        try:
            reply = self.app(message, context)
        except UserError as error:
            return Message(Error(code=0, reason=str(error)), reply_to=message)
        if kind == "train" and self.lost.get(int(message.content["told"]["round"])) == client:
            del self.nodes[node]
            self.nodes[node + 1000] = client
            return Message(Error(code=0, reason="the node was killed"), reply_to=message)
        return reply


def federated(
    cell: Cell, folder: Path, lost: Mapping[int, int] | None = None
) -> tuple[Outcome, dict[int, FederatedMethod], Loop]:
    """Run a cell through the apps; return the outcome, each client's method at the end, and the loop."""
    if not folder.exists():
        create(cell, make_clients(cell)[2], folder)
    loop, methods = Loop(folder, cell, lost), {}

    class Kept(client_side._Turn):
        def evaluate(self) -> Message:
            methods[int(self.file.name.split(".")[0].removeprefix("client-"))] = self.client.method
            return super().evaluate()

    outcome = folder / "outcome.json"
    config = {**loop.config, "outcome": str(outcome), "patience": 1.0}
    context = Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config=config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client_side, "_Turn", Kept)
        # Flower sets these in the process of an app.
        for part in ("_task_id", "_run_id", "_node_id"):
            patch.setattr(TaskIdentity, part, 1)
        server_app(folder)(loop, context)
    found = json.loads(outcome.read_text())
    if "error" in found:
        raise UserError(found["error"])
    return Outcome(**found), methods, loop


def stacked(cell: Cell, federation: Federation) -> tuple[Outcome, FederatedMethod]:
    """Run the cell in one program; return the outcome and the method."""
    given = (federation, cell.architecture, cell.schedule, cell.seed)
    method = make_method(cell.method, dict(cell.options), *given, metrics=ALWAYS_SCORED[cell.task.name])
    return train(method), method


def assert_same_parameters(methods: Mapping[int, FederatedMethod], whole: FederatedMethod) -> None:
    for part, value in whole.parameters.items():
        own = torch.cat([methods[client].parameters[part].detach() for client in range(CLIENTS)])
        torch.testing.assert_close(own, value.detach().expand_as(own), rtol=0, atol=1e-5)


def both_ways(cell: Cell, folder: Path) -> tuple[Outcome, Outcome]:
    """Run the cell as a federation and as one program, check that both agree, and return both outcomes."""
    found, methods, _ = federated(cell, folder)
    expected, whole = stacked(cell, make_clients(cell)[2])
    assert_same_parameters(methods, whole)
    assert found.bytes == expected.bytes
    assert found.curve["loss"] == pytest.approx(expected.curve["loss"], abs=1e-5)
    return found, expected


@pytest.mark.parametrize("name", APART)
def test_apps_train_as_one_program(name: str, tmp_path: Path) -> None:
    found, expected = both_ways(cell_of(name), tmp_path / "app")
    assert found.metrics == pytest.approx(expected.metrics, abs=1e-6, nan_ok=True)
    assert "macro_f1" in found.metrics


SENT: dict[str, dict[str, Any]] = {
    "clip": {"privacy_clip": 0.05},
    "noise": {"privacy_clip": 0.5, "privacy_noise": 0.1},
    "quantise": {"quantise": 4},
    "top_k": {"top_k": 0.3},
    "all": {"privacy_clip": 0.5, "privacy_noise": 0.1, "quantise": 5, "top_k": 0.3, "error_feedback": True},
}
"""Name → settings of the uplink."""


@pytest.mark.parametrize(
    ("name", "sent"),
    [*(("fedavg", each) for each in SENT), ("ditto", "all"), ("fedper", "all"), ("scaffold", "quantise")],
)
def test_private_and_small_messages_are_those_of_one_program(name: str, sent: str, tmp_path: Path) -> None:
    found, expected = both_ways(cell_of(name, **SENT[sent]), tmp_path / "app")
    assert found.extras == pytest.approx(expected.extras)


def test_a_real_clients_noise_is_known_to_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = cell_of("fedavg", **SENT["noise"])
    monkeypatch.setattr(Loop, "repeatable", False)
    losses = [federated(cell, tmp_path / "app")[0].curve["loss"] for _ in range(2)]
    losses.append(stacked(cell, make_clients(cell)[2])[0].curve["loss"])
    for one, other in combinations(losses, 2):
        assert one[0] == pytest.approx(other[0], abs=1e-5)
        assert one[1:] != pytest.approx(other[1:], abs=1e-6)


@pytest.mark.parametrize(("name", "sent"), [("fedproto", "top_k"), ("scaffold", "clip")])
def test_a_method_that_sends_something_else_is_refused(name: str, sent: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"needs a method that sends .*models.* as FedAvg does"):
        federated(cell_of(name, **SENT[sent]), tmp_path / "app")


@pytest.mark.parametrize(
    ("name", "sent", "number"),
    [
        ("fedavg", "all", 2),
        ("fedavg", "adam", 2),
        *((name, "", 2) for name in ("scaffold", "feddc", "feddyn", "fedgta", "fedproto")),
        *((name, "", 2) for name in ("fedpub", "fedspray")),
        *((name, "", 1) for name in ("feddc", "moon")),
    ],
)
def test_a_client_that_is_killed_is_absent_and_comes_back(
    name: str, sent: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its node dies after training, before its message arrives, and returns as another node with its file."""
    settings = SENT.get(sent) or {"optimiser": sent or "sgd"}
    cell, killed = cell_of(name, participation=1 - 1e-9, **settings), 1
    found, methods, loop = federated(cell, tmp_path / "app", lost={number: killed})
    assert [client for kind, client in loop.asked if kind == "query"] == [0, 1, 2, killed]
    whole = draw_attendance(cell.schedule, CLIENTS, cell.seed)
    whole[number - 1, killed] = 0
    monkeypatch.setattr("fedsub.methods.core.base.draw_attendance", lambda *arguments: whole)
    expected, method = stacked(cell, make_clients(cell)[2])
    assert_same_parameters(methods, method)
    assert found.bytes["up"] == expected.bytes["up"]
    # Nothing tells the scores of a client that has never been heard.
    heard = slice(number == 1, None)
    assert found.curve["test"][heard] == pytest.approx(expected.curve["test"][heard], abs=1e-6)


@pytest.mark.parametrize(
    ("where", "edit"),
    [
        ("scores", {"is_nan": True}),
        ("scores", {"scores": {}}),
        ("scores", {"scores": {"": [0.5, 1.0]}}),
        ("form", {"rows": []}),
        ("form", {"rows": {"head.weight": [[True] * 99]}}),
        ("form", {"shapes": {}}),
        ("head.weight", lambda value: value * np.nan),
        ("head.weight", lambda value: value[:, :1]),
        ("update.places", lambda value: value + 10**6),
    ],
)
def test_a_message_that_makes_no_sense_makes_its_client_absent(
    where: str, edit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = client_side._Turn.train

    def train(turn: client_side._Turn) -> Message:
        reply = whole(turn)
        if turn.asked["round"] == 2 and turn.client.method.federation.nodes == least:
            sent, told = reply.content["sent"], reply.content["told"]
            if where in told:
                told[where] = json.dumps({**json.loads(told[where]), **edit})
            else:
                sent[where] = Array(edit(sent[where].numpy()))
        return reply

    cell = cell_of("fedavg", participation=1 - 1e-9, top_k=0.3 if where == "update.places" else 1.0)
    least = int(make_clients(cell)[2].sizes.min())
    monkeypatch.setattr(client_side._Turn, "train", train)
    found, methods, _ = federated(cell, tmp_path / "app")
    assert "round 2 of 3: 2 of 3 clients" in capsys.readouterr().out
    assert np.isfinite(found.curve["loss"]).all()
    assert all(value.isfinite().all() for value in methods[0].parameters.values())


def test_a_users_method_goes_with_its_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, app = tmp_path / "mine", tmp_path / "app"
    own.mkdir()
    write_method(own / "halved.py", OWN_METHOD, "from helper import FACTOR")
    (own / "helper.py").write_text("FACTOR = 0.5")
    cell = NamedFiles().named(replace(cell_of("fedavg"), method=str(own / "halved.py")))
    with monkeypatch.context() as patch, user_objects(user_objects_of(cell)):
        patch.syspath_prepend(own)
        create(cell, make_clients(cell)[2], app)
        expected, _ = stacked(cell, make_clients(cell)[2])
    del sys.modules["helper"]
    own.rename(tmp_path / "elsewhere")
    found, _, _ = federated(cell, app)
    assert found.curve["loss"] == pytest.approx(expected.curve["loss"], abs=1e-5)


def test_parties_that_write_their_own_files_train_together(tmp_path: Path) -> None:
    """No machine holds two of their graphs; the app is made from another graph with as many clients."""
    app = tmp_path / "app"
    create(cell_of("fedavg"), make_clients(cell_of("fedavg"))[2], app)
    for client in range(CLIENTS):
        dataset = Spec(f"community[nodes={100 + client},seed={client}]")
        own = replace(cell_of("fedavg"), dataset=dataset, clients=1)
        create(own, make_clients(own)[2], tmp_path / f"party-{client}")
        file = tmp_path / f"party-{client}" / "clients" / "client-0.npz"
        file.replace(app / "clients" / f"client-{client}.npz")
    found, methods, _ = federated(cell_of("fedavg"), app)
    assert [methods[client].federation.nodes for client in range(CLIENTS)] == [100, 101, 102]
    assert found.curve["loss"][-1] < found.curve["loss"][0]


def test_clients_that_fail_are_told_of(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no client answered: the node was killed"):
        federated(replace(cell_of("fedavg"), clients=1), tmp_path / "app", lost={1: 0})


def test_files_that_do_not_fit_together_are_named(tmp_path: Path) -> None:
    cell, app = cell_of("fedavg"), tmp_path / "app"
    create(cell, make_clients(cell)[2], app)
    other = replace(cell, dataset=Spec("community[nodes=120,features=9]"), clients=1)
    create(other, make_clients(other)[2], tmp_path / "other")
    (tmp_path / "other" / "clients" / "client-0.npz").replace(app / "clients" / "client-1.npz")
    with pytest.raises(UserError, match=r"differ in their number of features \(.*client 1: 9"):
        federated(cell, app)
    (app / "clients" / "client-1.npz").write_text("")
    with pytest.raises(UserError, match=r"clients \[1\] did not join .*; a SuperNode reports .*client-1.npz"):
        federated(cell, app)


@pytest.mark.parametrize("moment", ["local", "received"])
@pytest.mark.parametrize("attendance", [{}, {"participation": 0.4}, {"leavers": "1@2+0@1"}])
@pytest.mark.parametrize("name", ["fedavg", "fedsgd"])
def test_evaluations_are_those_of_one_program(
    name: str, attendance: dict[str, Any], moment: str, tmp_path: Path
) -> None:
    """They cover all clients, also absent ones, in the rounds that the schedule names."""
    cell = cell_of(name, rounds=5, evaluate_every=2, evaluate=moment, **attendance)
    found, _, _ = federated(cell, tmp_path / "app")
    expected, _ = stacked(cell, make_clients(cell)[2])
    assert found.metrics == pytest.approx(expected.metrics, abs=1e-6, nan_ok=True)
    assert found.test_by_client == pytest.approx(expected.test_by_client, abs=1e-6)
    assert found.curve["round"] == expected.curve["round"] == [2, 4, 5]
    assert found.curve["validation"] == pytest.approx(expected.curve["validation"], abs=1e-6)
    assert found.bytes == expected.bytes
    assert found.spent["bytes"] == expected.spent["bytes"]
    assert len(found.spent["seconds"]) == 3
    assert not list((tmp_path / "app" / "clients").glob("*.state"))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"schedule": {"learning_rate": 1e30}}, "diverged: its predictions contain NaN in round 1"),
        ({"schedule": {"learning_rate": 1e30, "evaluate": "received"}}, "contain NaN in round 1"),
        ({"split": Spec("ratio[train=0.5,validation=0]")}, "has no validation items"),
    ],
)
def test_what_one_program_refuses_is_refused(changed: dict[str, Any], said: str, tmp_path: Path) -> None:
    settings = dict(changed)
    cell = replace(cell_of("fedavg", **settings.pop("schedule", {})), **settings)
    with pytest.raises(UserError, match=said):
        federated(cell, tmp_path / "app")
    with pytest.raises(UserError, match=said):
        stacked(cell, make_clients(cell)[2])


def test_a_method_that_draws_from_the_global_generators_repeats(tmp_path: Path) -> None:
    method, losses = tmp_path / "drawing.py", []
    write_method(method, DRAWING, "import numpy as np")
    cell = NamedFiles().named(replace(cell_of("fedavg"), method=str(method)))
    with user_objects(user_objects_of(cell)):
        for number in range(2):
            np.random.seed(number)  # noqa: NPY002
            found, _, _ = federated(cell, tmp_path / "app")
            losses.append(found.curve["loss"])
        expected, _ = stacked(cell, make_clients(cell)[2])
    assert losses[0] == losses[1]
    assert losses[0] == pytest.approx(expected.curve["loss"], abs=1e-5)


def test_a_servers_figures_may_be_tensors(tmp_path: Path) -> None:
    noted = "self.extras['held'] = self.weights\n    return super().aggregate(sent)"
    method = write_method(tmp_path / "noted.py", f"def aggregate(self, sent):\n    {noted}")
    cell = NamedFiles().named(replace(cell_of("fedavg"), method=str(method)))
    with user_objects(user_objects_of(cell)):
        found, _, _ = federated(cell, tmp_path / "app")
        expected, _ = stacked(cell, make_clients(cell)[2])
    assert found.extras["held"] == pytest.approx(expected.extras["held"].tolist())


def test_a_record_names_natural_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell, names = cell_of("fedavg"), ("north", "south", "west")
    dataset, partition, federation = make_clients(cell)
    clients = dataset, replace(partition, names=names), federation
    monkeypatch.setattr(runner, "make_clients", lambda cell: clients)
    record = attempt(cell, apart=lambda cell, _: federated(cell, tmp_path / "app")[0])
    assert record.extras["client_names"] == [*names]


def test_a_file_that_changed_since_the_plan_is_refused(tmp_path: Path) -> None:
    cell = NamedFiles().named(replace(cell_of("fedavg"), method=str(write_method(tmp_path / "mine.py"))))
    write_method(tmp_path / "mine.py", OWN_METHOD, "FACTOR = 0.5")
    record = attempt(cell, apart=lambda cell, federation: pytest.fail("it ran"))
    assert "mine.py has changed since the cells were planned" in str(record.error)


def test_a_federation_runs_under_a_progress_bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GridProgress, "is_seen", True)
    monkeypatch.setattr(loopback, "run", lambda cell, held: stacked(cell, held)[0])
    command = ("--dataset", "community[nodes=120]", "--method", "fedavg", "--clients", "2", "--rounds", "2")
    given = ["run", *command, "--seeds", "1", "--engine", "flower", "--results", str(tmp_path)]
    assert main(parse(given)) == OK


@pytest.mark.parametrize(
    "shown", ["the SuperLink is gone", "╭─ Error ─╮\n│ the SuperLink │\n│ is gone │\n╰──╯"]
)
def test_a_run_that_ends_without_an_outcome_is_given_up(shown: str, tmp_path: Path) -> None:
    log, other, target = tmp_path / "log", tmp_path / "other", tmp_path / "outcome.json"
    with (
        loopback.started([sys.executable, "-c", f"print({shown!r})"], dict(os.environ), log) as ended,
        loopback.started(["sleep", "600"], dict(os.environ), other) as running,
    ):
        with pytest.raises(UserError, match="the server failed: the SuperLink is gone"):
            loopback._outcome(target, log, ended, 600, {})
        with pytest.raises(UserError, match="a SuperNode did not start: the SuperLink is gone"):
            loopback._outcome(target, other, running, 600, {log: ended})
        log.write_text("SuperNode ID: 7")
        with pytest.raises(UserError, match="gave no result"):
            loopback._outcome(target, other, running, 0.1, {log: ended})


def test_free_ports_differ() -> None:
    assert len({*loopback.free_ports(300)}) == 300


STARTING = """
import os, sys, time
from pathlib import Path
from fedsub.benchmark.execution.flower import loopback

with loopback.started(["sleep", "600"], dict(os.environ), Path(sys.argv[1])) as process:
    print(process.pid, flush=True)
    time.sleep(600)
"""


def test_nothing_is_left_of_a_command_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STARTING, str(tmp_path / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        started = psutil.Process(int(process.stdout.readline()))
        process.kill()
    started.wait(60)
