"""AdaFGL's messages between all nodes of a client and its product with Ā, compared with whole matrices."""

import dgl
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from fedsub.methods.adafgl.messages import ALIKE, Messages, alike_pairs
from fedsub.methods.adafgl.smoothing import Smoothing
from fedsub.methods.stacked import kernels
from fedsub.methods.stacked.segments import Segments

CLASSES = 4


def pairs(z: Tensor) -> Tensor:
    """The cosines of one client's softmax outputs, without those of a node and itself."""
    p = z.softmax(dim=1)
    return (p @ p.T / (p.norm(dim=1) * p.norm(dim=1).unsqueeze(1))) * (1 - torch.eye(len(z)))


def heard(z: Tensor, prior: Tensor, slope: Tensor, beta: float) -> Tensor:
    """z₃ of one client's nodes, from R' itself."""
    likeness = beta * (pairs(prior) > ALIKE) + (1 - beta) * pairs(z)
    mean, top = likeness.mean(), likeness.max()
    assume(len(z) == 1 or float((likeness - mean).detach().abs().min()) > 1e-5)
    high, low = (top - mean).clamp(min=1e-12), mean.clamp(min=1e-12)
    stretched = torch.where(likeness > mean, (likeness - mean) / high, -likeness / low)
    stretched = stretched + torch.eye(len(z))
    towards, away = (
        torch.where(sign * stretched > 0, sign * stretched, slope * sign * stretched) @ z for sign in (1, -1)
    )
    return (towards.softmax(dim=1) - away.softmax(dim=1) + z) / 2


@pytest.mark.parametrize("compiled", [True, False])
# The first example waits for the compiler.
@given(
    st.lists(st.integers(1, 25), min_size=1, max_size=4),
    st.sampled_from([0.0, 0.2, 1.0]),
    st.sampled_from([0.3, 1.0]),
    st.integers(0, 999),
)
def test_receivers_hear_all_pairs_and_their_gradient(
    compiled: bool, sizes: list[int], beta: float, share: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    segments = Segments(torch.tensor(sizes))
    # Some predictions of the extractor are equal, as for nodes of one class.
    prior = 3 * torch.randn(3, CLASSES, generator=generator)
    prior = prior[torch.randint(3, (segments.rows,), generator=generator)]
    prior += torch.randn(prior.shape, generator=generator) / 2
    rows = (torch.rand(segments.rows, generator=generator) <= share).nonzero().flatten()
    z, gradient = (torch.randn(segments.rows, CLASSES, generator=generator) for _ in range(2))
    slope = torch.rand(len(sizes), 1, generator=generator).requires_grad_()
    z.requires_grad_()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "compiled", lambda h: compiled)
        messages = Messages(alike_pairs(prior, segments), beta, segments)
        found = messages(z, slope, (rows, segments.among(rows)))
        slopes = torch.autograd.grad(found, [z, slope], gradient)
    exact = [value.detach().double().requires_grad_() for value in (z, slope)]
    clients = zip(exact[0].split(sizes), prior.double().split(sizes), exact[1], strict=True)
    whole = torch.cat([heard(own, said, factor, beta) for own, said, factor in clients])
    expected = exact[0].index_copy(0, rows, whole[rows])
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)
    for ours, theirs in zip(slopes, torch.autograd.grad(expected, exact, gradient.double()), strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-3, atol=1e-3)


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
