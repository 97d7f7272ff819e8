"""Every scheme keeps its promise on any small graph."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsub.datasets import registry
from fedsub.datasets.errors import UserError
from fedsub.datasets.graph import Dataset, build_dataset
from fedsub.datasets.partition import balance, partition
from fedsub.datasets.partition.louvain import communities
from fedsub.datasets.partition.metis import LARGEST

COMPLETE = [
    *("metis", "metis[recursive=true]", "louvain", "louvain[slack=0]", "louvain[merge=random]"),
    *("kmeans", "kmeans[slack=0]", "kmeans[balanced=false]", "random", "random[balanced=true]"),
    *("dirichlet", "dirichlet[alpha=0.1,least=1]", "louvain-openfgl[delta=0]", "louvain-openfgl[delta=2]"),
]
"""Schemes that give every node to exactly one client."""
SKEWED = COMPLETE[-4:]
"""Those that may refuse a graph, with a sentence."""


def graph(nodes: int, edges: int, seed: int, features: int = 4) -> Dataset:
    """A random graph, isolated nodes and components included."""
    generator = np.random.default_rng(seed)
    source, target = generator.integers(nodes, size=(2, edges))
    labels = generator.integers(3, size=nodes)
    return build_dataset("small", source, target, generator.random((nodes, features)), labels, classes=3)


@st.composite
def graphs(draw, least: int = 1):
    """Draw a random graph with `least` to 60 nodes and a number of clients, at most its nodes."""
    nodes = draw(st.integers(least, 60))
    edges = draw(st.integers(0, 4 * nodes))
    clients = draw(st.integers(1, nodes))
    return graph(nodes, edges, draw(st.integers(0, 2**32 - 1))), clients


def limit(scheme: str, nodes: int, clients: int) -> int:
    """Return the largest number of nodes that a client may hold."""
    if scheme.startswith("metis"):
        return max(math.ceil(LARGEST * nodes / clients), 1)
    if scheme == "random[balanced=true]":
        return math.ceil(nodes / clients)
    if scheme in ("random", "kmeans[balanced=false]") or scheme in SKEWED:
        return nodes
    return math.ceil(nodes / clients) + (0 if "slack=0" in scheme else 20)


@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
@pytest.mark.parametrize("scheme", COMPLETE)
@given(case=graphs(), seed=st.integers(0, 2**40))
@settings(max_examples=25)
def test_every_node_has_one_client_and_no_client_is_empty_or_too_large(scheme, case, seed):
    dataset, clients = case
    try:
        found = partition(dataset, scheme, clients, seed)
    except UserError:
        assert scheme in SKEWED
        return
    assert found.clients == clients
    assert sorted(found.origin) == list(range(dataset.nodes))
    assert found.sizes.min() >= (5 if scheme == "dirichlet" else 1)
    assert found.sizes.max() <= limit(scheme, dataset.nodes, clients)
    assert all((np.diff(nodes) > 0).all() for nodes in found.nodes)
    assert (found.assignment(dataset.nodes)[found.origin] == found.client).all()


@given(case=graphs(least=5), seed=st.integers(0, 1000))
@settings(max_examples=25)
def test_overlapping_clients_are_random_halves_of_metis_parts(case, seed):
    dataset, count = case
    count = max(1, count // 5)
    found = partition(dataset, "metis-overlapping", 5 * count, seed)
    parts = partition(dataset, "metis", count, seed)
    assert found.clients == 5 * count
    for client, nodes in enumerate(found.nodes):
        part = parts.nodes[client // 5]
        assert np.isin(nodes, part).all()
        assert len(nodes) == max(1, len(part) // 2)


def test_overlapping_halves_of_one_part_differ():
    found = partition(graph(200, 800, 0), "metis-overlapping", 10, 3)
    assert found.overlapping
    assert not np.array_equal(found.nodes[0], found.nodes[1])
    with pytest.raises(UserError, match="share nodes"):
        found.assignment(200)


@given(case=graphs(), seed=st.integers(0, 1000))
@settings(max_examples=25)
def test_louvain_largest_keeps_whole_communities_largest_first(case, seed):
    dataset, clients = case
    whole = communities(dataset.adjacency(), seed)
    sizes = np.sort(np.bincount(whole))[::-1]
    if clients > len(sizes):
        with pytest.raises(UserError, match="fewer than"):
            partition(dataset, "louvain-largest", clients, seed)
        return
    found = partition(dataset, "louvain-largest", clients, seed)
    assert found.sizes.tolist() == sizes[:clients].tolist()
    assert all(len(np.unique(whole[nodes])) == 1 for nodes in found.nodes)


@pytest.mark.parametrize(("clients", "merged"), [(11, 0), (10, 1), (7, 4), (6, 5)])
def test_imbalanced_clients_are_merged_metis_parts(clients, merged):
    dataset = graph(400, 1600, 2)
    parts = partition(dataset, "metis", 20, 0)
    sizes = parts.sizes
    found = partition(dataset, "metis-imbalanced", clients, 0)
    assert sorted(found.origin) == list(range(400))
    expected = [part.sum() for part in np.split(sizes[:14], [5, 8, 10, 12])]
    assert found.sizes[:5].tolist() == expected
    left = sorted(sizes[14:].tolist())
    for _ in range(merged):
        left = sorted([left[0] + left[1], *left[2:]])
    assert sorted(found.sizes[5:].tolist()) == left


def test_louvain_packs_communities_whole_where_they_fit():
    """Four cliques of 10 beside four pairs, for four clients: each keeps a clique and gets a pair."""
    cliques = [np.array(np.triu_indices(10, k=1)) + 10 * block for block in range(4)]
    pairs = [np.array([[40 + 2 * pair], [41 + 2 * pair]]) for pair in range(4)]
    source, target = np.concatenate([*cliques, *pairs], axis=1)
    dataset = build_dataset("cliques", source, target, np.ones((48, 1)), np.zeros(48, dtype=int))
    found = partition(dataset, "louvain[slack=0]", 4, 0)
    assert found.sizes.tolist() == [12] * 4
    for nodes in found.nodes:
        assert len(set(nodes[nodes < 40] // 10)) == 1
        assert len(set(nodes[nodes >= 40] // 2)) == 1


@pytest.mark.parametrize("slack", [3, 20])
def test_dealt_pieces_go_to_the_next_client_in_turn_with_room(slack: int) -> None:
    """Compares with a plain implementation of the rule, on groups of random sizes."""
    for seed in range(20):
        generator = np.random.default_rng(seed)
        groups = generator.choice(12, 150, p=generator.dirichlet(np.ones(12)))
        share, limit = 150 // 5, 150 // 5 - slack
        pieces = [
            list(held[start : start + limit])
            for group in np.unique(groups)
            for held in [np.flatnonzero(groups == group)]
            for start in range(0, len(held), limit)
        ]
        clients: list[list[int]] = [[] for _ in range(5)]
        turn = 0
        for piece in sorted(pieces, key=len, reverse=True):
            for step in range(5):
                if len(clients[(turn + step) % 5]) + len(piece) <= share + slack:
                    turn = (turn + step) % 5
                    break
            else:
                turn = min(range(5), key=lambda client: len(clients[client]))
            clients[turn] += piece
            turn = (turn + 1) % 5
        found = balance.deal(groups, 5, slack)
        assert [np.flatnonzero(found == client).tolist() for client in range(5)] == list(map(sorted, clients))


def test_kmeans_finds_separate_clusters():
    centres = np.repeat(np.eye(3) * 10, 20, axis=0)
    features = centres + np.random.default_rng(0).normal(size=centres.shape) * 0.1
    dataset = build_dataset("blobs", np.array([0]), np.array([1]), features, np.zeros(60, dtype=int))
    found = partition(dataset, "kmeans[balanced=false]", 3, 0)
    assert sorted(tuple(nodes // 20) for nodes in found.nodes) == [(k,) * 20 for k in range(3)]


def test_planted_clients_are_those_of_the_generated_graph():
    dataset = registry.load("synthetic_figure3[seed=2]")
    found = partition(dataset, "planted", 20, 0)
    assert [nodes.tolist() for nodes in found.nodes] == np.arange(600).reshape(20, 30).tolist()
    with pytest.raises(UserError, match="20 planted clients"):
        partition(dataset, "planted", 10, 0)
    with pytest.raises(UserError, match=r"no planted clients.*synthetic_figure1"):
        partition(graph(20, 40, 0), "planted", 2, 0)


@pytest.mark.parametrize(
    ("scheme", "clients", "message"),
    [
        ("metis", 21, "at most one client per node"),
        ("metiss", 2, "did you mean metis"),
        ("louvain[slack=-1]", 2, "negative"),
        ("louvain[merge=in-turn,slack=10]", 2, "below the 10 nodes"),
        ("louvain-largest[slack=1]", 2, "takes no options"),
        ("metis-overlapping", 7, "multiple of 5"),
        ("metis-imbalanced", 5, "6 to 11 clients"),
        ("dirichlet[least=11]", 2, "lower least"),
        ("louvain-openfgl[delta=10]", 2, "below the 10 nodes"),
    ],
)
def test_bad_requests_are_one_clear_sentence(scheme, clients, message):
    with pytest.raises(UserError, match=message) as raised:
        partition(graph(20, 40, 0), scheme, clients, 0)
    assert "\n" not in str(raised.value)
