"""Segments: the stacked rows of all clients."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from fedsub.methods.stacked.segments import Segments, ranks


@given(sizes=st.lists(st.integers(0, 5), min_size=1, max_size=4).filter(any))
def test_rows_lie_side_by_side_and_come_back(sizes: list[int]) -> None:
    segments = Segments(torch.tensor(sizes))
    assert ranks(segments.sizes).tolist() == [rank for size in sizes for rank in range(size)]
    h = 1 + torch.arange(2.0 * segments.rows).view(-1, 2)
    batch = segments.pad(h)
    for client, own in enumerate(h.split(sizes)):
        assert torch.equal(batch[client, : len(own)], own)
        assert not batch[client, len(own) :].any()
    assert torch.equal(batch[:, :, 0] > 0, segments.filled)
    assert torch.equal(segments.unpad(batch), h)
