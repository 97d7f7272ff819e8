"""The product with Ā against Ā itself."""

import dgl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedsub.methods.adafgl.smoothing import Smoothing
from fedsub.methods.stacked import kernels
from fedsub.methods.stacked.segments import Segments


@pytest.mark.parametrize("compiled", [True, False])
# The first example waits for the compiler.
@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=4),
    st.sampled_from([0.0, 0.1, 0.6, 1.0]),
    st.sampled_from([0.05, 0.5, 1.0]),
    st.integers(0, 999),
)
def test_it_is_a_product_with_the_square_and_its_gradient(
    compiled: bool, sizes: list[int], share: float, alpha: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    segments = Segments(torch.tensor(sizes))
    filled = segments.filled.unsqueeze(2) & segments.filled.unsqueeze(1)
    alike = (torch.rand(filled.shape, generator=generator) < share).triu(1) & filled
    alike |= alike.transpose(1, 2).clone()
    # A directed graph: the gradient's product is with the transposed matrix.
    edges = (
        (torch.rand(filled.shape, generator=generator) < 0.2) & ~torch.eye(filled.shape[1]).bool() & filled
    )
    client, target, source = edges.nonzero(as_tuple=True)
    first = segments.sizes.cumsum(0)[client] - segments.sizes[client]
    graph = dgl.graph((first + source, first + target), num_nodes=segments.rows)
    h, gradient = (torch.randn(segments.rows, 5, generator=generator) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "compiled", lambda h: compiled)
        # Any order will do.
        found = Smoothing(graph, alike, gradient, alpha, segments)(h.requires_grad_())
        (to_h,) = torch.autograd.grad(found, h, gradient)
    summed = alpha * edges.double() + (1 - alpha) * alike + torch.eye(filled.shape[1])
    scale = summed.sum(dim=2).rsqrt()
    square = scale.unsqueeze(2) * summed * scale.unsqueeze(1)
    for ours, matrix, factor in ((found, square, h), (to_h, square.transpose(1, 2), gradient)):
        expected = segments.unpad(matrix @ segments.pad(factor.double()))
        torch.testing.assert_close(ours.double(), expected, rtol=1e-5, atol=1e-5)
