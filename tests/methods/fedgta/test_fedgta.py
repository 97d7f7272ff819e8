"""FedGTA's mixing, and GAMLP in both readings."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from fedsub.methods.core import registry
from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.setting import make_setting
from fedsub.methods.fedgta import mixing_matrix
from fedsub.methods.fedgta.gamlp import misread_scores
from tests.methods.federations import small_federation
from tests.methods.loops import Clients

SCHEDULE = Schedule(rounds=2, local_epochs=2, learning_rate=0.2, weight_decay=1e-3, optimiser="sgd")


def test_members_without_confidence_count_alike():
    moments = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]])
    expected = torch.tensor([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
    torch.testing.assert_close(mixing_matrix(moments, torch.tensor([0.0, 0.0, 3.0]), 0.9), expected)
    weighed = mixing_matrix(moments, torch.tensor([1.0, 3.0, 0.0]), 0.9)
    torch.testing.assert_close(weighed[0], torch.tensor([0.25, 0.75, 0.0]))


def network(**options):
    federation = small_federation()
    setting = make_setting(federation, Architecture("gcn", (8, 6), dropout=0.0), SCHEDULE, seed=1)
    method = registry.create("fedgta", {"network": "gamlp", "hops": 2, **options}, setting)
    method.build()
    with torch.no_grad():
        for value in method.parameters.values():
            value.add_(torch.randn(value.shape, generator=torch.Generator().manual_seed(3)))
    return method


def gamlp(part, model, rows, misread):
    """One client's logits at `rows`, by torch's own layers."""
    looped = part["adjacency"] + torch.eye(len(part["adjacency"]))
    scale = looped.sum(1).rsqrt()
    step = scale[:, None] * looped * scale[None, :]
    x = part["features"]
    hops = [h[rows] for h in (x, step @ x, step @ step @ x)]
    scores = []
    for hop in hops:
        joined = torch.cat([*hops, hop], 1)
        scores.append((joined @ model["hops.weight"] + model["hops.bias"]).squeeze(1).sigmoid())
    shares = torch.cat(scores).view(-1, 3) if misread else torch.stack(scores, 1)
    shares = shares.softmax(1)
    h = sum(shares[:, i : i + 1] * hop for i, hop in enumerate(hops))
    for index in range(3):
        h = h @ model[f"layers.{index}.weight"] + model[f"layers.{index}.bias"]
        if index < 2:
            h = torch.nn.functional.prelu(h, model["slope"])
    return h


@pytest.mark.parametrize("hop_weights", ["nodes", "reference"])
def test_gamlp_equals_a_plain_network_in_training_and_in_evaluation(hop_weights):
    method = network(hop_weights=hop_weights)
    clients = Clients(SCHEDULE)
    evaluated, trained = method.logits(None), method.logits(method.dropout)
    for k, part in enumerate(clients.parts):
        model = {name: value[k] for name, value in method.parameters.items()}
        mine = method.federation.client == k
        every = torch.arange(len(part["labels"]))
        misread = hop_weights == "reference"
        torch.testing.assert_close(evaluated[mine], gamlp(part, model, every, misread), atol=1e-4, rtol=1e-5)
        rows = part["train"].nonzero().squeeze(1)
        expected = gamlp(part, model, rows, misread)
        torch.testing.assert_close(trained[mine][rows], expected, atol=1e-4, rtol=1e-5)


def test_misread_hop_scores_are_other_nodes_and_another_network():
    client = torch.tensor([0, 0, 0, 0, 0, 1, 1])
    place = misread_scores(torch.arange(7), client, 4)
    # Client 0 writes n0…n4 for hop 0, then for hop 1, …; its second node reads entries 4 to 7.
    assert [(p // 7, p % 7) for p in place[1].tolist()] == [(0, 4), (1, 0), (1, 1), (1, 2)]
    assert (client[place % 7] == client[:, None]).all()
    plain = network(hop_weights="nodes").logits(None)
    assert not torch.allclose(network(hop_weights="reference").logits(None), plain, atol=1e-3)


def test_gamlp_starts_as_its_authors_and_trains():
    clients = Clients(replace(SCHEDULE, rounds=3))
    start, _ = clients.start("fedgta", network="gamlp")
    bound = math.sqrt(12 / (12 + 8))
    assert bound > float(start["layers.0.weight"].abs().max()) > 0.9 * bound
    assert not start["layers.0.bias"].any()
    _, outcome = clients.run("fedgta", network="gamlp")
    assert outcome.curve["loss"][-1] < outcome.curve["loss"][0]
