"""FedTAD's shares, labels and pseudo-graph, and a class that nobody trains on."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedsub.datasets.errors import UserError
from fedsub.methods.core.base import Schedule
from fedsub.methods.fedtad.pseudo import balanced_labels, nearest_graph
from fedsub.methods.fedtad.reliability import shares
from tests.methods.federations import small_federation
from tests.methods.loops import Clients

SCHEDULE = Schedule(rounds=2, local_epochs=2, learning_rate=0.2, weight_decay=1e-3, optimiser="sgd")
SMALL = {"nodes": 14, "noise": 4, "neighbours": 3, "server_rounds": 2, "model_steps": 2}


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


def test_a_class_without_training_nodes_does_no_harm():
    federation = small_federation()
    federation = replace(federation, train=federation.train & (federation.labels != 1))
    method, outcome = Clients(SCHEDULE, federation=federation).run("fedtad", **SMALL)
    assert not method.reliability[:, 1].any()
    assert outcome.curve["loss"][-1] < outcome.curve["loss"][0]


def test_fewer_nodes_than_classes_are_refused():
    method = Clients(SCHEDULE).create("fedtad", {"nodes": 2})
    with pytest.raises(UserError, match="number of classes"):
        method.build()
