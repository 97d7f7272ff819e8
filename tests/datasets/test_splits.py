"""Every node has at most one role, and as many nodes have it as asked for."""

import tempfile
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedsub.datasets.errors import UserError
from fedsub.datasets.federation import federate
from fedsub.datasets.graph import Dataset, build_dataset, induced, largest_component
from fedsub.datasets.partition.base import Partition
from fedsub.datasets.splits import make_split


@st.composite
def partitions(draw):
    """(labels, partition): 1 to 80 nodes, 1 to 6 clients that may overlap and leave nodes out."""
    nodes = draw(st.integers(1, 80))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = generator.integers(1, nodes + 1, size=draw(st.integers(1, 6)))
    parts = tuple(np.sort(generator.choice(nodes, size, replace=False)) for size in sizes)
    return generator.integers(4, size=nodes), Partition("drawn", parts)


def whole(nodes: int) -> Partition:
    """One client that holds all nodes."""
    return Partition("whole", (np.arange(nodes),))


def roles(split) -> np.ndarray:
    """0, 1, 2 for train, validation, test and 3 for none, having checked that no copy has two."""
    stacked = np.stack([split.train, split.validation, split.test])
    assert stacked.dtype == bool
    assert stacked.sum(axis=0).max() <= 1
    return np.where(stacked.any(axis=0), stacked.argmax(axis=0), 3)


@given(case=partitions(), seed=st.integers(0, 2**40))
@settings(max_examples=30)
def test_copies_share_their_role_where_it_is_drawn_before_partitioning(case, seed):
    labels, partition = case
    assume(np.bincount(labels).max() > 3)
    for scheme in ("ratio[train=0.2,validation=0.3,test=0.4]", "per-class[train=3,test=1]"):
        found = roles(make_split(labels, partition, scheme, seed, 4))
        assert len(found) == len(partition.origin)
        by_node = np.full(len(labels), -1)
        by_node[partition.origin] = found
        assert np.array_equal(found, by_node[partition.origin])


@given(nodes=st.integers(1, 300), train=st.floats(0.05, 0.9), seed=st.integers(0, 1000))
@settings(max_examples=30)
def test_ratio_counts(nodes, train, seed):
    labels = np.zeros(nodes, dtype=np.uint8)
    test = (1 - train) / 2
    scheme = f"ratio[train={train},validation={1 - train - test},test={test}]"
    split = make_split(labels, whole(nodes), scheme, seed)
    assert split.train.sum() == round(nodes * train)
    assert split.test.sum() == min(round(nodes * test), nodes - round(nodes * train))
    assert (roles(split) < 3).all()


@given(case=partitions(), seed=st.integers(0, 1000))
@settings(max_examples=30)
def test_stratified_shares_hold_inside_each_class(case, seed):
    labels, partition = case
    found = roles(make_split(labels, whole(len(labels)), "ratio[stratified=true]", seed, 4))
    assert (found < 3).all()
    for size, held in zip(np.bincount(labels), (found[labels == c] for c in range(4)), strict=False):
        assert (held == 0).sum() == round(0.2 * size)
    scheme = "ratio-per-client[train=0.2,validation=0.4,test=0.4,stratified=true,rounding=floor]"
    found = roles(make_split(labels, partition, scheme, seed, 4))
    assert (found < 3).all()
    for client, nodes in enumerate(partition.nodes):
        for label, size in enumerate(np.bincount(labels[nodes])):
            own = found[partition.client == client][labels[nodes] == label]
            assert ((own == 0).sum(), (own == 1).sum()) == (int(0.2 * size), int(0.4 * size))


