"""FedLap and FedLap+ without their own part are FedSGD; clients that overlap."""

from dataclasses import replace
from typing import Any

import pytest

from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.training import train
from fedsub.methods.fedlap import LEARNED, FedLap
from fedsub.methods.fedsgd import FedSGD
from tests.methods.federations import community_federation, make_method, overlapping_federation
from tests.methods.rounding import assert_agree

SCHEDULE = Schedule(rounds=2, local_epochs=2, learning_rate=0.02, weight_decay=1e-3, weighting="nodes")
SMALL = {"structure_width": 8, "structure_hidden": "7", "feature_hidden": "9"}


def create(name, federation=None, schedule=SCHEDULE, dropout=0.0, **options) -> Any:
    network = Architecture("gcn", (8, 6), dropout=dropout)
    return make_method(name, options, federation or community_federation(), network, schedule, seed=2)


@pytest.mark.parametrize("name", ["fedlap", "fedlap+"])
def test_without_smoothing_propagation_and_structure_it_is_fedsgd(name, monkeypatch):
    monkeypatch.setattr(FedLap, "structure", lambda self, dropout: 0.0)
    monkeypatch.setattr(FedSGD, "labelled_outputs_only", False)
    schedule = replace(SCHEDULE, rounds=4)
    method = create(name, None, schedule, 0.5, hops=0, feature_hidden="8+6", smoothing=0.0)
    mlp = Architecture("mlp", (8, 6), "linear", 0.5, True)
    plain = make_method("fedsgd", {}, community_federation(), mlp, schedule, seed=2)
    assert_agree(train(method).curve["loss"], train(plain).curve["loss"])


def test_overlapping_clients_share_a_nodes_features_and_its_part_of_the_regulariser():
    federation = overlapping_federation()
    method = create("fedlap", federation, **SMALL)
    method.build()
    assert method.parameters[LEARNED].shape == (1, 60, 8)
    assert method.position.tolist() == [*range(40), *range(20, 60)]
    assert method.node_weights().tolist() == [1.0] * 60
    train(create("fedlap+", federation, **SMALL))
