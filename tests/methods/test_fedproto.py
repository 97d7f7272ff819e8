"""FedProto against a plain loop, and where it is Local."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedsub.datasets.errors import UserError
from fedsub.methods.core import registry
from fedsub.methods.core.base import Schedule
from tests.methods.federations import small_federation
from tests.methods.loops import Clients, assert_equal, hidden_of, leaves, optimiser_of
from tests.methods.rounding import assert_agree

SCHEDULE = Schedule(rounds=4, local_epochs=2, learning_rate=0.2, weight_decay=1e-3, optimiser="sgd")
CLASSES = 3


def lacking() -> Clients:
    """Three clients; the first trains on no node of class 2."""
    federation = small_federation()
    missing = (federation.client == 0) & (federation.labels == 2)
    return Clients(SCHEDULE, federation=replace(federation, train=federation.train & ~missing))


def class_means(clients, models):
    """(class → prototype, class → count) of each client."""
    found = []
    for part, model in zip(clients.parts, models, strict=True):
        h = hidden_of(part, model, clients.backbone).detach()
        mine = {c: part["train"] & (part["labels"] == c) for c in range(CLASSES)}
        found.append({c: (h[rows].mean(0), int(rows.sum())) for c, rows in mine.items() if rows.any()})
    return found


def averaged(clients, own, average):
    result = {}
    total = sum(len(part["labels"]) for part in clients.parts)
    for c in range(CLASSES):
        held = [means[c] for means in own if c in means]
        if average == "openfgl":
            width = held[0][0].shape
            result[c] = sum(
                len(part["labels"]) / total * (means[c][0] if c in means else torch.zeros(width))
                for part, means in zip(clients.parts, own, strict=True)
            )
        elif average == "clients":
            result[c] = sum(p for p, _ in held) / len(held)
        else:
            result[c] = sum(m * p for p, m in held) / sum(m for _, m in held)
            if average == "printed":
                result[c] = result[c] / len(held)
    return result


CASES = [
    ("gcn", "prototypes", "nodes"),
    ("gcn", "classes", "openfgl"),
    ("gcn", "nodes", "clients"),
    ("sgc", "prototypes", "clients"),
    ("graphsage", "classes", "nodes"),
    ("mlp", "prototypes", "printed"),
]


@pytest.mark.parametrize(("backbone", "distance", "average"), CASES)
def test_it_equals_a_plain_loop(backbone, distance, average):
    clients = Clients(SCHEDULE, backbone, federation=lacking().federation)
    method, _ = clients.run("fedproto", strength=2.0, distance=distance, average=average)
    start, _ = clients.start("local")
    models = [leaves(start) for _ in clients.parts]
    optimisers = [optimiser_of(model, SCHEDULE) for model in models]
    common: dict[int, torch.Tensor] = {}
    for _ in range(SCHEDULE.rounds):
        for part, model, optimiser in zip(clients.parts, models, optimisers, strict=True):
            for _ in range(SCHEDULE.local_epochs):
                optimiser.zero_grad()
                loss = clients.loss(part, model)
                h = hidden_of(part, model, backbone)
                gaps = []
                for c, target in common.items():
                    mine = h[part["train"] & (part["labels"] == c)]
                    if len(mine) and distance == "prototypes":
                        loss = loss + 2.0 * (mine.mean(0) - target).square().mean()
                    elif len(mine) and distance == "classes":
                        loss = loss + 2.0 * torch.nn.functional.mse_loss(mine, target.expand_as(mine))
                    else:
                        gaps.append((mine - target).square().mean(1))
                if distance == "nodes" and gaps:
                    loss = loss + 2.0 * torch.cat(gaps).mean()
                loss.backward()
                optimiser.step()
        common = averaged(clients, class_means(clients, models), average)
    assert_equal(method.parameters, models)
    torch.testing.assert_close(method.prototypes, torch.stack(list(common.values())), atol=1e-5, rtol=1e-5)


def test_held_prototypes_and_counts_go_up_and_all_come_down():
    clients = lacking()
    held = sum(len(part["labels"][part["train"]].unique()) for part in clients.parts)
    assert held < 3 * CLASSES
    # Six numbers and a count for each held pair of client and class; three classes to three clients.
    assert clients.run("fedproto")[1].bytes == {"up": held * (6 + 1) * 4, "down": 3 * 3 * 6 * 4, "once": 0}


def test_the_nearest_prototype_may_predict():
    clients = lacking()
    method, _ = clients.run("fedproto", predict="prototypes")
    predicted = method.predict().argmax(1)
    for k, part in enumerate(clients.parts):
        model = {name: value[k].detach() for name, value in method.parameters.items()}
        h = hidden_of(part, model, "gcn")
        nearest = [min(range(CLASSES), key=lambda c: float((row - method.prototypes[c]).norm())) for row in h]
        assert predicted[method.federation.client == k].tolist() == nearest


def test_the_classifier_predicts_until_a_class_is_known():
    """Of three clients only the first, which has no training node, takes part."""
    federation = small_federation()
    federation = replace(federation, train=federation.train & (federation.client != 0))
    schedule = replace(SCHEDULE, leavers="1@1+2@1")
    found, plain = (
        Clients(schedule, federation=federation).run("fedproto", predict=predict)[0]
        for predict in ("prototypes", "classifier")
    )
    assert not found.known.any()
    assert_agree(found.predict(), plain.predict())


def test_a_class_without_training_nodes_is_never_predicted_by_prototypes():
    federation = small_federation()
    federation = replace(federation, train=federation.train & (federation.labels != 1))
    method, outcome = Clients(SCHEDULE, federation=federation).run("fedproto", predict="prototypes")
    assert not (method.predict().argmax(1) == 1).any()
    assert 0 < outcome.metrics["accuracy"] < 1
    assert outcome.bytes["down"] == 3 * 2 * 6 * 4


def test_nor_is_it_where_all_prototypes_are_far():
    federation = small_federation()
    federation = replace(federation, train=federation.train & (federation.labels != 1))
    method, _ = Clients(SCHEDULE, federation=federation).run("fedproto", predict="prototypes")
    method.prototypes = 1e4 * (1 + torch.rand_like(method.prototypes))
    assert not (method.predict().argmax(1) == 1).any()


def test_options_that_cannot_be_or_cannot_act():
    with pytest.raises(UserError, match="fedproto's strength"):
        registry.make_options("fedproto", {"strength": -1.0})
    assert set(registry.make_options("fedproto", {"strength": 0.0}).unused("gcn")) == {"distance", "average"}