@pytest.mark.parametrize("rounding", ["nearest", "floor"])
@pytest.mark.parametrize("shares", [(0.4, 0.3, 0.3), (0.1, 0.2, 0.3), (0.33, 0.33, 0.33)])
def test_shares_hold_inside_each_client_in_every_rounding(shares, rounding):
    """In clients of 1 to 40 nodes, also where nodes are left; of two nodes 0.33 is one, three times."""
    starts = np.cumsum(np.arange(41))
    partition = Partition("growing", tuple(map(np.arange, starts[:-1], starts[1:])))
    train, validation, test = shares
    options = f"train={train},validation={validation},test={test},rounding={rounding}"
    found = roles(make_split(np.zeros(820, dtype=int), partition, f"ratio-per-client[{options}]", 0, 1))
    for client, size in enumerate(partition.sizes.tolist()):
        trained = max(round(train * size), 1)
        tested = min(round(test * size), size - trained)
        # Shares that add up to one leave no node; the rest goes to validation, or, of floors, to test.
        validated = min(round(validation * size), size - trained - tested)
        floors = [int(share * size) for share in shares]
        if train == 0.4:
            validated, floors[2] = size - trained - tested, size - sum(floors[:2])
        expected = {"nearest": [trained, validated, tested], "floor": floors}[rounding]
        assert np.bincount(found[partition.client == client], minlength=4)[:3].tolist() == expected


def labelled(nodes: int, official: np.ndarray | None = None, classes: int = 2) -> Dataset:
    dataset = build_dataset("dots", np.zeros(0), np.zeros(0), np.ones((nodes, 1)), np.arange(nodes) % classes)
    return replace(dataset, official=official)


def test_the_official_split_follows_its_nodes():
    """Also if clients overlap or leave nodes out, and after taking the largest component."""
    drawn = np.random.default_rng(0).integers(4, size=(2, 30))
    dataset = labelled(30, np.arange(3)[:, None, None] == drawn)
    partition = Partition("two", (np.arange(20), np.arange(10, 28)))
    for index in range(2):
        found = roles(make_split(dataset, partition, f"official[index={index}]", 5))
        assert np.array_equal(found, drawn[index][partition.origin])
    part = induced(dataset, np.arange(3, 30, 3))
    found = roles(make_split(part, whole(9), "official[index=1]", 0))
    assert np.array_equal(found, drawn[1, 3::3])
    with pytest.raises(UserError, match="has splits 0 to 1"):
        make_split(dataset, partition, "official[index=2]", 0)
    for name, said in (
        ("dots", "or give its nodes the masks train_mask, val_mask"),
        ("coauthor_cs[binary=false]", "use another .*split$"),
        ("cora", r"or delete its archive, cora\.npz"),
    ):
        with pytest.raises(UserError, match=f"has no official split.*{said}"):
            make_split(replace(labelled(5), name=name), whole(5), "official", 0)
    with pytest.raises(UserError, match="needs more than labels"):
        make_split(dataset.labels, partition, "official", 0, 2)


def test_a_split_from_a_file(tmp_path, monkeypatch):
    masks = np.arange(3)[:, None, None] == np.array([[0, 1, 2, 3, 0, 1], [2, 1, 0, 0, 3, 3]])
    stored = dict(zip(("train", "validation", "test"), masks, strict=True))
    path = tmp_path / "split.npz"
    np.savez(path, **stored)
    partition = Partition("two", (np.arange(4), np.arange(2, 6)))
    found = roles(make_split(labelled(6), partition, f"file[path={path},index=1]", 0))
    assert found.tolist() == [2, 1, 0, 0, 0, 0, 3, 3]
    np.savez(path, train=np.array([5, 0]), test=np.array([3]))
    monkeypatch.setenv("FEDSUB_DATA", str(tmp_path))
    found = roles(make_split(labelled(6), whole(6), "file[path=split.npz]", 3))
    assert found.tolist() == [0, 3, 3, 2, 3, 0]


