"""FedGNN without an edge inside a client."""

import torch

from fedsub.methods.fedgnn import by_neighbourhood
from tests.methods.federations import small_federation


def test_neighbourhood_without_edges():
    federation = small_federation(clients=5, scheme="metis-overlapping")
    assert len(by_neighbourhood(federation).node) > 0
    federation.graph.remove_edges(torch.arange(federation.graph.num_edges()))
    assert len(by_neighbourhood(federation).node) == 0
