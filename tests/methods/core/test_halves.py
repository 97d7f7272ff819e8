"""A server without data that loses messages of clients."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedsub.datasets.errors import UserError
from fedsub.datasets.federation import federate
from fedsub.datasets.partition import Partition
from fedsub.datasets.registry import load
from fedsub.datasets.splits import make_split
from fedsub.methods.checks import rounds, subject
from fedsub.methods.core.halves import ServerHalf
from fedsub.methods.core.schedule import Schedule
from tests.methods.rounding import assert_agree
from tests.methods.variants import APART, APART_OPTIONS, choices

CLIENTS = 3


@pytest.fixture
def server() -> ServerHalf:
    """FedAvg's server."""
    fedavg = subject.Subject.of("fedavg", {})
    return rounds.halves(fedavg, fedavg.setting(Schedule(rounds=3), CLIENTS))[1]


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


CASES = [
    (name, {**APART_OPTIONS.get(name, {}), option: value})
    # AdaFGL's clients draw nodes.
    for name in sorted({*APART} - {"adafgl"})
    for option, value in choices(name)
]


@pytest.mark.parametrize(("name", "options"), CASES)
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
