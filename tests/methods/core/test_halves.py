"""A server without data that loses messages of clients."""

from dataclasses import replace

import pytest
import torch

from fedsub.datasets.errors import UserError
from fedsub.methods.core import registry
from fedsub.methods.core.halves import ServerHalf, placeholders
from fedsub.methods.core.schedule import Schedule
from fedsub.methods.core.setting import make_setting
from fedsub.methods.stacked.architecture import Architecture
from tests.methods.federations import community_federation
from tests.methods.rounding import assert_agree

CLIENTS = 3


@pytest.fixture
def server() -> ServerHalf:
    """FedAvg's server."""
    federation = community_federation(CLIENTS)
    held = placeholders(CLIENTS, federation.width, federation.classes)
    setting = make_setting(federation, Architecture(hidden=(16,)), Schedule(rounds=3))
    task = type(setting.task)(held)
    apart = replace(setting, federation=held, task=task, scoring=task)
    counts = federation.count(federation.train).float()
    return ServerHalf(registry.create("fedavg", {}, apart), counts / counts.sum())


@pytest.mark.parametrize("number", [1, 2])
def test_an_unheard_client_weighs_nothing(server: ServerHalf, number: int) -> None:
    sent = {name: torch.ones_like(value[:1]) for name, value in server.method.parameters.items()}
    for each in range(1, number):
        server.begin(each)
        server.answer(each, [sent] * CLIENTS)
    server.begin(number)
    for value in server.answer(number, [sent, None, sent])[0].values():
        assert_agree(value, torch.ones_like(value))


def test_a_lost_message_is_refused_by_a_method_that_needs_all(
    server: ServerHalf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.method, "info", replace(server.method.info, needs_everyone="it adds all up"))
    sent = {name: torch.ones_like(value[:1]) for name, value in server.method.parameters.items()}
    with pytest.raises(UserError, match=r"client 1 did not answer in round 1.*it adds all up"):
        server.answer(1, [sent, None, sent])


def test_nobody_heard_is_refused(server: ServerHalf) -> None:
    with pytest.raises(UserError, match="no client answered in round 1"):
        server.answer(1, [None] * CLIENTS)
