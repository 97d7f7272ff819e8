"""AdaFGL's extractor, its homophily where nodes are few, and its traffic."""

from dataclasses import replace

import torch

from fedsub.methods.adafgl import homophily
from fedsub.methods.core.base import Schedule
from fedsub.methods.tasks import NodeClassification
from tests.methods.federations import community_federation
from tests.methods.loops import Clients

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


def test_it_learns_with_dropout_and_a_normalised_input():
    schedule = replace(SCHEDULE, rounds=20, optimiser="adam", learning_rate=0.01)
    clients = Clients(schedule, dropout=0.5, federation=community_federation())
    clients.architecture = replace(clients.architecture, input_norm=True)
    outcome = clients.run("adafgl")[1]
    assert outcome.curve["loss"][-1] < outcome.curve["loss"][10]
    assert outcome.metrics["accuracy"] > 0.5
    assert 0 < outcome.extras["homophily"] <= 1
