"""FedLap and FedLap+ against a plain loop over clients, nodes and edges, and where they are FedSGD."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.datasets.errors import UserError
from fedsub.datasets.federation import federate
from fedsub.datasets.partition import partition
from fedsub.datasets.seeding import stream
from fedsub.datasets.splits import make_split
from fedsub.methods.core import registry
from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.participation import begin_round
from fedsub.methods.core.setting import make_setting
from fedsub.methods.core.training import start_round, train
from fedsub.methods.fedlap import LEARNED, FedLap
from fedsub.methods.fedsgd import FedSGD
from fedsub.methods.stacked.parameters import Parameters
from tests.methods.federations import community_federation, small_dataset, small_federation
from tests.methods.loops import leaves
from tests.methods.oracle import client_parts, forward
from tests.methods.rounding import assert_agree
from tests.methods.second_derivation.common import TOLERANCE

SCHEDULE = Schedule(rounds=2, local_epochs=2, learning_rate=0.02, weight_decay=1e-3, weighting="nodes")
SMALL = {"structure_width": 8, "structure_hidden": "7", "feature_hidden": "9"}
PLUS = {"rank": 12, "steps": 30}


def create(
    name, federation=None, schedule=SCHEDULE, backbone="gcn", dropout=0.0, outputs="logits", **options
) -> Any:
    architecture = Architecture(backbone, (8, 6), dropout=dropout, outputs=outputs)
    setting = make_setting(federation or community_federation(), architecture, schedule, seed=2)
    return registry.create(name, options, setting)


def built(name, federation=None, **options) -> Any:
    method = create(name, federation, **SMALL | options)
    method.build()
    return method


def neighbours_of(federation) -> dict[int, set[int]]:
    """Of every node of the source that a client holds."""
    held = set(federation.origin.tolist())
    source, target = (end.tolist() for end in federation.source.graph.edges())
    found: dict[int, set[int]] = {v: set() for v in held}
    for u, v in zip(source, target, strict=True):
        if u in held and v in held and u != v:
            found[u].add(v)
            found[v].add(u)
    return found


def row_steps(adjacency: Tensor, hops: int) -> Tensor:
    looped = adjacency + torch.eye(len(adjacency))
    return torch.linalg.matrix_power(looped / looped.sum(1, keepdim=True), hops)


def perceptron(x: Tensor, weights: Parameters, prefix: str = "") -> Tensor:
    x = functional.layer_norm(x, x.shape[1:], weights[f"{prefix}norm.gain"], weights[f"{prefix}norm.bias"])
    x = functional.relu(x @ weights[f"{prefix}layers.0.weight"] + weights[f"{prefix}layers.0.bias"])
    return x @ weights[f"{prefix}head.weight"] + weights[f"{prefix}head.bias"]


def eigenpairs(federation, options, taken: Tensor) -> tuple[Tensor, Tensor]:
    """U and Λ of the source, whose nodes are all held, from dense matrices.

    True eigenvectors are free to turn where eigenvalues are equal: those `taken`, (n, rank), are checked.
    """
    near = neighbours_of(federation)
    nodes, rank = len(near), options["rank"]
    looped = np.eye(nodes)
    for v, others in near.items():
        looped[v, list(others)] = 1
    degree = looped.sum(1)
    if options.get("basis", "exact") == "exact":
        matrix = np.eye(nodes) - looped / np.sqrt(np.outer(degree, degree))
        values, vectors = np.linalg.eigvalsh(matrix), np.zeros((nodes, rank))
        vectors[federation.origin.numpy()] = taken.numpy()
        np.testing.assert_allclose(matrix @ vectors, vectors * values[:rank], atol=1e-6)
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(rank), atol=1e-6)
        return torch.from_numpy(vectors).float(), torch.from_numpy(values[:rank]).float()
    walk = np.eye(nodes) - looped / degree[:, None]
    q = [stream(2, "fedlap+ start of the iteration").standard_normal(nodes)]
    q[0] /= np.linalg.norm(q[0])
    h = np.zeros((options["steps"], options["steps"]))
    for k in range(1, options["steps"]):
        new = walk @ q[-1]
        for j in range(k):
            h[j, k - 1] = q[j] @ new
            new = new - h[j, k - 1] * q[j]
        h[k, k - 1] = np.linalg.norm(new)
        q.append(new / h[k, k - 1])
    values, vectors = np.linalg.eigh(np.tril(h) + np.tril(h, -1).T)
    vectors = (np.array(q).T @ vectors)[:, :rank]
    # Signs are drawn: those taken.
    vectors *= np.sign((vectors[federation.origin.numpy()] * taken.numpy()).sum(0))
    return torch.from_numpy(vectors).float(), torch.from_numpy(values[:rank]).float()


def client_regulariser(name, options, near, mine, learned, eigen) -> Tensor:
    """tr(Sᵀ (D − A) S) / tr(Sᵀ S) over the rows of the client's own nodes; tr(Wᵀ Λ W) / tr(Wᵀ W)."""
    if name == "fedlap+":
        return torch.trace(learned.T @ torch.diag(eigen[1]) @ learned) / torch.trace(learned.T @ learned)
    energy = torch.zeros(())
    for v in mine:
        for u in near[v]:
            energy = energy + learned[v] @ (learned[v] - learned[u])
    return energy / learned.square().sum()


