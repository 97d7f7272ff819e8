"""What FedAux reports, and FedAux with either classifier."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch.nn.functional as functional

from fedsub.methods.core import registry
from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.participation import begin_round
from fedsub.methods.core.setting import make_setting
from fedsub.methods.core.training import end_round, start_round, train
from fedsub.methods.fedaux import VECTOR
from tests.methods.federations import community_federation
from tests.methods.loops import WIDTHS, Clients

SCHEDULE = Schedule(rounds=2, local_epochs=2, learning_rate=0.2, weight_decay=1e-3, optimiser="sgd")


def test_the_mean_cosine_is_over_clients_that_send_their_vector():
    """Of four clients the last two are gone before the first round."""
    method = Clients(replace(SCHEDULE, leavers="2@1+3@1"), clients=4).create("fedaux")
    method.build()
    begin_round(method, 1)
    start_round(method, 1)
    first, second = method.parameters[VECTOR].detach().flatten(1)[:2].clone()
    end_round(method)
    expected = float(functional.cosine_similarity(first, second, dim=0))
    assert method.by_round["vector_cosine"] == [pytest.approx(expected, abs=1e-6)]


@pytest.mark.parametrize("head", ["linear", "convolution"])
def test_it_predicts_links_and_takes_both_classifiers(head):
    architecture = Architecture(hidden=WIDTHS, dropout=0.0, head=head)
    for task in ("node-classification", "link-prediction"):
        setting = make_setting(community_federation(), architecture, replace(SCHEDULE, rounds=6), task=task)
        losses = train(registry.create("fedaux", {}, setting)).curve["loss"]
        assert losses[-1] < losses[0], task
