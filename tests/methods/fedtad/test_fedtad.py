"""FedTAD with a class that no client trains on, or with too few nodes."""

from dataclasses import replace

from fedsub.methods.core.base import Schedule
from tests.methods.federations import small_federation
from tests.methods.loops import Clients

SCHEDULE = Schedule(rounds=2, local_epochs=2, learning_rate=0.2, weight_decay=1e-3, optimiser="sgd")
SMALL = {"nodes": 14, "noise": 4, "neighbours": 3, "server_rounds": 2, "model_steps": 2}


def test_a_class_without_training_nodes_does_no_harm():
    federation = small_federation()
    federation = replace(federation, train=federation.train & (federation.labels != 1))
    method, outcome = Clients(SCHEDULE, federation=federation).run("fedtad", **SMALL)
    assert not method.reliability[:, 1].any()
    assert outcome.curve["loss"][-1] < outcome.curve["loss"][0]
