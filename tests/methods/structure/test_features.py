"""Structure features: degrees, graphlets, Hop2Vec's initial vectors, and their cache on disk."""

import itertools

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from orca import orca_nodes

from fedsub.datasets.errors import UserError
from fedsub.methods.structure import homomorphisms, one_hot_degrees, random_start
from fedsub.methods.structure.graphlets import ORBITS, _graphlets, count_orbits, graphlet_degrees
from tests.methods.federations import as_matrix, random_graph

pytestmark = pytest.mark.usefixtures("own_cache")


def test_degrees_are_one_hot_and_the_last_column_takes_the_rest() -> None:
    features = one_hot_degrees(as_matrix(nx.star_graph(5)), 4)
    assert features.sum(dim=1).tolist() == [1] * 6
    assert features.argmax(dim=1).tolist() == [3, 1, 1, 1, 1, 1]


def orca_orbits(adjacency: sp.csr_matrix) -> np.ndarray:
    """Return the counts of the package `orca-graphlets`, the authors' algorithm."""
    upper = sp.triu(adjacency, 1).tocoo()
    edges = np.stack([upper.row, upper.col], axis=1).astype(np.int64)
    if not len(edges):
        return np.zeros((adjacency.shape[0], ORBITS), dtype=np.int64)
    return np.asarray(orca_nodes(edges, num_nodes=adjacency.shape[0], graphlet_size=5))


@settings(max_examples=40)
@given(st.integers(1, 24), st.floats(0, 1), st.integers(0, 10**6))
def test_graphlets_equal_orcas_on_any_graph(nodes: int, share: float, seed: int) -> None:
    graph = random_graph(nodes, share, seed)
    np.testing.assert_array_equal(count_orbits(graph), orca_orbits(graph))


def test_graphlets_of_hubs_and_of_many_blocks_equal_orcas(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = as_matrix(nx.barabasi_albert_graph(150, 6, seed=1))
    expected = orca_orbits(graph)
    for block, waiting in ((1, 1000), (7, 8 * 150 * 7), (150, 2**24)):
        monkeypatch.setattr(homomorphisms, "BLOCK", block)
        monkeypatch.setattr(homomorphisms, "WAITING", waiting)
        np.testing.assert_array_equal(count_orbits(graph), expected)


def test_the_table_of_graphlets_is_that_of_all_small_graphs_up_to_symmetry() -> None:
    """Thirty distinct graphs; nodes share an orbit's number if and only if a symmetry swaps them."""
    graphs = [(nx.Graph(edges), orbits) for edges, orbits in _graphlets()]
    atlas = [graph for graph in nx.graph_atlas_g() if 2 <= len(graph) <= 5 and nx.is_connected(graph)]
    assert len(graphs) == len(atlas) == 30
    assert all(sum(nx.is_isomorphic(graph, other) for graph, _ in graphs) == 1 for other in atlas)
    assert sorted({orbit for _, orbits in graphs for orbit in orbits}) == list(range(73))
    for graph, orbits in graphs:
        symmetries = list(nx.isomorphism.GraphMatcher(graph, graph).isomorphisms_iter())
        for a, b in itertools.product(graph, graph):
            assert any(each[a] == b for each in symmetries) == (orbits[a] == orbits[b])


def test_a_graph_whose_counts_would_not_be_exact_is_refused() -> None:
    with pytest.raises(UserError, match="9742 neighbours"):
        graphlet_degrees(as_matrix(nx.star_graph(9742)))


def test_hop2vec_starts_normal_with_deviation_a_twentieth() -> None:
    start = random_start(400, 250, torch.Generator().manual_seed(1)).double()
    count = start.numel()
    assert abs(float(start.mean())) < 4 * 0.05 / count**0.5
    assert abs(float(start.var()) / 0.05**2 - 1) < 4 * (2 / count) ** 0.5
    kurtosis = float((start / start.std()).pow(4).mean())
    assert abs(kurtosis - 3) < 4 * (24 / count) ** 0.5
    assert torch.equal(start.float(), random_start(400, 250, torch.Generator().manual_seed(1)))
