"""FedGCN: exact on the whole graph with enough hops, and a plain loop over clients and nodes without."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as functional

from fedsub.datasets.errors import UserError
from fedsub.datasets.federation import federate
from fedsub.datasets.partition import partition
from fedsub.datasets.splits import make_split
from fedsub.methods.core import registry
from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.setting import make_setting
from fedsub.methods.core.training import train
from tests.methods.federations import SPLIT, community_federation, small_dataset, small_federation
from tests.methods.loops import Clients, assert_equal, leaves, mean, numbers, optimiser_of

SCHEDULE = Schedule(rounds=2, local_epochs=2, learning_rate=0.1, weight_decay=1e-3, optimiser="sgd")


def overlapping():
    dataset = small_dataset()
    parts = partition(dataset, "metis-overlapping", 10, 0)
    return federate(dataset, parts, make_split(dataset.labels.numpy(), parts, SPLIT, 0, 3))


def create(name, federation, architecture, schedule=SCHEDULE, merged=False, **options):
    setting = make_setting(federation, architecture, schedule, seed=1, merged=merged)
    return registry.create(name, options, setting)


@pytest.mark.parametrize(
    ("network", "hops"),
    [
        (Architecture("gcn", (8, 6)), 2),
        (Architecture("gcn", (8,)), 1),
        (Architecture("gcn", (8, 6), head="convolution"), 3),
        (Architecture("sgc"), 2),
    ],
)
@pytest.mark.parametrize("kind", ["random", "dense", "community", "overlapping"])
@pytest.mark.parametrize("sent", ["sums", "features"])
def test_as_many_hops_as_convolutions_are_exact_on_any_partition(network, hops, kind, sent):
    federation = {
        "random": small_federation,
        "dense": lambda: small_federation(sparse=False),
        "community": community_federation,
        "overlapping": overlapping,
    }[kind]()
    ours = create("fedgcn", federation, network, hops=hops, sent=sent)
    fewer = create("fedgcn", federation, network, hops=hops - 1, sent=sent)
    central = create("central", federation, network, merged=True)
    for method in (ours, fewer, central):
        method.build()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, value in central.parameters.items():
            value.add_(torch.randn(value.shape, generator=generator))
            for method in (ours, fewer):
                method.parameters[name].copy_(value)
    torch.testing.assert_close(ours.predict(), central.predict(), atol=1e-5, rtol=1e-5)
    assert not torch.allclose(fewer.predict(), central.predict(), atol=1e-2)


def test_one_descent_step_a_round_is_central_training():
    schedule = replace(SCHEDULE, rounds=4, local_epochs=1)
    network = Architecture("gcn", (8, 6), dropout=0.0)
    federation = community_federation()
    ours = create("fedgcn", federation, network, schedule)
    central = create("central", federation, network, schedule, merged=True)
    train(ours)
    train(central)
    for name, value in central.parameters.items():
        torch.testing.assert_close(ours.parameters[name][:1], value, atol=1e-6, rtol=1e-5)


def whole(federation):
    """Edges of the whole graph as sets of neighbours, by node id, and features by node id."""
    origin = federation.origin.tolist()
    near: dict[int, set[int]] = {v: set() for v in origin}
    for graph in (federation.graph, federation.inter):
        for u, v in zip(*(end.tolist() for end in graph.edges()), strict=True):
            near[origin[v]].add(origin[u])
    return near, dict(zip(origin, federation.features.to_dense(), strict=True))


def client_graph(federation, k, options):
    """Client k's sums (convolved features, where these are sent), convolution and rows of its own nodes, node
    by node."""
    near, features = whole(federation)
    own = federation.origin[federation.client == k].tolist()
    nodes, sent = list(own), options.get("sent", "sums")
    for _ in range(options["hops"] - (sent == "sums")):
        nodes += sorted({u for v in nodes for u in near[v]} - set(nodes))
    row = {v: i for i, v in enumerate(nodes)}
    sums = []
    for v in nodes:
        total = torch.zeros_like(features[v])
        for u in near[v] | {v}:
            degrees = (len(near[u]) + 1) * (len(near[v]) + 1)
            total += features[u] / (1 if options.get("normalisation") == "none" else degrees**0.5)
        sums.append(total)
    convolution = torch.zeros(len(nodes), len(nodes))

    def degree(v):
        counted = near[v] if options.get("degrees") != "extended" else near[v] & set(nodes)
        return len(counted) + 1

    for v in nodes:
        for u in (near[v] | {v}) & set(nodes):
            convolution[row[v], row[u]] = (degree(u) * degree(v)) ** -0.5
    if sent == "features":
        return convolution @ torch.stack([features[v] for v in nodes]), convolution, len(own)
    return torch.stack(sums), convolution, len(own)


CASES = [
    {"hops": 2},
    {"hops": 1},
    {"hops": 2, "normalisation": "none", "degrees": "extended"},
    {"hops": 1, "degrees": "extended"},
    {"hops": 1, "sent": "features"},
    {"hops": 2, "sent": "features", "degrees": "extended"},
]


@pytest.mark.parametrize("options", CASES)
def test_it_equals_a_plain_loop(options):
    clients = Clients(SCHEDULE, federation=community_federation())
    method, _ = clients.run("fedgcn", **options)
    start, weights = clients.start("fedgcn", **options)
    graphs = [client_graph(clients.federation, k, options) for k in range(3)]
    models = [leaves(start) for _ in graphs]
    optimisers = [optimiser_of(model, SCHEDULE) for model in models]
    for _ in range(SCHEDULE.rounds):
        for (sums, convolution, own), part, model, optimiser in zip(
            graphs, clients.parts, models, optimisers, strict=True
        ):
            for _ in range(SCHEDULE.local_epochs):
                optimiser.zero_grad()
                h = functional.relu(sums @ model["layers.0.weight"] + model["layers.0.bias"])
                h = convolution @ (h @ model["layers.1.weight"]) + model["layers.1.bias"]
                logits = (functional.relu(h) @ model["head.weight"] + model["head.bias"])[:own]
                chosen = part["train"]
                functional.cross_entropy(logits[chosen], part["labels"][chosen]).backward()
                optimiser.step()
        for name, value in mean(models, weights).items():
            for model in models:
                model[name].data.copy_(value)
    assert_equal(method.parameters, models)


@pytest.mark.parametrize("hops", [1, 2])
def test_what_is_sent_once_is_counted_by_hand(hops):
    clients = Clients(SCHEDULE, federation=community_federation())
    near, features = whole(clients.federation)
    width, nodes = len(next(iter(features.values()))), len(near)
    reached = 0
    for k in range(3):
        own = set(clients.federation.origin[clients.federation.client == k].tolist())
        reached += len(own | {u for v in own for u in near[v]})
    received = reached if hops == 2 else nodes
    up = reached * (width + 1) + nodes
    down = received * width + (received - nodes)
    method, outcome = clients.run("fedgcn", hops=hops)
    size = 3 * 4 * numbers(clients.start()[0])
    assert outcome.bytes == {"up": size, "down": size, "once": 4 * (up + down)}
    assert method.extras["halo_nodes"] == received - nodes
    assert not method.options.breaks_privacy()
    dense = clients.run("fedgcn", hops=hops, wire="dense", normalisation="none", degrees="extended")[1]
    assert dense.bytes["once"] == 4 * width * (3 * nodes + received)


@pytest.mark.parametrize("hops", [1, 2])
def test_features_that_are_sent_are_counted_by_hand(hops):
    clients = Clients(SCHEDULE, federation=community_federation())
    near, features = whole(clients.federation)
    width, nodes = len(next(iter(features.values()))), len(near)
    taken: list[int] = []
    for k in range(3):
        own = set(clients.federation.origin[clients.federation.client == k].tolist())
        reached = set(own)
        for _ in range(hops):
            reached |= {u for v in reached for u in near[v]}
        taken += reached - own
    method, outcome = clients.run("fedgcn", hops=hops, sent="features")
    up, down = len(set(taken)) * (width + 1) + nodes, len(taken) * (width + 1)
    assert outcome.bytes["once"] == 4 * (up + down)
    assert method.extras["halo_nodes"] == len(taken)
    assert "true features" in method.options.breaks_privacy()


def test_it_predicts_links_from_edges_that_are_not_held_out():
    federation = community_federation()
    setting = make_setting(federation, Architecture("gcn", (8, 6)), SCHEDULE, task="link-prediction")
    method = registry.create("fedgcn", {}, setting)
    assert train(method).metrics["roc_auc"] > 0
    shown = method.federation.graph.num_edges() + method.federation.inter.num_edges()
    assert shown < federation.graph.num_edges() + federation.inter.num_edges()


def test_what_cannot_be_is_refused():
    with pytest.raises(UserError, match="fedgcn's hops"):
        registry.make_options("fedgcn", {"hops": -1})
    normed = create("fedgcn", small_federation(), Architecture("gcn", (8, 6), input_norm=True))
    with pytest.raises(UserError, match="input_norm"):
        normed.build()
    still = create("fedgcn", small_federation(), Architecture("sgc", hops=0))
    with pytest.raises(UserError, match="propagates"):
        still.build()
    assert "wire" in registry.make_options("fedgcn", {"hops": 0}).unused("gcn")
    assert "wire" in registry.make_options("fedgcn", {"sent": "features"}).unused("gcn")
