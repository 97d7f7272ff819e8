"""FedTAD against a plain loop over clients, classes and pairs of nodes, and where it is FedAvg."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as functional

from fedsub.datasets.errors import UserError
from fedsub.methods.core import registry
from fedsub.methods.core.base import Schedule
from fedsub.methods.core.training import start_round
from fedsub.methods.fedtad import FedTAD
from fedsub.methods.fedtad.pseudo import balanced_labels, nearest_graph
from fedsub.methods.fedtad.reliability import class_reliability, shares
from tests.methods.federations import community_federation, small_federation
from tests.methods.loops import Clients, assert_equal, leaves, mean, numbers, optimiser_of
from tests.methods.oracle import forward

SCHEDULE = Schedule(rounds=2, local_epochs=2, learning_rate=0.2, weight_decay=1e-3, optimiser="sgd")
SMALL = {"nodes": 14, "noise": 4, "neighbours": 3, "server_rounds": 2, "model_steps": 2}


def walks_back(part, v):
    """Chances to be back at v after 1…5 steps."""
    adjacency = part["adjacency"].double()
    step = adjacency / adjacency.sum(1, keepdim=True).clamp(min=1)
    return torch.stack([torch.linalg.matrix_power(step, t)[v, v] for t in range(1, 6)]).float()


def reliabilities(parts, classes, by):
    rows = []
    for part in parts:
        row = [0.0] * classes
        for v in part["train"].nonzero().squeeze(1).tolist():
            embedding = {}
            near = part["adjacency"][v].nonzero().squeeze(1).tolist()
            for u in [v, *near]:
                place = walks_back(part, u) if by == "walk" else torch.zeros(1)
                embedding[u] = torch.cat([part["features"][u], place])
            total = 1.0
            for u in near:
                total += float(functional.cosine_similarity(embedding[v], embedding[u], dim=0))
            row[int(part["labels"][v])] += 1.0 if by == "count" else total / (len(near) + 1)
        rows.append(row)
    return torch.tensor(rows)


@pytest.mark.parametrize("by", ["walk", "features", "count"])
@pytest.mark.parametrize("sparse", [True, False])
def test_reliability_equals_a_loop_over_nodes_and_neighbours(by, sparse):
    federation = small_federation(nodes=45, sparse=sparse)
    clients = Clients(SCHEDULE, federation=federation)
    expected = reliabilities(clients.parts, 3, by)
    torch.testing.assert_close(class_reliability(federation, 3, by), expected, atol=1e-5, rtol=1e-5)
    if by == "count":
        assert expected.sum() == federation.train.sum()


def test_shares_sum_to_one_where_anyone_trains():
    found = torch.tensor([[1.0, 0.0, 0.0], [3.0, 0.0, 2.0]])
    expected = torch.tensor([[0.25, 0.0, 0.0], [0.75, 0.0, 1.0]])
    torch.testing.assert_close(shares(found, "clients"), expected)
    torch.testing.assert_close(shares(found, "classes"), torch.tensor([[1.0, 0, 0], [0.6, 0, 0.4]]))


def test_labels_are_balanced_and_the_last_class_has_the_rest():
    assert torch.bincount(balanced_labels(100, 7)).tolist() == [14] * 6 + [16]
    assert torch.bincount(balanced_labels(7, 7)).tolist() == [1] * 7


def test_nodes_are_joined_to_their_nearest_and_not_to_themselves():
    x = torch.tensor([[1.0, 0.0], [2.0, 0.1], [0.0, 1.0], [-0.1, 3.0], [-1.0, 0.0]])
    source, target = nearest_graph(x, 2, "auto").edges()
    pairs = set(zip(source.tolist(), target.tolist(), strict=True))
    # 4 is nearest to 3, which is nearest to 2.
    assert pairs == {(0, 1), (1, 0), (2, 3), (3, 2), (3, 4), (4, 3)}


def pseudo_graph(maker, noise, y, neighbours):
    """Features and adjacency, node by node."""
    h = torch.cat([torch.stack([maker["embedding"][int(c)] for c in y]), noise], 1)
    for index in range(4):
        h = h @ maker[f"layers.{index}.weight"] + maker[f"layers.{index}.bias"]
        if index < 3:
            h = h.tanh()
    adjacency = torch.zeros(len(y), len(y))
    for i in range(len(y)):
        near = functional.cosine_similarity(h[i : i + 1], h, dim=1).detach()
        for j in near.argsort(descending=True)[:neighbours].tolist():
            if i != j:
                adjacency[i, j] = adjacency[j, i] = 1
    return {"features": h, "adjacency": adjacency}


def class_sum(weights, losses, y):
    """Σ_c r_c mean over class c."""
    return sum(weights[c] * losses[y == c].mean() for c in range(len(weights)) if (y == c).any())


def gaps(teacher, student, kind):
    if kind == "l1":
        return (student - teacher).abs().mean(1)
    p = teacher.softmax(1)
    return functional.kl_div(student.log_softmax(1), p, reduction="none").sum(1)


DEFAULTS = [("divergence", "kl"), ("semantic", 1.0), ("diversity", 1.0)]
CASES = [
    ("gcn", {}),
    ("sgc", {"divergence": "l1", "reliability": "count"}),
    ("graphsage", {"shared_over": "classes", "semantic": 0.1, "diversity": 3.0}),
    ("mlp", {"divergence": "l1", "reliability": "features"}),
]


@pytest.mark.parametrize(("backbone", "given"), CASES)
def test_it_equals_a_plain_loop(backbone, given):
    clients = Clients(SCHEDULE, backbone, federation=community_federation())
    method, _ = clients.run("fedtad", **SMALL, **given)
    fresh = clients.create("fedtad", SMALL | given)
    assert isinstance(fresh, FedTAD)
    fresh.build()
    start, weights = clients.start("fedtad", **SMALL, **given)
    maker = leaves({name: value[:] for name, value in fresh.maker.items()})
    models = [leaves(start) for _ in clients.parts]
    optimisers = [optimiser_of(model, SCHEDULE) for model in models]
    classes = clients.federation.classes
    r = reliabilities(clients.parts, classes, given.get("reliability", "walk"))
    r = r / r.sum(1 if given.get("shared_over") == "classes" else 0, keepdim=True)
    y = torch.cat([torch.full((14 // classes,), c) for c in range(classes)])
    y = torch.cat([y, torch.full((14 - len(y),), classes - 1)])
    server = leaves(start)
    kind, semantic, diversity = (given.get(k, d) for k, d in DEFAULTS)
    teach = torch.optim.Adam(list(server.values()), lr=1e-3, weight_decay=1e-3)
    make = torch.optim.Adam(list(maker.values()), lr=1e-3, weight_decay=1e-3)
    for _ in range(SCHEDULE.rounds):
        for part, model, optimiser in zip(clients.parts, models, optimisers, strict=True):
            for _ in range(SCHEDULE.local_epochs):
                optimiser.zero_grad()
                clients.loss(part, model).backward()
                optimiser.step()
        for name, value in mean(models, weights).items():
            server[name].data.copy_(value)
        frozen = [{name: value.detach() for name, value in model.items()} for model in models]
        for _ in range(SMALL["server_rounds"]):
            noise = torch.randn(14, 4, generator=fresh.generator)
            make.zero_grad()
            graph = pseudo_graph(maker, noise, y, SMALL["neighbours"])
            student = forward(graph, {name: value.detach() for name, value in server.items()}, backbone)
            exponent = torch.zeros(())
            for i in range(14):
                for j in range(14):
                    apart = (noise[i] - noise[j]).square().mean()
                    unlike = (graph["features"][i] - graph["features"][j]).abs().mean()
                    exponent = exponent - apart * unlike / 14**2
            loss = torch.zeros(())
            for k, model in enumerate(frozen):
                z = forward(graph, model, backbone)
                loss = loss + semantic * class_sum(r[k], functional.cross_entropy(z, y, reduction="none"), y)
                loss = loss - class_sum(r[k], gaps(z.detach(), student, kind), y)
                loss = loss + diversity * torch.exp(exponent)
            loss.backward()
            make.step()
            with torch.no_grad():
                graph = pseudo_graph(maker, noise, y, SMALL["neighbours"])
            for _ in range(SMALL["model_steps"]):
                teach.zero_grad()
                student = forward(graph, server, backbone)
                losses = [
                    class_sum(r[k], gaps(forward(graph, model, backbone), student, kind), y)
                    for k, model in enumerate(frozen)
                ]
                sum(losses).backward()
                teach.step()
        for model in models:
            for name, value in server.items():
                model[name].data.copy_(value.detach())
    # Adam divides small gradients by their own size, and rounding with them.
    assert_equal(method.parameters, models, 2e-5)


def test_the_generators_steps_lower_its_loss_and_the_models_steps_the_divergence():
    noise = torch.randn(14, 4, generator=torch.Generator().manual_seed(5))
    method = Clients(SCHEDULE).create("fedtad", SMALL | {"model_steps": 20})
    assert isinstance(method, FedTAD)
    method.build()
    start_round(method, 1)

    sent = {name: value.detach() for name, value in method.send().items()}

    def figures():
        graph = method.make(noise)
        gap = method.divergence(graph.outputs(sent), graph.outputs(method.server))
        return float(method.maker_loss(noise, sent).detach()), float(gap.detach())

    loss, gap = figures()
    method.maker_loss(noise, sent).backward()
    method.maker_optimiser.step()
    assert figures()[0] < loss
    _, gap = figures()
    method.maker_optimiser.param_groups[0]["lr"] = 0.0
    method.distil(noise, sent)
    assert 0 < figures()[1] < gap


def test_models_travel_as_in_fedavg_and_reliabilities_once():
    clients = Clients(SCHEDULE)
    size = 3 * 4 * numbers(clients.start()[0])
    assert clients.run("fedtad", **SMALL)[1].bytes == {"up": size, "down": size, "once": 3 * 3 * 4}


def test_a_class_without_training_nodes_does_no_harm():
    federation = small_federation()
    federation = replace(federation, train=federation.train & (federation.labels != 1))
    method, outcome = Clients(SCHEDULE, federation=federation).run("fedtad", **SMALL)
    assert not method.reliability[:, 1].any()
    assert outcome.curve["loss"][-1] < outcome.curve["loss"][0]


@pytest.mark.parametrize("bad", [{"rate": 0.0}, {"nodes": 0}, {"server_rounds": -1}, {"semantic": -1.0}])
def test_options_that_cannot_be_are_refused(bad):
    with pytest.raises(UserError, match="fedtad's"):
        registry.make_options("fedtad", bad)
    method = Clients(SCHEDULE).create("fedtad", {"nodes": 2})
    with pytest.raises(UserError, match="number of classes"):
        method.build()
