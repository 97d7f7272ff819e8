"""Clients scored by the model of the client to which most of their edges are missing (FED-PUB, Figure 9)."""

import pytest
import torch

from fedsub.methods.core.base import Schedule
from fedsub.methods.core.evaluation import neighbours, predict_by
from fedsub.methods.core.training import end_round, start_round, train
from fedsub.methods.stacked.architecture import Architecture
from tests.methods.federations import make_method, small_federation
from tests.methods.oracle import client_parts, forward
from tests.methods.rounding import assert_agree


def create(name: str, **schedule: object):
    network = Architecture(hidden=(8, 6), dropout=0.0)
    given = Schedule(rounds=3, learning_rate=0.05, **schedule)  # type: ignore[arg-type]
    return make_method(name, {}, small_federation(clients=4, nodes=120), network, given, seed=1)


def test_the_neighbour_misses_most_edges():
    federation = small_federation(clients=5, nodes=150)
    found = neighbours(federation)
    source, target = (federation.client[end] for end in federation.inter.edges())
    for client in range(5):
        counts = [int(((source == client) & (target == other)).sum()) for other in range(5)]
        assert counts[client] == 0
        assert counts[int(found[client])] == max(counts) > 0


@pytest.mark.parametrize("name", ["local", "fedpub"])
def test_its_model_is_the_one_that_predicts(name: str):
    method = create(name)
    method.build()
    for number in range(1, 4):
        start_round(method, number)
        end_round(method)
    before = method.predict()
    model = torch.tensor([1, 2, 0, 0])
    found = predict_by(method, model)
    weights = method.pruning(method.parameters).weights if name == "fedpub" else method.parameters
    for client, part in enumerate(client_parts(method.federation)):
        own = {key: value[model[client]] for key, value in weights.items() if not key.startswith("mask.")}
        expected = forward(part, own, "gcn")
        rows = method.federation.client == client
        assert torch.allclose(found[rows], expected, atol=1e-5)
    assert not torch.allclose(found, before, atol=1e-3)
    assert torch.equal(method.predict(), before)


def test_scoring_by_neighbours_leaves_training_alone():
    plain, scored = train(create("fedpub")), train(create("fedpub", evaluate="neighbour"))
    assert_agree(plain.curve["loss"], scored.curve["loss"])
    assert plain.curve["test"] != scored.curve["test"]
