"""Partitions from files, plug-ins and other libraries, and those remembered on disk."""

import importlib.metadata
import types
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from fedsub.datasets.errors import UserError
from fedsub.datasets.graph import build_dataset, largest_component
from fedsub.datasets.partition import kmeans, louvain, metis, partition
from fedsub.datasets.partition.base import clients_from


@pytest.fixture
def dataset():
    """A path of six nodes."""
    return build_dataset("path", np.arange(5), np.arange(1, 6), np.ones((6, 2)), np.array([0, 0, 1, 1, 0, 1]))


def given(path, key: str = "") -> str:
    return f"file[path={path}{f',key={key}' if key else ''}]"


@pytest.mark.parametrize("name", ["clients.npy", "clients.npz", "clients.csv", "clients.txt"])
def test_an_integer_per_node(dataset, tmp_path, name):
    client = np.array([1, 0, 0, -1, 1, 1])
    if name.endswith("npy"):
        np.save(tmp_path / name, client)
    elif name.endswith("npz"):
        np.savez(tmp_path / name, client=client)
    else:
        separator = "," if name.endswith("csv") else "\n"
        (tmp_path / name).write_text("# of each node\n" + separator.join(map(str, client)), "utf-8-sig")
    found = partition(dataset, given(tmp_path / name), 2, 0)
    assert [nodes.tolist() for nodes in found.nodes] == [[1, 2], [0, 4, 5]]


def test_nodes_and_sizes_as_fedspray_publishes_them(dataset, tmp_path, monkeypatch):
    (tmp_path / "partitions").mkdir()
    np.savez(
        tmp_path / "partitions" / "own.npz",
        Path_nodes=np.array([5, 4, 0], dtype=np.int32),
        Path_sizes=np.array([2, 1], dtype=np.int32),
        Other_nodes=np.array([0]),
        Other_sizes=np.array([1]),
    )
    monkeypatch.setenv("FEDSUB_DATA", str(tmp_path))
    found = partition(dataset, "file[path=partitions/own.npz,key=Path]", 2, 0)
    assert [nodes.tolist() for nodes in found.nodes] == [[4, 5], [0]]
    with pytest.raises(UserError, match="Other, Path"):
        partition(dataset, "file[path=partitions/own.npz,key=Pth]", 2, 0)


def test_a_client_for_every_node_of_a_graph_whose_largest_component_is_taken(tmp_path):
    """Clients are given per node of the graph or of the component, and neither is read as the other."""
    ends = np.array([0, 2, 3, 4]), np.array([1, 3, 4, 5])
    part = largest_component(build_dataset("parts", *ends, np.ones((6, 1)), np.arange(6) % 2))
    for name, client in (("whole", [1, 1, 0, 1, 0, 1]), ("part", [0, 1, 0, 1])):
        np.save(tmp_path / f"{name}.npy", np.array(client))
        found = partition(part, given(tmp_path / f"{name}.npy"), 2, 0)
        assert [nodes.tolist() for nodes in found.nodes] == [[0, 2], [1, 3]]
    np.save(tmp_path / "lost.npy", np.array([1, 1, 0, 0, 0, 0]))
    np.savez(tmp_path / "lost.npz", own_nodes=np.array([4, 2, 0]), own_sizes=np.array([2, 1]))
    for lost in (given(tmp_path / "lost.npy"), given(tmp_path / "lost.npz", key="own")):
        with pytest.raises(UserError, match=r"client 1 in .* has no node in the largest component of parts"):
            partition(part, lost, 2, 0)
    np.savez(tmp_path / "lists.npz", own_nodes=np.array([4, 2, 0, 5, 3]), own_sizes=np.array([3, 2]))
    found = partition(part, given(tmp_path / "lists.npz", key="own"), 2, 0)
    assert [nodes.tolist() for nodes in found.nodes] == [[0, 2], [1, 3]]
    np.savez(tmp_path / "lists.npz", own_nodes=np.array([4, 2, 6, 5, 3]), own_sizes=np.array([3, 2]))
    with pytest.raises(UserError, match="gives client 0 a node outside"):
        partition(part, given(tmp_path / "lists.npz", key="own"), 2, 0)
    np.save(tmp_path / "other.npy", np.array([0, 1, 0, 1, 0]))
    with pytest.raises(UserError, match="assigns 5 nodes but the graph has 4"):
        partition(part, given(tmp_path / "other.npy"), 2, 0)


def test_a_key_stays_the_text_it_was_written_as(dataset, tmp_path):
    keys = {"007": [0, 1], "7": [1, 0], "True": [2, 3], "1e3": [3, 2]}
    arrays = {key: np.repeat(pair, 3) % 2 for key, pair in keys.items()}
    np.savez(tmp_path / "keys.npz", **arrays)  # type: ignore[arg-type]
    for key, (first, _) in keys.items():
        found = partition(dataset, given(tmp_path / "keys.npz", key=key), 2, 0)
        assert found.assignment(6)[0] == first % 2
        assert f"key={key}," in found.scheme


@pytest.mark.parametrize(
    ("client", "message"),
    [
        ([0, 1, 0], "assigns 3 nodes but the graph has 6"),
        ([0, 0, 0, 2, 2, 2], "leaves client 1 without a node"),
        ([0, 0, 0, 1, 2, -2], "names clients -2 to 2"),
        ([[0, 1], [2, 3], [4, 5]], "not a list of integers"),
    ],
)
def test_files_that_do_not_fit_the_graph(dataset, tmp_path, client, message):
    np.save(tmp_path / "clients.npy", np.array(client))
    with pytest.raises(UserError, match=message):
        partition(dataset, given(tmp_path / "clients.npy"), 3, 0)


