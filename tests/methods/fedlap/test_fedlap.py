"""FedLap and FedLap+ on clients that overlap."""

from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.training import train
from fedsub.methods.fedlap import LEARNED
from tests.methods.federations import make_method, overlapping_federation


def test_overlapping_clients_share_a_nodes_features_and_its_part_of_the_regulariser():
    network = Architecture("gcn", (8, 6), dropout=0.0)
    schedule = Schedule(rounds=2, local_epochs=2, learning_rate=0.02, weight_decay=1e-3, weighting="nodes")
    small = {"structure_width": 8, "structure_hidden": "7", "feature_hidden": "9"}
    method, other = (
        make_method(name, small, overlapping_federation(), network, schedule, seed=2)
        for name in ("fedlap", "fedlap+")
    )
    method.build()
    assert method.parameters[LEARNED].shape == (1, 60, 8)
    assert method.position.tolist() == [*range(40), *range(20, 60)]
    assert method.node_weights().tolist() == [1.0] * 60
    train(other)
