"""FedProto where classes have no prototype."""

from dataclasses import replace

import torch

from fedsub.methods.core.base import Schedule
from tests.methods.federations import small_federation
from tests.methods.loops import Clients
from tests.methods.rounding import assert_agree

SCHEDULE = Schedule(rounds=4, local_epochs=2, learning_rate=0.2, weight_decay=1e-3, optimiser="sgd")


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


def test_a_class_that_nobody_trains_on_is_not_predicted_where_all_prototypes_are_far():
    federation = small_federation()
    federation = replace(federation, train=federation.train & (federation.labels != 1))
    method, _ = Clients(SCHEDULE, federation=federation).run("fedproto", predict="prototypes")
    method.prototypes = 1e4 * (1 + torch.rand_like(method.prototypes))
    assert not (method.predict().argmax(1) == 1).any()
