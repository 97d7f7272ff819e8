"""Parts of methods that a loop over clients does not show: cuts, mixtures, starts, corrected drift."""

import math
from typing import Any

import torch

from fedsub.methods.core.base import Schedule
from fedsub.methods.core.training import end_round, start_round
from fedsub.methods.fedgta import mixing_matrix
from fedsub.methods.gcfl import minimum_cut
from tests.methods.loops import Clients


def test_shifted_cosines_peel_off_one_client_where_positive_ones_find_the_halves() -> None:
    """Two groups of three, cosines 0.3 inside and 0 between: (1.3·2 + 3) < 9, but 0 < 0.6."""
    group = torch.arange(6) // 3
    products = torch.eye(6) * 0.7 + 0.3 * (group.unsqueeze(0) == group.unsqueeze(1))
    sizes = {}
    for weights in ("shifted", "positive"):
        method: Any = Clients(Schedule()).create("gcfl", {"weights": weights})
        side = minimum_cut(method.edge_weights(products, torch.arange(6)))
        sizes[weights] = sorted((len(side), 6 - len(side)))
    assert sizes == {"shifted": [1, 5], "positive": [3, 3]}


def test_members_without_confidence_count_alike():
    moments, present = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]]), torch.ones(3, dtype=torch.bool)
    expected = torch.tensor([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
    torch.testing.assert_close(mixing_matrix(moments, torch.tensor([0.0, 0.0, 3.0]), 0.9, present), expected)
    weighed = mixing_matrix(moments, torch.tensor([1.0, 3.0, 0.0]), 0.9, present)
    torch.testing.assert_close(weighed[0], torch.tensor([0.25, 0.75, 0.0]))


def test_gamlp_starts_as_its_authors():
    start, _ = Clients(Schedule()).start("fedgta", network="gamlp")
    bound = math.sqrt(12 / (12 + 8))
    assert bound > float(start["layers.0.weight"].abs().max()) > 0.9 * bound
    assert not start["layers.0.bias"].any()


def test_feddyns_client_remembers_what_it_trained_and_not_what_it_sent() -> None:
    method: Any = Clients(Schedule(rounds=2, top_k=0.05)).create("feddyn", {"alpha": 0.1})
    method.build()
    start_round(method, 1)
    drift = {name: (value - method.received[name]).detach() for name, value in method.parameters.items()}
    end_round(method)
    for name, value in drift.items():
        torch.testing.assert_close(method.rule.gradient[name], -0.1 * value)
    sent = torch.cat([value.flatten() for value in method.rule.correction.values()])
    assert 0 < sent.count_nonzero() <= 3 * 0.05 * len(sent) + 3
