"""Clients with skewed labels, filled communities, and natural clients: what defines each scheme."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsub.datasets.errors import UserError
from fedsub.datasets.federation import federate
from fedsub.datasets.graph import build_dataset
from fedsub.datasets.partition import partition
from fedsub.datasets.partition.base import Drawn, as_partition
from fedsub.datasets.partition.louvain_openfgl import place
from fedsub.datasets.partition.statistics import describe
from fedsub.datasets.registry import load
from fedsub.datasets.splits import make_split
from tests.datasets.partition.test_partition import SKEWED, graphs


@pytest.mark.parametrize("scheme", SKEWED)
@given(case=graphs(least=2), seed=st.integers(0, 2**40))
@settings(max_examples=25)
def test_a_client_without_edges_is_given_one_and_no_other_is(scheme, case, seed):
    dataset, clients = case
    try:
        with_edges = partition(dataset, scheme, clients, seed)
        without = partition(dataset, scheme, clients, seed, random_edge=False)
    except UserError:
        return
    assert np.array_equal(with_edges.assignment(dataset.nodes), without.assignment(dataset.nodes))
    assert not without.added.size
    split = make_split(dataset, without, "ratio[train=0.4,validation=0.2,test=0.4]", seed)
    if not (split.train.any() and split.test.any()):
        return
    before, after = (federate(dataset, parts, split) for parts in (without, with_edges))
    counts = np.bincount(before.client[before.graph.edges()[0]].numpy(), minlength=clients)
    lonely = np.flatnonzero((counts == 0) & (with_edges.sizes > 1))
    found = np.bincount(after.client[after.graph.edges()[0]].numpy(), minlength=clients)
    expected = counts.copy()
    expected[lonely] = 2
    assert np.array_equal(found, expected)
    assert np.array_equal(with_edges.assignment(dataset.nodes)[with_edges.added], np.tile(lonely, (2, 1)))
    assert after.inter.num_edges() == before.inter.num_edges()
    # in both directions, in the graph that was divided too
    matrix = after.source.adjacency()
    assert matrix.nnz == dataset.adjacency().nnz + 2 * len(lonely)
    assert (matrix != matrix.T).nnz == 0
    assert describe(dataset, with_edges).edges_min == found.min() // 2


@pytest.mark.parametrize(
    ("edges", "says"),
    [
        (np.array([0, 1]), "give two rows"),
        (np.array([[0], [9]]), "does not join two of the nodes 0…3"),
        (np.array([[0], [2]]), "names 1 of 2 clients"),
    ],
)
def test_edges_and_names_that_a_scheme_adds_must_fit(edges, says):
    with pytest.raises(UserError, match=says):
        as_partition("mine", Drawn(np.array([0, 0, 1, 1]), edges, ("one",)), 4, 2)


def test_an_edge_that_is_there_or_is_added_twice_stays_one():
    dataset = build_dataset("path", np.array([0, 1]), np.array([1, 2]), np.ones((4, 1)), np.arange(4))
    edges, year = np.array([[0, 2, 3], [1, 3, 2]]), np.array([2001])
    drawn = Drawn(np.zeros(4, dtype=int), edges, year)  # type: ignore[arg-type]
    parts = as_partition("mine", drawn, 4, 1)
    assert parts.names == ("2001",)
    assert parts.completed(dataset).graph.num_edges() == 6


def test_the_smaller_alpha_the_larger_the_skew() -> None:
    dataset = load("community[nodes=1200]")

    def distance(alpha: float, seed: int) -> float:
        found = describe(dataset, partition(dataset, f"dirichlet[alpha={alpha},least=1]", 5, seed))
        assert found.label_distance is not None
        return found.label_distance / 2

    means = [np.mean([distance(alpha, seed) for seed in range(6)]) for alpha in (0.1, 1.0, 10.0, 1000.0)]
    assert means[0] > means[1] > means[2] > means[3]
    assert means[0] > 0.4
    assert means[3] < 0.05


@pytest.mark.parametrize(
    ("sizes", "clients", "share", "delta", "homes"),
    [
        # Each takes pieces until it has its share; the last one takes what is left.
        ([4, 4, 4, 4, 2, 2], 2, 10, 3, [0, 0, 0, 1, 1, 1]),
        # 8 + 5 would reach 10 + 2: the next client is tried, and stays the one that is pointed at.
        ([8, 5, 4, 3], 2, 10, 2, [0, 1, 1, 0]),
        # Nothing fits anywhere: the smallest open client takes it.
        ([9, 8, 7], 2, 12, 1, [0, 1, 1]),
    ],
)
def test_a_client_is_filled_before_the_next_one_starts(sizes, clients, share, delta, homes):
    assert place(np.array(sizes), clients, share, delta).tolist() == homes


def test_natural_clients_are_the_values_of_an_attribute():
    year = np.array([2003, 2001, -1, 2003, 2002, 2001])
    country = np.array(["fr", "de", "", "de", "fr", "fr"])
    dataset = build_dataset("dated", np.array([0]), np.array([1]), np.ones((6, 1)), np.zeros(6, dtype=int))
    dataset = replace(dataset, attributes={"year": year, "country": country})
    found = partition(dataset, "attribute[key=year]", 3, 0)
    assert [nodes.tolist() for nodes in found.nodes] == [[1, 5], [4], [0, 3]]
    found = partition(dataset, "attribute[key=country]", 2, 9)
    assert [nodes.tolist() for nodes in found.nodes] == [[1, 3], [0, 4, 5]]
    with pytest.raises(UserError, match="year of dated has 3 values: ask for that many clients, not 2"):
        partition(dataset, "attribute[key=year]", 2, 0)
    with pytest.raises(UserError, match=r"no attribute 'month': set key to one of its own \(country, year\)"):
        partition(dataset, "attribute[key=month]", 2, 0)
    with pytest.raises(UserError, match=r"short text or a whole number .* a column attribute_month\)"):
        partition(dataset, "attribute[key=month]", 2, 0)
