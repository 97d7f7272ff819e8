"""Clients as other libraries give them."""

from typing import Any

import numpy as np
import pytest

from fedsub.datasets.errors import UserError
from fedsub.datasets.partition.base import clients_from

WANTED = [0, 1, 1, 0]


@pytest.mark.parametrize(
    "given",
    [
        np.array(WANTED), WANTED, np.array(WANTED, dtype=float), np.array(WANTED, dtype=bool),
        np.array(["north", "south", "south", "north"]), [{0, 3}, {1, 2}], [[0, 3], [1, 2]],
        [frozenset({3, 0}), frozenset({2, 1})], {3: 0, 0: 0, 1: 1, 2: 1},
    ],
)  # fmt: skip
def test_every_spelling_gives_the_same_clients(given: Any) -> None:
    assert clients_from(given).tolist() == WANTED


def test_names_of_nodes_are_in_the_graphs_order() -> None:
    names = ["d", "b", "a", "c"]
    assert clients_from({"a": 1, "b": 1, "c": 0, "d": 0}, names).tolist() == WANTED
    assert clients_from([{"c", "d"}, {"a", "b"}], names).tolist() == WANTED


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([{0, 1}, {1, 2}], "a node is in two of the sets"),
        ({0: 0, 2: 1}, "the partition's 2 nodes are not the graph's"),
        ({"a": 0, "b": 1}, "the partition's 2 nodes are not the graph's"),
        (np.array([0.5, 1]), r"cannot be a ndarray of shape \(2,\) of float64"),
        (np.zeros((2, 2), dtype=int), r"of shape \(2, 2\)"),
        (7, r"cannot be a int of shape \(\)"),
    ],
)
def test_what_is_no_partition_is_refused(given: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        clients_from(given)
