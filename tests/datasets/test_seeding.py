"""Streams of random numbers do not repeat each other."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedsub.datasets.partition import partition
from fedsub.datasets.seeding import stream, torch_stream
from fedsub.datasets.splits import make_split
from tests.methods.federations import small_dataset


def test_a_stream_is_its_seed_and_its_purpose():
    first = stream(3, "split").random(5)
    assert np.array_equal(first, stream(3, "split").random(5))
    assert not np.array_equal(first, stream(4, "split").random(5))
    assert not np.array_equal(first, stream(3, "partition").random(5))


@pytest.mark.parametrize("seed", range(3))
def test_random_clients_hold_every_class_and_every_role(seed):
    dataset = small_dataset(nodes=300, classes=3, seed=seed)
    parts = partition(dataset, "random", 3, seed)
    labels = dataset.labels.numpy()
    split = make_split(labels, parts, "ratio[train=0.4,validation=0.3,test=0.3]", seed, 3)
    start = 0
    for nodes in parts.nodes:
        assert np.bincount(labels[nodes], minlength=3).min() > 10
        stop = start + len(nodes)
        assert 0.2 < split.train[start:stop].mean() < 0.6
        start = stop


def test_torch_has_streams_of_its_own_too() -> None:
    first = torch.rand(5, generator=torch_stream(3, "pairs"))
    assert torch.equal(first, torch.rand(5, generator=torch_stream(3, "pairs")))
    # A generator that is seeded by the number alone, as a method's first weights have it, draws others.
    for other in (torch_stream(3, "masks"), torch_stream(4, "pairs"), torch.Generator().manual_seed(3)):
        assert not torch.equal(first, torch.rand(5, generator=other))