def loop(method, start, options, backbone) -> Parameters:
    """One Adam on the server, every client's gradient for itself."""
    name, federation, schedule = method.info.name, method.federation, method.schedule
    parts, near = client_parts(federation), neighbours_of(federation)
    eigen = eigenpairs(federation, options, method.eigenvectors) if name == "fedlap+" else None
    shares = [len(part["labels"]) / federation.nodes for part in parts]
    server = leaves(start)
    optimiser = torch.optim.Adam(
        list(server.values()), lr=schedule.learning_rate, weight_decay=schedule.weight_decay
    )
    smoothing = options.get("smoothing", 10.0)
    for _ in range(schedule.rounds * schedule.local_epochs):
        optimiser.zero_grad()
        for k, (part, share) in enumerate(zip(parts, shares, strict=True)):
            mine = federation.origin[federation.client == k].tolist()
            model = leaves(server)
            if options.get("network") == "backbone":
                own = forward(part, model, backbone)
            else:
                own = row_steps(part["adjacency"], options.get("hops", 2)) @ perceptron(
                    part["features"], model
                )
            learned = model[LEARNED]
            s = learned[mine] if eigen is None else (eigen[0][mine] @ learned).relu()
            logits = own + perceptron(s, model, "structure.")
            if method.setting.architecture.outputs == "probabilities":
                logits = logits.softmax(1)
            loss = share * functional.cross_entropy(logits[part["train"]], part["labels"][part["train"]])
            # As they are, clients' parts of FedLap's regulariser add up to the whole; W's is at each client.
            weight = 1.0 if name == "fedlap" and options.get("parts", "whole") == "whole" else share
            part_of_r = client_regulariser(name, options, near, mine, learned, eigen)
            (loss + weight * smoothing * part_of_r).backward()
            for key, value in model.items():
                if value.grad is not None:
                    total = server[key].grad
                    server[key].grad = value.grad if total is None else total + value.grad
        optimiser.step()
    return server


CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("fedlap", "gcn", {}),
    ("fedlap", "gcn", {"parts": "weighted", "outputs": "probabilities", "hops": 1}),
    ("fedlap", "gcn", {"smoothing": 0.0}),
    ("fedlap", "graphsage", {"network": "backbone", "smoothing": 0.5}),
    ("fedlap+", "gcn", PLUS),
    ("fedlap+", "gcn", PLUS | {"basis": "reference", "smoothing": 2.0}),
    ("fedlap+", "sgc", PLUS | {"network": "backbone", "outputs": "probabilities"}),
]


@pytest.mark.parametrize(("name", "backbone", "given"), CASES)
def test_it_equals_a_plain_loop(name, backbone, given):
    federation, options = community_federation(), SMALL | given
    first, method = (create(name, federation, backbone=backbone, **options) for _ in range(2))
    first.build()
    start = {key: value[0].detach().clone() for key, value in first.parameters.items()}
    train(method)
    for key, value in loop(method, start, options, backbone).items():
        torch.testing.assert_close(method.parameters[key][0], value, atol=TOLERANCE, rtol=1e-4)
        assert not torch.allclose(value, start[key], atol=1e-3), f"{key} did not move"


