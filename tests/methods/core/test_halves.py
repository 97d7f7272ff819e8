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


@pytest.mark.parametrize("place", range(CLIENTS))
def test_a_client_that_masks_nothing_may_leave_out_the_mask(place: int) -> None:
    fedpub = subject.Subject.of("fedpub", {"similarity": "none"})
    server = rounds.halves(fedpub, fedpub.setting(Schedule(rounds=3), CLIENTS))[1]
    whole = {name: torch.ones_like(value[:1]) for name, value in server.method.received.items()}
    name, none = "layers.0.weight", torch.zeros_like(whole["layers.0.weight"])
    sent = [whole] * CLIENTS
    sent[place] = whole | {name: none, f"kept.{name}": none.bool()}
    for client, answer in enumerate(server.answer(1, sent)):
        assert answer[f"kept.{name}"].all() == (client != place)
        assert_agree(answer[name], torch.ones_like(answer[name]))


@pytest.mark.parametrize(("name", "part"), [("fedproto", "prototypes"), ("fedspray", "proxies")])
def test_a_class_that_no_heard_client_holds_stays_as_it_was(name: str, part: str) -> None:
    tested = subject.Subject.of(name, {})
    clients, server = rounds.halves(tested, tested.setting(Schedule(rounds=3), CLIENTS))
    sent = []
    for number, client in enumerate(clients):
        client.train(1, 1)
        sent.append(dict(client.send()))
        for held in ("prototypes", "kept.prototypes", "shares") if number != 1 else ():
            if held in sent[-1]:
                sent[-1][held].flatten(end_dim=-2 if held == "prototypes" else -1)[0] = 0
    first = server.answer(1, sent)[0]
    later = server.answer(2, [sent[0], None, sent[2]])[0]
    assert torch.equal(later[part][0, 0], first[part][0, 0])
    assert later[part][0, 0].any()


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
