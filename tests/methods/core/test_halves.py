"""Each client alone with its data and a server with none do what all clients do in one program."""

from dataclasses import replace

import pytest
import torch

from fedsub.datasets.errors import UserError
from fedsub.datasets.federation import Federation, federate
from fedsub.datasets.options import Spec
from fedsub.datasets.partition import partition as divide
from fedsub.datasets.registry import load
from fedsub.datasets.splits import make_split
from fedsub.methods.core import registry
from fedsub.methods.core.base import FederatedMethod
from fedsub.methods.core.halves import ServerHalf, placeholders
from fedsub.methods.core.schedule import Schedule
from fedsub.methods.core.setting import Setting, make_setting
from fedsub.methods.stacked.architecture import Architecture
from tests.methods.rounding import assert_agree

CLIENTS, ROUNDS = 3, 3


@pytest.fixture(scope="module")
def federation() -> Federation:
    dataset = load(Spec("community[nodes=200]"))
    partition = divide(dataset, Spec("metis"), CLIENTS, 0)
    return federate(
        dataset,
        partition,
        make_split(dataset, partition, Spec("ratio[train=0.3,validation=0.3,test=0.4]"), 0),
    )


def setting_of(federation: Federation, name: str) -> Setting:
    backbone = "gcn" if "gcn" in registry.describe(name).backbones else "graphsage"
    network = Architecture(backbone=backbone, hidden=(16,), dropout=0.0)
    return make_setting(federation, network, Schedule(rounds=ROUNDS, optimiser="sgd", learning_rate=0.1), 0)


def make(name: str, setting: Setting) -> FederatedMethod:
    return registry.create(name, {}, setting)


def server_of(name: str, setting: Setting) -> ServerHalf:
    held = placeholders(CLIENTS, setting.federation.width, setting.federation.classes)
    task = type(setting.task)(held)
    apart = replace(setting, federation=held, task=task, scoring=task)
    counts = setting.federation.count(setting.federation.train).float()
    return ServerHalf(make(name, apart), counts / counts.sum())


@pytest.mark.parametrize("number", [1, 2])
def test_an_unheard_client_weighs_nothing(federation: Federation, number: int) -> None:
    server = server_of("fedavg", setting_of(federation, "fedavg"))
    sent = {name: torch.ones_like(value[:1]) for name, value in server.method.parameters.items()}
    for each in range(1, number):
        server.begin(each)
        server.answer(each, [sent] * CLIENTS)
    server.begin(number)
    for value in server.answer(number, [sent, None, sent])[0].values():
        assert_agree(value, torch.ones_like(value))


def test_a_lost_message_is_refused_by_a_method_that_needs_all(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = server_of("fedavg", setting_of(federation, "fedavg"))
    monkeypatch.setattr(server.method, "info", replace(server.method.info, needs_everyone="it adds all up"))
    sent = {name: torch.ones_like(value[:1]) for name, value in server.method.parameters.items()}
    with pytest.raises(UserError, match=r"client 1 was not heard in round 1.*it adds all up"):
        server.answer(1, [sent, None, sent])


def test_nobody_heard_is_refused(federation: Federation) -> None:
    server = server_of("fedavg", setting_of(federation, "fedavg"))
    with pytest.raises(UserError, match="no client answered in round 1"):
        server.answer(1, [None] * CLIENTS)
