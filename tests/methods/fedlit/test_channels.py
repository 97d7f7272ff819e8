"""The pass over all channels against torch's own operations, and the order in which masks are drawn."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from methods.fedlit import _by_channel
from methods.fedlit.channels import sum_of_activated
from methods.stacked.activation import Dropout
from methods.stacked.segments import Segments

SIZES = torch.tensor([5, 0, 3, 8])
TYPES, WIDTH = 3, 6


def _outputs(dtype: torch.dtype, probability: float | None) -> list[Tensor]:
    """The sum and its gradients: float32 goes through the compiled pass, float64 through torch."""
    generator = torch.Generator().manual_seed(1)
    nodes = int(SIZES.sum())
    h = torch.randn(nodes, TYPES * WIDTH, generator=generator).to(dtype)
    bias = torch.randn(len(SIZES), TYPES, WIDTH, generator=generator).to(dtype)
    # A node without an edge of a type, before its channel has learned a bias: zero passes nothing back.
    h[:2, :WIDTH] = bias[0, 0] = 0
    h.requires_grad_(), bias.requires_grad_()
    slope = torch.randn(nodes, WIDTH, generator=generator).to(dtype)
    dropout = None
    if probability is not None:
        drawn = _by_channel(SIZES, TYPES)
        dropout = Dropout(probability, seed=2).among(drawn, len(drawn))
    out = sum_of_activated(h, bias, Segments(SIZES), dropout)
    return [out, *torch.autograd.grad(out, [h, bias], slope)]


@pytest.mark.parametrize("probability", [None, 0.0, 0.3, 0.5])
def test_the_compiled_pass_is_torch_s(probability: float | None) -> None:
    for found, expected in zip(
        _outputs(torch.float32, probability), _outputs(torch.float64, probability), strict=True
    ):
        torch.testing.assert_close(found, expected.float(), rtol=1e-5, atol=1e-6)


def test_masks_are_drawn_channel_after_channel_of_each_client() -> None:
    """Row T·v + t has the mask that a loop over clients, channels and nodes draws for it."""
    order: dict[tuple[int, int], int] = {}
    first = 0
    for size in SIZES.tolist():
        for channel in range(TYPES):
            for node in range(first, first + size):
                order[node, channel] = len(order)
        first += size
    expected = [order[node, channel] for node in range(first) for channel in range(TYPES)]
    assert _by_channel(SIZES, TYPES).tolist() == expected