@given(seed=st.integers(0, 2**16), share=st.floats(0.05, 1.0))
def test_a_split_of_ids_is_the_split_of_their_masks(seed: int, share: float) -> None:
    """For any size of the largest component."""
    random = np.random.default_rng(seed)
    source, target = random.integers(0, 30, (2, 25))
    part = largest_component(build_dataset("parts", source, target, np.ones((30, 1)), np.arange(30) % 2))
    role = random.choice(3, 30, p=[share / 2, share / 2, 1 - share])
    masks = {"train": role == 0, "test": role == 1}
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name, arrays in (("masks", masks), ("ids", {key: np.flatnonzero(masks[key]) for key in masks})):
            np.savez(f"{folder}/{name}.npz", **arrays)
            given_as = f"file[path={folder}/{name}.npz]"
            found.append(roles(make_split(part, whole(part.nodes), given_as, 0)).tolist())
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"train": np.array([0, 1]), "test": np.array([1])}, "gives node 1 two roles"),
        ({"train": np.array([0, 9]), "test": np.array([1])}, "neither a mask of 4 nodes nor a list"),
        ({"train": np.ones((2, 4), bool), "test": np.array([1])}, "index=7"),
        ({"train": np.array([0])}, "the array 'test' is missing\\): write it again"),
        ({"train": np.array([0]), "test": np.array([1])}, "holds only one split: index must be 0, not 7"),
    ],
)
def test_a_split_file_that_cannot_be_is_one_clear_sentence(tmp_path, arrays, message):
    np.savez(tmp_path / "split.npz", **arrays)
    with pytest.raises(UserError, match=message) as raised:
        make_split(labelled(4), whole(4), f"file[path={tmp_path / 'split.npz'},index=7]", 0)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("named", "held"), [("test", 2), ("validation", 1)])
@given(case=partitions(), train=st.integers(1, 30), seed=st.integers(0, 1000))
@settings(max_examples=30)
def test_per_class_takes_as_many_of_each_class_and_of_the_rest(named, held, case, train, seed):
    """Of the remaining nodes as many as asked for have the role `named`, the others the role that is left."""
    labels, _ = case
    sizes = np.bincount(labels, minlength=4)
    rest = int(np.maximum(sizes - train, 0).sum())
    assume(rest > 1)
    scheme = f"per-class[train={train},{named}={{}}]"
    found = roles(make_split(labels, whole(len(labels)), scheme.format(rest // 2), seed, 4))
    assert np.bincount(labels[found == 0], minlength=4).tolist() == np.minimum(sizes, train).tolist()
    assert (found == held).sum() == rest // 2
    assert (found == 3 - held).sum() == rest - rest // 2
    with pytest.raises(UserError, match=f"lower {named}"):
        make_split(labels, whole(len(labels)), scheme.format(rest + 1), seed, 4)


@pytest.mark.parametrize(
    ("scheme", "message"),
    [
        ("ratio[train=0.9]", "exceed 1"),
        ("ratio-per-client[train=0]", "leaves no node for training"),
        ("ratio[train=0.5,validation=0.5,test=0]", "leaves no node for test: raise test"),
        ("per-class", "lower test"),
        ("per-class[test=3,validation=2]", "test=3 has no effect with validation=2"),
        ("file[path=nowhere.npz]", "no split file at nowhere.npz"),
    ],
)
def test_bad_requests_are_one_clear_sentence(scheme, message):
    with pytest.raises(UserError, match=message) as raised:
        make_split(labelled(40, classes=4), whole(40), scheme, 0)
    assert "\n" not in str(raised.value)


@given(nodes=st.integers(1, 40), train=st.floats(0.01, 0.98), seed=st.integers(0, 1000))
@settings(max_examples=30)
def test_a_federation_has_nodes_to_train_and_to_test_on(nodes, train, seed):
    """Shares that round to no node at all are refused when the federation is made."""
    labels = np.zeros(nodes, dtype=int)
    dataset = build_dataset("dots", np.zeros(0), np.zeros(0), np.ones((nodes, 1)), labels)
    scheme = f"ratio[train={train},validation=0,test={0.99 - train}]"
    split = make_split(labels, whole(nodes), scheme, seed, 1)
    if split.train.any() and split.test.any():
        federation = federate(dataset, whole(nodes), split)
        assert federation.train.any()
        assert federation.test.any()
        return
    with pytest.raises(UserError, match=r"no client has a node to (train|test) on: raise its"):
        federate(dataset, whole(nodes), split)


def test_labels_must_be_classes():
    for lowest in (0, -2):
        with pytest.raises(UserError, match=f"labels run from {lowest} to {lowest + 3}: expected 0 to 2"):
            make_split(np.arange(40) % 4 + lowest, whole(40), "ratio", 0, 3)
