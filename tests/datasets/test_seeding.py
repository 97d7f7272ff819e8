"""Streams of random numbers do not repeat each other."""

import numpy as np
import torch

from fedsub.datasets.seeding import stream, torch_stream


def test_a_stream_is_its_seed_and_its_purpose():
    first = stream(3, "split").random(5)
    assert np.array_equal(first, stream(3, "split").random(5))
    assert not np.array_equal(first, stream(4, "split").random(5))
    assert not np.array_equal(first, stream(3, "partition").random(5))


def test_torch_has_streams_of_its_own_too() -> None:
    first = torch.rand(5, generator=torch_stream(3, "pairs"))
    assert torch.equal(first, torch.rand(5, generator=torch_stream(3, "pairs")))
    # A generator seeded with only the number, as for a method's initial weights, draws other numbers.
    for other in (torch_stream(3, "masks"), torch_stream(4, "pairs"), torch.Generator().manual_seed(3)):
        assert not torch.equal(first, torch.rand(5, generator=other))