@pytest.mark.parametrize(
    ("nodes", "sizes", "clients", "message"),
    [
        ([0, 1], [1, 1], 3, "has 2 clients, not 3: ask for 2"),
        ([0, 1], [1, 0], 2, "do not add up"),
        ([0, 1], [0.5, 1.5], 2, "must be lists of integers"),
        ([0, 0, 1], [2, 1], 2, "the same node twice"),
        ([0, 6], [1, 1], 2, "outside"),
        ([0, 1], [2, 0], 2, "without a node"),
    ],
)
def test_lists_of_nodes_that_do_not_fit_the_graph(dataset, tmp_path, nodes, sizes, clients, message):
    np.savez(tmp_path / "own.npz", a_nodes=np.array(nodes), a_sizes=np.array(sizes))
    with pytest.raises(UserError, match=message):
        partition(dataset, given(tmp_path / "own.npz", key="a"), clients, 0)


def offer(monkeypatch: pytest.MonkeyPatch, result: object) -> None:
    point = types.SimpleNamespace(name="odd", load=lambda: lambda dataset, clients, seed: result)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [point])


@pytest.mark.parametrize("kind", [list, tuple, np.array, torch.tensor])
def test_a_scheme_may_return_any_list_of_clients(dataset, monkeypatch, kind):
    offer(monkeypatch, kind([0, 1, 0, 1, 0, 1]))
    assert partition(dataset, "odd", 2, 0).assignment(6).tolist() == [0, 1, 0, 1, 0, 1]


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (None, "returns a NoneType: return an array"),
        ([0.5, 1, 0, 1, 0, 1], "not a list of integers: give one client per node"),
        ([[0, [1]], [2]], "holds lists within lists"),
    ],
)
def test_schemes_that_return_something_else(dataset, monkeypatch, result, message):
    offer(monkeypatch, result)
    with pytest.raises(UserError, match=message):
        partition(dataset, "odd", 2, 0)


def test_a_partition_is_computed_once(dataset, cache, monkeypatch):
    first = partition(dataset, "metis", 2, 0)
    assert len(list((cache / "partitions").iterdir())) == 1
    monkeypatch.setattr(metis, "_cut", lambda *_, **__: pytest.fail("computed again"))
    again = partition(dataset, "metis", 2, 0)
    assert np.array_equal(first.origin, again.origin)


@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
@pytest.mark.parametrize("module", [metis, kmeans, louvain])
def test_another_version_of_a_scheme_is_computed_anew(dataset, cache, monkeypatch, module):
    scheme = module.__name__.rpartition(".")[2]
    for files in (1, 2):
        partition(dataset, scheme, 2, 0)
        assert len(list((cache / "partitions").iterdir())) == files
        monkeypatch.setattr(module, "VERSION", module.VERSION + 1)


@pytest.mark.filterwarnings("ignore:Reading .* required additional header parsing")
@pytest.mark.parametrize("ending", ["npy", "npz", "compressed.npz"])
@settings(max_examples=60)
@drawn(data=st.data())
def test_any_flipped_byte_of_a_partition_file_is_one_sentence_or_harmless(tmp_path_factory, ending, data):
    dataset = build_dataset("four", np.arange(3), np.arange(1, 4), np.ones((4, 2)), np.zeros(4, dtype=int))
    path = tmp_path_factory.mktemp("flip") / f"clients.{ending}"
    save = {"npy": np.save, "npz": np.savez, "compressed.npz": np.savez_compressed}[ending]
    save(path, np.array([0, 1, 0, 1]))
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    sentence = ""
    try:
        partition(dataset, given(path), 2, 0)
    except UserError as error:
        sentence = str(error)
    assert "\n" not in sentence


WANTED = [0, 1, 1, 0]


@pytest.mark.parametrize(
    "given",
    [
        np.array(WANTED), WANTED, np.array(WANTED, dtype=float), np.array(WANTED, dtype=bool),
        np.array(["north", "south", "south", "north"]), [{0, 3}, {1, 2}], [[0, 3], [1, 2]],
        np.array(["north", "south", "south", "north"], dtype=object), pd.Series(["a", "b", "b", "a"]),
        [frozenset({3, 0}), frozenset({2, 1})], {3: 0, 0: 0, 1: 1, 2: 1},
    ],
)  # fmt: skip
def test_every_spelling_gives_the_same_clients(given: Any) -> None:
    assert clients_from(given).tolist() == WANTED


def test_a_graph_may_be_given_by_its_name() -> None:
    assert partition("community[nodes=60]", "metis", 3, 0).sizes.sum() == 60


def test_names_of_nodes_are_in_the_graphs_order() -> None:
    names = ["d", "b", "a", "c"]
    assert clients_from({"a": 1, "b": 1, "c": 0, "d": 0}, names).tolist() == WANTED
    assert clients_from([{"c", "d"}, {"a", "b"}], names).tolist() == WANTED


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([{0, 1}, {1, 2}], "a node is in two of the sets"),
        ([[0, 0, 1, 1]], "give the list itself"),
        ([{0}, [[1]]], "a node cannot be a list or set"),
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
