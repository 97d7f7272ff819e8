"""FedIIH's compiled routing and its sums over pairs."""

import dgl
import pytest
import torch
import torch.nn.functional as functional
from hypothesis import given as drawn
from hypothesis import strategies as st

from fedsub.methods.core.base import Schedule
from fedsub.methods.fediih import mixing_matrices
from fedsub.methods.fediih.pairs import PairwiseSoftplus
from fedsub.methods.fediih.routing import Routing
from fedsub.methods.stacked import kernels
from fedsub.methods.stacked.segments import Segments
from tests.methods.loops import Clients


@drawn(
    st.integers(1, 12),
    st.integers(0, 30),
    st.integers(1, 4),
    # 245 is a sum of blocks of every size.
    st.sampled_from([5, 245]),
    st.integers(0, 4),
    st.integers(0, 999),
)
def test_the_compiled_routing_is_torchs_forwards_and_backwards(
    nodes, edges, factors, width, iterations, seed
):
    generator = torch.Generator().manual_seed(seed)
    ends = torch.randint(nodes, (2, edges), generator=generator)
    routing = Routing(dgl.graph(tuple(ends), num_nodes=nodes), torch.device("cpu"))
    # Positive, so that no sum is near zero: its direction would be rounding error.
    x, gradient = (torch.rand(nodes, factors, width, generator=generator) for _ in range(2))
    x[0] = 0
    found = []
    for compiled in (True, False):
        leaf = x.clone().requires_grad_()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kernels, "compiled", lambda h, compiled=compiled: compiled)
            u = routing(leaf, iterations)
            u.backward(gradient)
        assert leaf.grad is not None
        # A factor without features has no direction.
        assert not leaf.grad[0].any()
        found.append((u, leaf.grad))
    for ours, torchs in zip(*found, strict=True):
        torch.testing.assert_close(ours, torchs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_sum_over_pairs_is_that_of_the_matrix_of_them(dtype):
    sizes, width = torch.tensor([300, 1, 257, 40]), 16
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(int(sizes.sum()), width, generator=generator, dtype=dtype)
    weight = torch.randn(len(sizes), generator=generator, dtype=dtype)
    found = []
    for sums in (
        lambda leaf: PairwiseSoftplus.apply(leaf, Segments(sizes)),
        lambda leaf: torch.stack(
            [functional.softplus(own @ own.T).sum() for own in leaf.split(sizes.tolist())]
        ),
    ):
        leaf = z.clone().requires_grad_()
        total = sums(leaf)
        (weight * total).sum().backward()
        found.append((total.detach(), leaf.grad))
    for ours, plain in zip(*found, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-5, atol=1e-3 if dtype is torch.float32 else 1e-9)


@pytest.mark.parametrize(("epochs", "equal"), [(1, False), (2, True)])
def test_statistics_are_without_dropout_where_a_round_has_more_epochs_than_one(epochs, equal, monkeypatch):
    sent = []

    def seen(mean, log_variance, scale, present):
        sent.append((mean, log_variance))
        return mixing_matrices(mean, log_variance, scale, present)

    monkeypatch.setattr("fedsub.methods.fediih.mixing_matrices", seen)
    clients = Clients(Schedule(rounds=1, local_epochs=epochs), dropout=0.5)
    clients.run("fediih", factors=2, width=3, iterations=2)
    mean, log_variance = sent[0]
    assert torch.equal(mean, log_variance) is equal
