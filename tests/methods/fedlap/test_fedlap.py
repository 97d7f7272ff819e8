"""FedLap and FedLap+ without their own part are FedSGD; clients that overlap."""

from typing import Any

from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.training import train
from fedsub.methods.fedlap import LEARNED
from tests.methods.federations import community_federation, make_method, overlapping_federation

SCHEDULE = Schedule(rounds=2, local_epochs=2, learning_rate=0.02, weight_decay=1e-3, weighting="nodes")
SMALL = {"structure_width": 8, "structure_hidden": "7", "feature_hidden": "9"}


def create(name, federation=None, schedule=SCHEDULE, dropout=0.0, **options) -> Any:
    network = Architecture("gcn", (8, 6), dropout=dropout)
    return make_method(name, options, federation or community_federation(), network, schedule, seed=2)


def test_overlapping_clients_share_a_nodes_features_and_its_part_of_the_regulariser():
    federation = overlapping_federation()
    method = create("fedlap", federation, **SMALL)
    method.build()
    assert method.parameters[LEARNED].shape == (1, 60, 8)
    assert method.position.tolist() == [*range(40), *range(20, 60)]
    assert method.node_weights().tolist() == [1.0] * 60
    train(create("fedlap+", federation, **SMALL))
