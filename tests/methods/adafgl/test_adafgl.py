"""AdaFGL against a plain loop over clients and pairs of nodes, and where it is FedAvg."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as functional

from fedsub.datasets.errors import UserError
from fedsub.methods.adafgl import AdaFGL
from fedsub.methods.adafgl.homophily import halves, homophily
from fedsub.methods.core import registry
from fedsub.methods.core.base import Schedule
from fedsub.methods.core.tasks import NodeClassification
from fedsub.methods.core.training import end_round, start_round
from fedsub.methods.core.two_models import PREFIX
from tests.methods.adafgl.first_layers import first_layer
from tests.methods.federations import community_federation, small_federation
from tests.methods.loops import Clients, assert_equal, leaves, mean, numbers, optimiser_of
from tests.methods.oracle import forward
from tests.methods.rounding import agree, assert_agree

SCHEDULE = Schedule(rounds=4, local_epochs=2, learning_rate=0.1, weight_decay=1e-3, optimiser="sgd")
SMALL = {"width": 5, "epochs": 2}


def normalised(adjacency):
    looped = adjacency + torch.eye(len(adjacency))
    scale = looped.sum(1) ** -0.5
    return torch.diag(scale) @ looped @ torch.diag(scale)


def cosines(z):
    p = z.softmax(1)
    found = functional.cosine_similarity(p.unsqueeze(0), p.unsqueeze(1), dim=2)
    return found * (1 - torch.eye(len(z)))


def score(part, seeds, others, classes):
    """HCS of one client; `seeds` and `others` are its own node numbers."""
    start = torch.full((len(part["labels"]), classes), 1 / classes)
    for v in seeds:
        start[v] = functional.one_hot(part["labels"][v], classes).float()
    spread = start
    for _ in range(10):
        spread = 0.5 * normalised(part["adjacency"]) @ spread + 0.5 * start
        for v in seeds:
            spread[v] += start[v]
    right = [int(spread[v].argmax()) == int(part["labels"][v]) for v in others]
    return sum(right) / max(len(right), 1)


def drawn_halves(federation, parts, generator):
    """Seeds and other training nodes of every client, by their numbers in the client."""
    rows = federation.train.nonzero().squeeze(1)
    first = torch.cumsum(federation.sizes, 0) - federation.sizes
    drawn: list[list[int]] = [[] for _ in parts]
    for place in torch.randperm(len(rows), generator=generator).tolist():
        k = int(federation.client[rows[place]])
        drawn[k].append(int(rows[place] - first[k]))
    return [(nodes[: len(nodes) // 2], nodes[len(nodes) // 2 :]) for nodes in drawn]


def prelu(h, slope):
    return torch.maximum(h, torch.zeros(())) + slope * torch.minimum(h, torch.zeros(()))


def network(x, model, net, layers, slope):
    for index in range(layers):
        first = first_layer(model[f"{PREFIX}.first.weight"], net)
        weight = model[f"{PREFIX}.{net}.{index}.weight"] if index else first
        x = x @ weight + model[f"{PREFIX}.{net}.{index}.bias"]
        if index < layers - 1:
            x = prelu(x, model[f"{PREFIX}.slope.{slope}"])
    return x


def outputs(part, model, prior, alpha, beta):
    """z, z₁, z₂ and z₃ of one client."""
    alike = (cosines(prior) > 0.999).float()
    convolution = normalised(alpha * part["adjacency"] + (1 - alpha) * alike)
    hops = [part["features"]]
    for _ in range(3):
        hops.append(convolution @ hops[-1])
    smoothed = torch.cat(hops, 1)
    z = network(smoothed, model, "homophilous", 2, "homophilous")
    z1 = network(part["features"], model, "features", 3, "plain")
    z2 = network(smoothed, model, "smoothed", 3, "plain")
    message = network(smoothed, model, "messages", 3, "messages")
    r = beta * alike + (1 - beta) * cosines(message)
    mu, top = r.mean(), r.max()
    r = torch.where(r > mu, (r - mu) / (top - mu), -r / mu) + torch.eye(len(r))
    slope = model[f"{PREFIX}.slope.messages"]
    signal = (prelu(r, slope) @ message).softmax(1) - (prelu(-r, slope) @ message).softmax(1)
    return z, z1, z2, (signal + message) / 2


def client_loss(part, found, prior, homophilous, heterophilous):
    z, *others = found

    def entropy(head):
        return functional.cross_entropy(head[part["train"]], part["labels"][part["train"]])

    loss = torch.zeros(())
    if homophilous:
        loss = loss + entropy(z) + functional.mse_loss(z, prior)
    if heterophilous:
        loss = loss + sum(entropy(head) for head in others)
    return loss


CASES = [
    ("gcn", {}),
    ("sgc", {"alpha": 0.5, "beta": 0.0}),
    ("graphsage", {"combine": "threshold", "threshold": 0.75}),
    ("mlp", {"federated": 0.75}),
]


@pytest.mark.parametrize(("backbone", "given"), CASES)
def test_it_equals_a_plain_loop(backbone, given):
    clients = Clients(SCHEDULE, backbone, federation=community_federation(nodes=90))
    method, _ = clients.run("adafgl", **SMALL, **given)
    fresh = clients.create("adafgl", SMALL | given | {"federated": 1.0})
    fresh.build()
    start, weights = clients.start("adafgl", **SMALL, **given)
    shared = [name for name in start if not name.startswith(PREFIX)]
    models = [leaves({name: start[name] for name in shared}) for _ in clients.parts]
    rounds = 3 if "federated" in given else 2
    for _ in range(rounds):
        for part, model in zip(clients.parts, models, strict=True):
            optimiser = optimiser_of(model, SCHEDULE)
            for _ in range(SCHEDULE.local_epochs):
                optimiser.zero_grad()
                clients.loss(part, model).backward()
                optimiser.step()
        average = mean(models, weights)
        for model in models:
            for name, value in average.items():
                model[name].data.copy_(value)
    drawn = drawn_halves(clients.federation, clients.parts, fresh.generator)
    alone, predictions, scores = [], [], []
    for part, (seeds, others) in zip(clients.parts, drawn, strict=True):
        prior = forward(part, average, backbone).softmax(1)
        hcs = score(part, seeds, others, clients.federation.classes)
        scores.append(hcs)
        if given.get("combine") == "threshold":
            hcs = float(hcs >= given["threshold"])
        own = leaves({name: value for name, value in start.items() if name not in shared})
        optimiser = optimiser_of(own, SCHEDULE)
        alpha, beta = given.get("alpha", 0.05), given.get("beta", 0.2)
        for _ in range((SCHEDULE.rounds - rounds) * SMALL["epochs"]):
            # As in the stack, a part that nobody predicts with has a loss of zero, and so weights that decay.
            for value in own.values():
                value.grad = torch.zeros_like(value)
            found = outputs(part, own, prior, alpha, beta)
            client_loss(part, found, prior, hcs > 0, hcs < 1).backward()
            optimiser.step()
        z, *heads = (head.detach() for head in outputs(part, own, prior, alpha, beta))
        likely = hcs * (z.softmax(1) + prior.softmax(1)) / 2
        likely = likely + (1 - hcs) * sum(head.softmax(1) for head in heads) / 3
        predictions.append(likely)
        alone.append(average | {name: value.detach() for name, value in own.items()})
    torch.testing.assert_close(method.homophily, torch.tensor(scores))
    if given.get("combine") == "threshold":
        assert 0 < sum(s >= given["threshold"] for s in scores) < len(scores)
    else:
        assert all(0 < s < 1 for s in scores)
    assert_equal(method.parameters, alone)
    torch.testing.assert_close(method.predict().exp(), torch.cat(predictions), atol=1e-5, rtol=1e-5)


def test_training_nodes_hear_in_training_what_they_hear_in_evaluation():
    clients = Clients(SCHEDULE, federation=community_federation(nodes=90))
    method, _ = clients.run("adafgl", **SMALL)
    heads = []
    for dropout in (method.dropout, None):
        method.logits(dropout)
        heads.append(method.heads["messages"].detach())
    trained = clients.federation.train
    torch.testing.assert_close(heads[0][trained], heads[1][trained])
    assert not agree(heads[0][~trained], heads[1][~trained])


def test_the_first_step_is_fedavgs():
    schedule = replace(SCHEDULE, weighting="nodes", optimiser="adam")
    clients = Clients(schedule, dropout=0.5)
    plain = clients.run("fedavg")[1]
    outcome = clients.run("adafgl", **SMALL)[1]
    assert_agree(outcome.curve["loss"][:2], plain.curve["loss"][:2])


def test_in_the_second_step_clients_are_alone():
    clients = Clients(SCHEDULE, federation=community_federation())
    found = clients.create("adafgl", SMALL)
    spoilt = clients.create("adafgl", SMALL)
    for method in (found, spoilt):
        assert isinstance(method, AdaFGL)
        method.build()
        for number in (1, 2):
            start_round(method, number)
            end_round(method)
        start_round(method, 3)
    with torch.no_grad():
        for value in spoilt.parameters.values():
            value[1] += 1.0
    for method in (found, spoilt):
        end_round(method)
        start_round(method, 4)
        end_round(method)
    for name, value in found.parameters.items():
        assert torch.equal(value[[0, 2]], spoilt.parameters[name][[0, 2]])
    assert any(not torch.equal(v[1], spoilt.parameters[n][1]) for n, v in found.parameters.items())


@pytest.mark.parametrize("seed", range(3))
def test_halves_part_every_clients_training_nodes(seed):
    federation = small_federation(clients=4, seed=seed)
    task = NodeClassification(federation)
    seeds, others = halves(task, torch.Generator().manual_seed(seed))
    assert sorted(torch.cat([seeds, others]).tolist()) == list(range(len(task.train)))
    count = torch.bincount(task.client[task.train[seeds]], minlength=4)
    assert torch.equal(count, task.train_count // 2)


def test_homophily_is_full_where_neighbours_agree_and_none_without_training_nodes():
    federation = community_federation()
    first = federation.client == 0
    agreed = replace(federation, labels=federation.client.clone(), train=federation.train & ~first)
    found = homophily(
        agreed, NodeClassification(agreed), torch.Generator().manual_seed(0), torch.device("cpu")
    )
    assert found[0] == 0
    assert (found[1:] > 0.8).all()


def test_models_travel_in_the_first_step_alone():
    clients = Clients(SCHEDULE)
    size = 3 * 4 * numbers(clients.start()[0])
    assert clients.run("adafgl", **SMALL)[1].bytes == {"up": size / 2, "down": size / 2, "once": 0}
    # A number for each client and round, and the chosen model once more.
    best = clients.run("adafgl", **SMALL, extractor="best")[1].bytes
    assert best == {"up": size / 2 + 3 * 4 / 2, "down": size / 2, "once": size}


@pytest.mark.parametrize("metric", ["", "minority_accuracy", "roc_auc"])
def test_the_extractor_kept_is_the_most_accurate_on_validation(metric):
    schedule = replace(SCHEDULE, rounds=12, evaluate="received", learning_rate=1.5, weighting="nodes")
    schedule = replace(schedule, selection_metric=metric)
    clients = Clients(schedule, federation=community_federation())
    method = clients.create("adafgl", SMALL | {"extractor": "best"})
    assert isinstance(method, AdaFGL)
    method.build()
    scores, models = [], []
    for number in range(1, method.federated_rounds + 1):
        start_round(method, number)
        end_round(method)
        federation, right = clients.federation, method.predict().argmax(dim=1) == clients.federation.labels
        own = [federation.validation & (federation.client == k) for k in range(federation.clients)]
        per_client = torch.stack([right[rows].double().mean() for rows in own])
        scores.append(float((per_client * federation.sizes).sum() / federation.sizes.sum()))
        models.append(method.received)
    best = scores.index(max(scores))
    assert best < len(scores) - 1
    start_round(method, method.federated_rounds + 1)
    for name, value in models[best].items():
        assert torch.equal(method.parameters[name][:1], value)


def test_without_validation_nodes_none_is_the_most_accurate():
    federation = community_federation()
    federation = replace(federation, validation=torch.zeros_like(federation.validation))
    schedule = replace(SCHEDULE, selection="last")
    with pytest.raises(UserError, match="no client has one"):
        Clients(schedule, federation=federation).create("adafgl", SMALL | {"extractor": "best"}).build()


@pytest.mark.parametrize("combine", ["mixture", "threshold"])
def test_it_learns_with_dropout_and_a_normalised_input(combine):
    schedule = replace(SCHEDULE, rounds=20, optimiser="adam", learning_rate=0.01)
    clients = Clients(schedule, dropout=0.5, federation=community_federation())
    clients.architecture = replace(clients.architecture, input_norm=True)
    outcome = clients.run("adafgl", combine=combine)[1]
    assert outcome.curve["loss"][-1] < outcome.curve["loss"][10]
    assert outcome.metrics["accuracy"] > 0.5
    assert 0 < outcome.extras["homophily"] <= 1


@pytest.mark.parametrize("bad", [{"federated": 0.0}, {"alpha": 1.5}, {"epochs": 0}, {"threshold": -0.1}])
def test_options_that_cannot_be_are_refused(bad):
    with pytest.raises(UserError, match="adafgl's"):
        registry.make_options("adafgl", bad)
