"""FedGTA's mixing, and GAMLP's initial parameters and inputs."""

import math
from dataclasses import replace

import torch

from fedsub.methods.core.base import Schedule
from fedsub.methods.fedgta import mixing_matrix
from fedsub.methods.fedgta.gamlp import misread_scores
from tests.methods.loops import Clients

SCHEDULE = Schedule(rounds=2, local_epochs=2, learning_rate=0.2, weight_decay=1e-3, optimiser="sgd")


def test_members_without_confidence_count_alike():
    moments = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]])
    expected = torch.tensor([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
    torch.testing.assert_close(mixing_matrix(moments, torch.tensor([0.0, 0.0, 3.0]), 0.9), expected)
    weighed = mixing_matrix(moments, torch.tensor([1.0, 3.0, 0.0]), 0.9)
    torch.testing.assert_close(weighed[0], torch.tensor([0.25, 0.75, 0.0]))


def test_misread_hop_scores_are_other_nodes():
    client = torch.tensor([0, 0, 0, 0, 0, 1, 1])
    place = misread_scores(torch.arange(7), client, 4)
    # Client 0 writes n0…n4 for hop 0, then for hop 1, …; its second node reads entries 4 to 7.
    assert [(p // 7, p % 7) for p in place[1].tolist()] == [(0, 4), (1, 0), (1, 1), (1, 2)]
    assert (client[place % 7] == client[:, None]).all()


def test_gamlp_starts_as_its_authors_and_trains():
    clients = Clients(replace(SCHEDULE, rounds=3))
    start, _ = clients.start("fedgta", network="gamlp")
    bound = math.sqrt(12 / (12 + 8))
    assert bound > float(start["layers.0.weight"].abs().max()) > 0.9 * bound
    assert not start["layers.0.bias"].any()
    _, outcome = clients.run("fedgta", network="gamlp")
    assert outcome.curve["loss"][-1] < outcome.curve["loss"][0]
