"""AdaFGL's extractor, its homophily where nodes are few, and its traffic."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedsub.datasets.errors import UserError
from fedsub.methods.adafgl import AdaFGL
from fedsub.methods.adafgl.homophily import homophily
from fedsub.methods.core.base import Schedule
from fedsub.methods.core.tasks import NodeClassification
from fedsub.methods.core.training import end_round, start_round
from tests.methods.federations import community_federation
from tests.methods.loops import Clients, numbers

SCHEDULE = Schedule(rounds=4, local_epochs=2, learning_rate=0.1, weight_decay=1e-3, optimiser="sgd")
SMALL = {"width": 5, "epochs": 2}


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
    # As FedAvg in half of the rounds; a number for each client and round, and the chosen model once more.
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


def test_it_learns_with_dropout_and_a_normalised_input():
    schedule = replace(SCHEDULE, rounds=20, optimiser="adam", learning_rate=0.01)
    clients = Clients(schedule, dropout=0.5, federation=community_federation())
    clients.architecture = replace(clients.architecture, input_norm=True)
    outcome = clients.run("adafgl")[1]
    assert outcome.curve["loss"][-1] < outcome.curve["loss"][10]
    assert outcome.metrics["accuracy"] > 0.5
    assert 0 < outcome.extras["homophily"] <= 1
