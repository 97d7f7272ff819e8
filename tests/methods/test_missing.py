"""Methods where clients lack edges, training nodes or classes."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedsub.datasets.federation import federate
from fedsub.datasets.partition import Partition
from fedsub.datasets.splits import make_split
from fedsub.methods.adafgl import homophily
from fedsub.methods.core.base import Schedule
from fedsub.methods.core.training import end_round, start_round
from fedsub.methods.fedgnn import by_neighbourhood
from fedsub.methods.fedlit.clustering import align, regroup
from fedsub.methods.tasks import NodeClassification
from tests.methods.federations import (
    SPLIT,
    community_federation,
    make_method,
    small_dataset,
    small_federation,
)
from tests.methods.loops import Clients
from tests.methods.rounding import assert_agree

SCHEDULE = Schedule(rounds=4, local_epochs=2, learning_rate=0.2, weight_decay=1e-3, optimiser="sgd")
LINK_TYPES = {"types": 3, "width": 8}


@pytest.mark.parametrize(
    ("name", "backbone", "options"),
    [
        *(("fedlit", backbone, LINK_TYPES) for backbone in ("gcn", "sgc", "graphsage")),
        # Of two numbers in a factor dropout leaves none at some nodes.
        *(("fediih", "gcn", {"width": 2, "variational": share}) for share in (0.0, 1.0)),
    ],
)
def test_clients_may_be_without_any_edge(name: str, backbone: str, options: dict[str, Any]) -> None:
    federation = community_federation()
    federation.graph.remove_edges(torch.arange(federation.graph.num_edges()))
    schedule = Schedule(rounds=5, local_epochs=2, learning_rate=0.02)
    clients = Clients(schedule, backbone, dropout=0.5, federation=federation)
    method, outcome = clients.run(name, **options)
    assert outcome.curve["loss"][-1] < outcome.curve["loss"][0]
    assert all(value.isfinite().all() for value in method.parameters.values())


def test_clients_without_edges_have_no_say_in_link_types() -> None:
    dataset, nodes = small_dataset(), np.arange(60)
    parts = Partition("alone", (nodes[:1], nodes[1:30], nodes[30:59], nodes[59:]))
    method = make_method("fedlit", LINK_TYPES, federate(dataset, parts, make_split(dataset, parts, SPLIT, 0)))
    method.build()
    start_round(method, 1)
    before = method.centroids.clone()
    assert before[0].abs().sum() == before[3].abs().sum() == 0
    end_round(method)
    match = align(before, before[1])
    assert match[1].tolist() == [0, 1, 2]
    expected = (before[1] + regroup(before, match)[2]) / 2
    torch.testing.assert_close(method.server_centroids, expected)


def test_without_edges_nobody_has_a_neighbourhood_of_anothers_node() -> None:
    federation = small_federation(clients=5, scheme="metis-overlapping")
    assert len(by_neighbourhood(federation)[0]) > 0
    federation.graph.remove_edges(torch.arange(federation.graph.num_edges()))
    assert len(by_neighbourhood(federation)[0]) == 0


def test_homophily_is_full_where_neighbours_agree_and_none_without_training_nodes() -> None:
    federation = community_federation()
    first = federation.client == 0
    agreed = replace(federation, labels=federation.client.clone(), train=federation.train & ~first)
    found = homophily(NodeClassification(agreed), torch.Generator().manual_seed(0))
    assert found[0] == 0
    assert (found[1:] > 0.8).all()


def test_a_class_without_training_nodes_does_no_harm_to_a_generator_of_nodes() -> None:
    federation = small_federation()
    federation = replace(federation, train=federation.train & (federation.labels != 1))
    small = {"nodes": 14, "noise": 4, "neighbours": 3, "server_rounds": 2, "model_steps": 2}
    method, outcome = Clients(SCHEDULE, federation=federation).run("fedtad", **small)
    assert not method.reliability[:, 1].any()
    assert outcome.curve["loss"][-1] < outcome.curve["loss"][0]


def test_the_classifier_predicts_until_a_class_has_a_prototype() -> None:
    """Of three clients only the first, which has no training node, takes part."""
    federation = small_federation()
    federation = replace(federation, train=federation.train & (federation.client != 0))
    clients = Clients(replace(SCHEDULE, leavers="1@1+2@1"), federation=federation)
    found, plain = (clients.run("fedproto", predict=by)[0] for by in ("prototypes", "classifier"))
    assert not found.known.any()
    assert_agree(found.predict(), plain.predict())


def test_a_class_that_nobody_trains_on_is_not_predicted_where_all_prototypes_are_far() -> None:
    federation = small_federation()
    federation = replace(federation, train=federation.train & (federation.labels != 1))
    method, _ = Clients(SCHEDULE, federation=federation).run("fedproto", predict="prototypes")
    method.prototypes = 1e4 * (1 + torch.rand_like(method.prototypes))
    assert not (method.predict().argmax(1) == 1).any()
