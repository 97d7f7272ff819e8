"""FedGCN with enough hops is exact on the whole graph."""

from dataclasses import replace

import pytest
import torch

from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.training import train
from tests.methods.federations import community_federation, make_method, small_federation

SCHEDULE = Schedule(rounds=2, local_epochs=2, learning_rate=0.1, weight_decay=1e-3, optimiser="sgd")


def create(name, federation, architecture, schedule=SCHEDULE, **options):
    return make_method(name, options, federation, architecture, schedule, seed=1)


@pytest.mark.parametrize(
    ("network", "hops"),
    [
        (Architecture("gcn", (8, 6)), 2),
        (Architecture("gcn", (8,)), 1),
        (Architecture("gcn", (8, 6), head="convolution"), 3),
        (Architecture("sgc"), 2),
    ],
)
@pytest.mark.parametrize("kind", ["random", "dense", "community", "overlapping"])
@pytest.mark.parametrize("sent", ["sums", "features"])
def test_as_many_hops_as_convolutions_are_exact_on_any_partition(network, hops, kind, sent):
    federation = {
        "random": small_federation,
        "dense": lambda: small_federation(sparse=False),
        "community": community_federation,
        "overlapping": lambda: small_federation(10, scheme="metis-overlapping"),
    }[kind]()
    ours = create("fedgcn", federation, network, hops=hops, sent=sent)
    fewer = create("fedgcn", federation, network, hops=hops - 1, sent=sent)
    central = create("central", federation, network)
    for method in (ours, fewer, central):
        method.build()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, value in central.parameters.items():
            value.add_(torch.randn(value.shape, generator=generator))
            for method in (ours, fewer):
                method.parameters[name].copy_(value)
    torch.testing.assert_close(ours.predict(), central.predict(), atol=1e-5, rtol=1e-5)
    assert not torch.allclose(fewer.predict(), central.predict(), atol=1e-2)


def test_one_descent_step_a_round_is_central_training():
    schedule = replace(SCHEDULE, rounds=4, local_epochs=1)
    network = Architecture("gcn", (8, 6), dropout=0.0)
    federation = community_federation()
    ours = create("fedgcn", federation, network, schedule)
    central = create("central", federation, network, schedule)
    train(ours)
    train(central)
    for name, value in central.parameters.items():
        torch.testing.assert_close(ours.parameters[name][:1], value, atol=1e-6, rtol=1e-5)


def test_it_predicts_links_from_edges_that_are_not_held_out():
    federation = community_federation()
    network = Architecture("gcn", (8, 6))
    method = make_method("fedgcn", {}, federation, network, SCHEDULE, task="link-prediction")
    assert train(method).metrics["roc_auc"] > 0
    shown = method.federation.graph.num_edges() + method.federation.inter.num_edges()
    assert shown < federation.graph.num_edges() + federation.inter.num_edges()
