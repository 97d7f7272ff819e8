"""FedGTA against a plain loop over clients and nodes, and where it is FedAvg and Local."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedsub.datasets.errors import UserError
from fedsub.methods.core import registry
from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.setting import make_setting
from fedsub.methods.fedgta import FedGTA, mixing_matrix
from fedsub.methods.fedgta.gamlp import misread_scores
from tests.methods.federations import community_federation, small_federation
from tests.methods.loops import Clients, assert_equal, leaves, numbers, optimiser_of
from tests.methods.oracle import forward
from tests.methods.rounding import assert_agree

SCHEDULE = Schedule(rounds=2, local_epochs=2, learning_rate=0.2, weight_decay=1e-3, optimiser="sgd")


def softmax(y: np.ndarray) -> np.ndarray:
    e = np.exp(y - y.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def statistics(part, prediction, options, openfgl):
    """One client's moments and confidence, in numpy."""
    adjacency, train = part["adjacency"].double().numpy(), part["train"].numpy()
    labels = np.eye(prediction.shape[1])[part["labels"].numpy()]
    degree = adjacency.sum(1)
    looped = adjacency if openfgl else adjacency + np.eye(len(adjacency))
    scale = 1 / np.sqrt(np.maximum(looped.sum(1), 1))
    spread_by = scale[:, None] * looped * scale[None, :]
    if openfgl:
        start = np.where(train[:, None], prediction, 0)
    else:
        start = np.where(train[:, None], labels, prediction)
    y = start
    for _ in range(options["steps"]):
        y = options["spread"] * spread_by @ y + (1 - options["spread"]) * start
        if openfgl:
            y = np.clip(y, 0, 1)
        else:
            y[train] += start[train]
    p, q = softmax(y), softmax(y / options["temperature"])
    p[train], q[train] = labels[train], labels[train]
    moments = [(p**j).mean(0) for j in range(1, options["order"] + 1)]
    if options["moments"] == "hybrid":
        moments += [((p - p.mean(0)) ** j).mean(0) for j in range(1, options["order"] + 1)]
    confidence = 0.0
    for v in range(len(p)):
        entropy = sum(x * math.log(x + 1e-8) for x in q[v])
        confidence += degree[v] * (p.shape[1] / math.e + entropy)
    return np.concatenate(moments), confidence


CASES = [
    ("gcn", {"moments": "hybrid", "order": 3, "threshold": 0.6}),
    ("sgc", {"moments": "raw", "order": 4, "threshold": 0.6, "steps": 2, "spread": 0.3}),
    ("graphsage", {"moments": "hybrid", "order": 2, "threshold": 0.7, "propagation": "openfgl"}),
    ("mlp", {"moments": "raw", "order": 2, "threshold": -1.0, "temperature": 3.0}),
]


@pytest.mark.parametrize(("backbone", "given"), CASES)
def test_it_equals_a_plain_loop(backbone, given):
    federation = community_federation()
    clients = Clients(SCHEDULE, backbone, federation=federation)
    method, _ = clients.run("fedgta", **given)
    options = {"steps": 5, "spread": 0.5, "temperature": 20.0} | given
    start, _ = clients.start("fedgta", **given)
    models = [leaves(start) for _ in clients.parts]
    optimisers = [optimiser_of(model, SCHEDULE) for model in models]
    neighbours = []
    for _ in range(SCHEDULE.rounds):
        for part, model, optimiser in zip(clients.parts, models, optimisers, strict=True):
            for _ in range(SCHEDULE.local_epochs):
                optimiser.zero_grad()
                clients.loss(part, model).backward()
                optimiser.step()
        found = []
        for part, model in zip(clients.parts, models, strict=True):
            prediction = forward(part, model, backbone).detach().softmax(1).double().numpy()
            found.append(statistics(part, prediction, options, given.get("propagation") == "openfgl"))
        averages = []
        for i, (mine, _) in enumerate(found):
            near = []
            for j, (theirs, _) in enumerate(found):
                cos = mine @ theirs / np.linalg.norm(mine) / np.linalg.norm(theirs)
                if cos > options["threshold"] or i == j:
                    near.append(j)
            total = sum(found[j][1] for j in near)
            averages.append(
                {
                    n: torch.stack([found[j][1] / total * models[j][n].detach() for j in near]).sum(0)
                    for n in start
                }
            )
            neighbours.append(len(near))
        for model, average in zip(models, averages, strict=True):
            for name, value in average.items():
                model[name].data.copy_(value)
    assert_equal(method.parameters, models)
    if given["threshold"] > 0:
        assert 1 < np.mean(neighbours) < 3, "every client or none is similar: the case tests little"


def test_with_equal_confidences_and_all_similar_it_is_fedavg_with_equal_weights(monkeypatch):
    schedule = replace(SCHEDULE, weighting="uniform", rounds=4)
    statistics_of = FedGTA.statistics
    monkeypatch.setattr(
        FedGTA, "statistics", lambda self, p: (statistics_of(self, p)[0], torch.full((3,), 2.5))
    )
    clients = Clients(schedule, dropout=0.5)
    found, plain = clients.run("fedgta", threshold=-1.0)[0], clients.run("fedavg")[0]
    for name, value in plain.parameters.items():
        torch.testing.assert_close(found.parameters[name], value, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("network", ["backbone", "gamlp"])
def test_with_nobody_similar_it_is_local(network):
    clients = Clients(replace(SCHEDULE, rounds=4), dropout=0.5)
    method, outcome = clients.run("fedgta", threshold=1.0, network=network)
    assert outcome.extras["by_round"]["clients_averaged"] == [1.0] * 4
    if network == "backbone":
        plain, _ = clients.run("local")
        assert_agree(method.parameters, plain.parameters)


def test_members_without_confidence_count_alike():
    moments = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]])
    expected = torch.tensor([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
    torch.testing.assert_close(mixing_matrix(moments, torch.tensor([0.0, 0.0, 3.0]), 0.9), expected)
    weighed = mixing_matrix(moments, torch.tensor([1.0, 3.0, 0.0]), 0.9)
    torch.testing.assert_close(weighed[0], torch.tensor([0.25, 0.75, 0.0]))


@pytest.mark.parametrize(("moments", "order", "kept"), [("hybrid", 6, 12), ("raw", 13, 13)])
def test_models_moments_and_confidences_go_up_and_models_come_down(moments, order, kept):
    clients = Clients(SCHEDULE)
    size = numbers(clients.start()[0])
    outcome = clients.run("fedgta", moments=moments, order=order)[1]
    assert outcome.bytes == {"up": 3 * 4 * (size + kept * 3 + 1), "down": 3 * 4 * size, "once": 0}


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


@pytest.mark.parametrize("bad", [{"order": 0}, {"steps": -1}, {"spread": 1.1}, {"temperature": 0.0}])
def test_options_that_cannot_be_are_refused(bad):
    with pytest.raises(UserError, match="fedgta's"):
        registry.make_options("fedgta", bad)


def test_gamlp_refuses_a_normalised_input():
    setting = make_setting(small_federation(), Architecture(input_norm=True), SCHEDULE)
    method = registry.create("fedgta", {"network": "gamlp"}, setting)
    with pytest.raises(UserError, match="input_norm"):
        method.build()