@pytest.mark.parametrize("backbone", ["gcn", "sgc", "graphsage", "mlp"])
@pytest.mark.parametrize("name", ["fedlap", "fedlap+"])
def test_without_smoothing_and_structure_it_is_fedsgd(name, backbone, monkeypatch):
    monkeypatch.setattr(FedLap, "structure", lambda self, dropout: 0.0)
    monkeypatch.setattr(FedSGD, "labelled_outputs_only", False)
    schedule = replace(SCHEDULE, rounds=4)
    method = create(name, None, schedule, backbone, 0.5, network="backbone", smoothing=0.0)
    plain = create("fedsgd", None, schedule, backbone, 0.5)
    assert_agree(train(method).curve["loss"], train(plain).curve["loss"])


def test_the_regulariser_is_the_mean_square_difference_over_edges():
    method = built("fedlap")
    s = method.parameters[LEARNED][0].detach().clone()
    near = neighbours_of(method.federation)
    total = sum(float((s[u] - s[v]).square().sum()) for u in near for v in near[u] if u < v)
    assert float(method.regulariser().detach()) == pytest.approx(total / float(s.square().sum()), rel=1e-5)
    with torch.no_grad():
        method.parameters[LEARNED].mul_(7)
    assert float(method.regulariser().detach()) == pytest.approx(total / float(s.square().sum()), rel=1e-5)
    with torch.no_grad():
        method.parameters[LEARNED].copy_(torch.arange(8.0).expand_as(method.parameters[LEARNED]))
    assert float(method.regulariser().detach().abs()) < 1e-5


def test_with_every_eigenvector_the_regularisers_numerator_is_that_of_the_features():
    method = built("fedlap+", rank=10**6)
    u, w = method.eigenvectors.double(), method.parameters[LEARNED][0].detach().double()
    assert len(w) == method.federation.nodes
    near = neighbours_of(method.federation)
    s = torch.zeros(len(u), w.shape[1], dtype=torch.double)
    s[method.federation.origin] = u @ w
    scaled = s / torch.tensor([len(near[v]) + 1.0 for v in range(len(s))]).double().sqrt().unsqueeze(1)
    total = sum(float((scaled[a] - scaled[b]).square().sum()) for a in near for b in near[a] if a < b)
    assert float(method.regulariser().detach()) == pytest.approx(total / float(s.square().sum()), rel=1e-4)


@pytest.mark.parametrize("name", ["fedlap", "fedlap+"])
def test_more_smoothing_leaves_less_roughness(name):
    schedule = replace(SCHEDULE, rounds=10)
    found = []
    for smoothing in (0.0, 10.0):
        method = create(name, None, schedule, dropout=0.5, smoothing=smoothing, **SMALL)
        outcome = train(method)
        found.append(float(method.regulariser().detach()))
        assert outcome.curve["loss"][-1] < outcome.curve["loss"][0]
    assert found[1] < 0.8 * found[0]


def overlapping():
    dataset = small_dataset(nodes=60)
    parts = type(partition(dataset, "random", 2, 0))("overlap", (np.arange(40), np.arange(20, 60)))
    return federate(dataset, parts, make_split(dataset.labels.numpy(), parts, "ratio", 0, dataset.classes))


def test_overlapping_clients_share_a_nodes_features_and_its_part_of_the_regulariser():
    method = built("fedlap", overlapping())
    assert method.parameters[LEARNED].shape == (1, 60, 8)
    assert method.position.tolist() == [*range(40), *range(20, 60)]
    assert method.node_weights().tolist() == [1.0] * 60
    weighted = built("fedlap", overlapping(), parts="weighted")
    assert weighted.node_weights().tolist() == [0.5] * 20 + [1.0] * 20 + [0.5] * 20
    train(create("fedlap+", overlapping(), **SMALL))


