"""Data of lower quality: as much is damaged as asked for, always the same, and never what is scored."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsub.datasets.damage import damaged, weakened
from fedsub.datasets.errors import UserError
from fedsub.datasets.graph import Dataset, as_scipy, binarised, row_normalised
from fedsub.datasets.partition import partition
from fedsub.datasets.partition.base import Partition
from fedsub.datasets.quality import Quality
from fedsub.datasets.splits import Split, make_split
from tests.methods.federations import small_dataset

shares = st.floats(0.01, 1)
seeds = st.integers(0, 2**40)


def clients(dataset: Dataset, seed: int = 0) -> tuple[Partition, Split]:
    """Overlapping clients: a node may train at one and be scored at another."""
    parts = partition(dataset, "metis-overlapping", 5, seed)
    return parts, make_split(dataset, parts, "ratio-per-client", seed)


def after(dataset: Dataset, seed: int = 0, **settings: Any) -> tuple[Dataset, Split]:
    quality = Quality(**settings)
    return damaged(weakened(dataset, quality, seed), *clients(dataset), quality, seed)


def edges(dataset: Dataset) -> set[tuple[int, int]]:
    return set(zip(*(end.tolist() for end in dataset.graph.edges()), strict=True))


def entries(dataset: Dataset) -> np.ndarray:
    return as_scipy(dataset.features).toarray()


def test_nothing_wrong_changes_nothing() -> None:
    dataset = small_dataset()
    parts, split = clients(dataset)
    found, roles = damaged(dataset, parts, split, Quality(), 3)
    assert found is dataset
    assert roles is split


@pytest.mark.parametrize("kind", [each.name for each in fields(Quality) if each.name != "labels_stratified"])
def test_the_seed_decides(kind: str) -> None:
    dataset = small_dataset(nodes=300)

    def fingerprint(seed: int) -> tuple[bytes, ...]:
        found, roles = after(dataset, seed, **{kind: 0.3})
        source, target = found.graph.edges()
        arrays = (entries(found), source.numpy(), target.numpy(), found.labels.numpy(), roles.train)
        return tuple(np.ascontiguousarray(array).tobytes() for array in arrays)

    drawn = [fingerprint(seed) for seed in range(10)]
    assert len(set(drawn)) == 10
    assert fingerprint(0) == drawn[0]
    untouched = [column for column in zip(*drawn, strict=True) if len(set(column)) == 1]
    assert len(untouched) == (3 if kind in ("edges_removed", "class_edges_removed") else 4)


@given(share=shares, seed=seeds, sparse=st.booleans())
@settings(max_examples=10)
def test_a_share_of_each_nodes_features_is_removed(share: float, seed: int, sparse: bool) -> None:
    dataset = row_normalised(small_dataset(sparse=sparse))
    found, _ = after(dataset, seed, features_removed=share)
    before, left = entries(dataset), entries(found)
    assert found.features.layout == dataset.features.layout
    assert np.array_equal(left, np.where(left != 0, before, 0))
    gone = (before != 0).sum(axis=1) - (left != 0).sum(axis=1)
    assert gone.tolist() == [round(share * count) for count in (before != 0).sum(axis=1).tolist()]


@given(share=shares, seed=seeds, normalised=st.booleans())
@settings(max_examples=10)
def test_a_share_of_all_entries_is_flipped(share: float, seed: int, normalised: bool) -> None:
    dataset = small_dataset()
    dataset = row_normalised(dataset) if normalised else dataset
    found, _ = after(dataset, seed, feature_flips=share)
    before, left = entries(dataset), entries(found)
    assert ((before != 0) != (left != 0)).sum() == round(share * before.size)
    value = np.broadcast_to(before.max(axis=1, keepdims=True), before.shape)
    np.testing.assert_allclose(left[left != 0], value[left != 0], rtol=1e-5)


def test_flips_need_binary_features() -> None:
    dataset = small_dataset(sparse=False)
    with pytest.raises(UserError, match="are not binary, so none can be flipped: set binarise=true"):
        after(dataset, feature_flips=0.1)
    after(binarised(dataset), feature_flips=0.1)


def test_noise_has_the_standard_deviation_asked_for() -> None:
    dataset = small_dataset(nodes=600, features=60)
    found, _ = after(dataset, feature_noise=0.25)
    noise = entries(found) - entries(dataset)
    assert found.features.dtype == torch.float32
    assert noise.std() == pytest.approx(0.25, rel=0.03)
    assert abs(noise.mean()) < 0.01


@given(share=shares, seed=seeds)
@settings(max_examples=10)
def test_a_share_of_the_edges_is_removed_both_ways(share: float, seed: int) -> None:
    dataset = small_dataset()
    found, _ = after(dataset, seed, edges_removed=share)
    left = edges(found)
    assert left <= edges(dataset)
    assert {(target, source) for source, target in left} == left
    assert dataset.undirected_edges - found.undirected_edges == round(share * dataset.undirected_edges)
    fewer, _ = after(dataset, seed, edges_removed=share / 2)
    assert left <= edges(fewer)


@given(share=shares, seed=seeds)
@settings(max_examples=10)
def test_edges_inside_classes_go_and_those_between_stay(share: float, seed: int) -> None:
    dataset = small_dataset()
    found = weakened(dataset, Quality(class_edges_removed=share), seed)
    labels = dataset.labels.tolist()
    inside = {(u, v) for u, v in edges(dataset) if labels[u] == labels[v]}
    assert edges(dataset) - inside == edges(found) - inside
    left = edges(found) & inside
    assert {(target, source) for source, target in left} == left
    assert len(inside) - len(left) == 2 * round(share * len(inside) / 2)


@given(share=shares, seed=seeds, stratified=st.booleans())
@settings(max_examples=10)
def test_a_share_of_the_training_labels_is_kept(share: float, seed: int, stratified: bool) -> None:
    dataset = small_dataset()
    parts, split = clients(dataset)
    quality = Quality(labels_kept=share, labels_stratified=stratified)
    found, roles = damaged(dataset, parts, split, quality, seed)
    assert found is dataset
    assert np.array_equal(roles.validation, split.validation)
    assert np.array_equal(roles.test, split.test)
    assert not (roles.train & ~split.train).any()
    kept, train = np.unique(parts.origin[roles.train]), np.unique(parts.origin[split.train])
    assert np.array_equal(roles.train, split.train & np.isin(parts.origin, kept))
    labels = dataset.labels.numpy()
    if stratified:
        expected = [max(round(share * count), 1) for count in np.bincount(labels[train]).tolist() if count]
        assert [count for count in np.bincount(labels[kept]).tolist() if count] == expected
    else:
        assert len(kept) == max(round(share * len(train)), 1)


@given(share=shares, seed=seeds)
@settings(max_examples=10)
def test_a_share_of_the_training_labels_is_wrong_and_no_other(share: float, seed: int) -> None:
    dataset = small_dataset()
    parts, split = clients(dataset)
    found, roles = damaged(dataset, parts, split, Quality(label_noise=share), seed)
    assert roles is split
    wrong = np.flatnonzero(found.labels != dataset.labels)
    scored = parts.origin[split.validation | split.test]
    train = np.setdiff1d(parts.origin[split.train], scored)
    assert np.isin(wrong, train).all()
    assert len(wrong) == round(share * len(train))
    assert 0 <= found.labels.min() <= found.labels.max() < dataset.classes


def test_wrong_labels_are_drawn_uniformly() -> None:
    dataset = small_dataset(nodes=900)
    dataset = replace(dataset, labels=torch.zeros_like(dataset.labels))
    found, _ = after(dataset, label_noise=1.0)
    wrong = found.labels[found.labels != 0]
    assert torch.bincount(wrong)[1:].float().div(len(wrong)).tolist() == pytest.approx([0.5, 0.5], abs=0.15)


@pytest.mark.parametrize(
    ("kind", "value"),
    [("edges_removed", 1.1), ("labels_kept", 0.0), ("feature_noise", -1.0), ("label_noise", np.nan)],
)
def test_limits(kind: str, value: float) -> None:
    with pytest.raises(UserError, match=f"{kind} must"):
        Quality(**{kind: value})  # type: ignore[arg-type]
