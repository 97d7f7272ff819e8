"""A server without data that loses messages of clients."""

import typing
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch

from fedsub.datasets.errors import UserError
from fedsub.datasets.federation import federate
from fedsub.datasets.hints import hints_of
from fedsub.datasets.partition import Partition
from fedsub.datasets.registry import load
from fedsub.datasets.splits import make_split
from fedsub.methods.checks import rounds, subject
from fedsub.methods.core import registry
from fedsub.methods.core.halves import ServerHalf, placeholders
from fedsub.methods.core.schedule import Schedule
from fedsub.methods.core.setting import make_setting
from fedsub.methods.stacked.architecture import Architecture
from tests.methods.federations import community_federation
from tests.methods.rounding import assert_agree
from tests.methods.variants import APART, APART_OPTIONS

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


def choices() -> list[tuple[str, dict[str, Any]]]:
    """Each method whose clients can run apart, with each value of an option that has a list of them, but for
    the default. AdaFGL is left out, since its clients draw nodes."""
    found: list[tuple[str, dict[str, Any]]] = []
    for name in sorted({*APART} - {"adafgl"}):
        kind: Any = registry.describe(name).options
        others = APART_OPTIONS.get(name, {})
        defaults = {each.name: each.default for each in fields(kind)}
        found += [
            (name, {**others, option: value})
            for option, hint in hints_of(kind, tuple(defaults)).items()
            for value in ((False, True) if hint is bool else typing.get_args(hint))
            if isinstance(value, (bool, str)) and value != defaults[option]
        ]
    return found


@pytest.mark.parametrize(("name", "options"), choices())
def test_apart_no_option_needs_what_only_the_simulation_has(
    name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients of three sizes, so that a server that takes them for equal is found."""
    dataset = load("community[nodes=90]")
    parts = Partition("uneven", tuple(np.split(np.random.default_rng(0).permutation(90), [10, 30])))
    parts = replace(parts, nodes=tuple(map(np.sort, parts.nodes)))
    federation = federate(dataset, parts, make_split(dataset, parts, subject.SPLIT, 0))
    monkeypatch.setattr(subject, "communities", lambda clients, nodes: federation)
    tested = subject.Subject.of(name, options)
    try:
        rounds.alone(tested)
    except subject.Skipped:
        assert tested.options.simulation_only()