@pytest.mark.parametrize("parts", ["whole", "weighted"])
def test_the_part_of_a_client_that_is_absent_is_left_out(parts):
    schedule = replace(SCHEDULE, rounds=3, local_epochs=1, participation=0.7, leavers="0@1")
    method = create("fedlap", community_federation(clients=4), schedule, parts=parts, **SMALL)
    method.build()
    near, federation = neighbours_of(method.federation), method.federation
    clients = federation.client[federation.origin.argsort()].tolist()
    for number in (1, 2, 3):
        begin_round(method, number)
        present, share = method.present.tolist(), method.weights.tolist()
        assert not present[0]
        assert sum(present) > 1
        weight = [share[k] if parts == "weighted" else float(present[k]) for k in clients]
        s = method.parameters[LEARNED][0].detach().clone()
        energy = {v: sum((s[v] @ (s[v] - s[u])).item() for u in near[v]) for v in near}
        expected = sum(weight[v] * energy[v] for v in near) / float(s.square().sum())
        found = method.regulariser()
        assert float(found.detach()) == pytest.approx(expected, rel=1e-4)
        (gradient,) = torch.autograd.grad(found, method.parameters[LEARNED])
        alone = [v for v in near if clients[v] == 0 and all(clients[u] == 0 for u in near[v])]
        assert alone
        # Of rows that only an absent client needs the denominator alone is left.
        torch.testing.assert_close(
            gradient[0, alone], -2 * expected * s[alone] / s.square().sum(), rtol=1e-3, atol=1e-7
        )
        start_round(method, number)


def known_rows(federation) -> int:
    """Σ_k |V_k ∪ N(V_k)|, by the edges that each client knows."""
    origin, client = federation.origin.tolist(), federation.client.tolist()
    known = set(zip(client, origin, strict=True))
    source, target = (end.tolist() for end in federation.inter.edges())
    return len(known | {(client[v], origin[u]) for u, v in zip(source, target, strict=True)})


@pytest.mark.parametrize("federation", [small_federation(clients=4), overlapping()])
@pytest.mark.parametrize("smoothing", [0.0, 1.0])
def test_fedlap_sends_the_networks_and_the_rows_that_a_client_needs(federation, smoothing):
    clients, nodes, d, c = federation.clients, federation.nodes, 12, 3
    networks = (2 * d + d * 9 + 9 + 9 * c + c) + (2 * 8 + 8 * 7 + 7 + 7 * c + c)
    rows = known_rows(federation) if smoothing else nodes
    assert rows > nodes or not smoothing
    each = 4 * (clients * networks + rows * 8 + (clients if smoothing else 0))
    outcome = train(create("fedlap", federation, smoothing=smoothing, **SMALL))
    epochs = SCHEDULE.local_epochs
    assert outcome.bytes == {"up": epochs * each, "down": epochs * each, "once": 0}


@pytest.mark.parametrize("basis", ["exact", "reference"])
def test_fedlap_plus_sends_weights_and_once_an_iterations_products(basis):
    federation = small_federation(clients=4)
    d, c, rank, steps = 12, 3, 10, 25
    networks = (2 * d + d * 9 + 9 + 9 * c + c) + (2 * 8 + 8 * 7 + 7 + 7 * c + c)
    each = 4 * 4 * (networks + rank * 8)
    once = 0
    for step in range(1, steps):
        once += known_rows(federation) - federation.nodes
        once += 2 * 4 * (step + 1)
    outcome = train(create("fedlap+", federation, rank=rank, steps=steps, basis=basis, **SMALL))
    epochs = SCHEDULE.local_epochs
    assert outcome.bytes == {"up": epochs * each, "down": epochs * each, "once": 4 * once}


UNUSED: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("fedlap", {}, "sgc", {}),
    ("fedlap", {"smoothing": 0.0}, "gcn", {"parts": "weighted"}),
    ("fedlap+", {"network": "backbone"}, "gcn", {"hops": 5, "feature_hidden": "3"}),
]


@pytest.mark.parametrize(("name", "given", "backbone", "changed"), UNUSED)
def test_what_is_unused_changes_nothing(name, given, backbone, changed):
    options = SMALL | given
    idle = registry.make_options(name, options).unused("gcn")
    assert set(changed) <= set(idle)
    assert ("backbone" in idle) == (given.get("network") != "backbone")
    one, two = create(name, **options), create(name, backbone=backbone, **options | changed)
    assert train(one).bytes == train(two).bytes
    assert_agree(one.predict(), two.predict())


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("fedlap", "smoothing", -1.0),
        ("fedlap", "structure_width", 0),
        ("fedlap", "hops", -1),
        ("fedlap+", "rank", 0),
        ("fedlap+", "steps", 0),
        ("fedlap+", "basis", "guessed"),
    ],
)
def test_an_option_outside_its_limits_is_one_sentence(name, option, value):
    with pytest.raises(UserError, match=option):
        registry.make_options(name, {option: value})


def test_hidden_layers_that_cannot_be_read_are_one_sentence():
    with pytest.raises(UserError, match="hidden layers"):
        create("fedlap", structure_hidden="many").build()
