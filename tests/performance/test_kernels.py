"""The parts of a round, each beside its rejected alternatives. `make perf` saves the times; none is asserted.

pytest-benchmark compares the saved times of two commits: `pytest-benchmark compare 0001 0002`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from fedsub.datasets.federation import Federation
from fedsub.methods.stacked import kernels
from fedsub.methods.stacked.features import Features
from fedsub.methods.stacked.kernels import NARROW
from fedsub.methods.stacked.propagation import propagate, symmetric_weight, use_kernel, with_self_loops
from fedsub.methods.stacked.segments import Segments

WIDTH = 128


def leaf(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).requires_grad_()


def forward_and_backward(function: Callable[[], Tensor], leaves: list[Tensor]) -> Callable[[], None]:
    """Return a forward and backward pass through `function`; gradients are dropped as in a round."""
    out = function()
    gradient = torch.randn_like(out)

    def both() -> None:
        for each in leaves:
            each.grad = None
        function().backward(gradient)

    return both


@pytest.mark.parametrize("form", ["sparse", "dense"])
def test_feature_product(
    benchmark: Any, monkeypatch: pytest.MonkeyPatch, federation: Federation, form: str
) -> None:
    """The first layer's X W; the form is otherwise chosen by the share of non-zeros."""
    monkeypatch.setattr("fedsub.methods.stacked.features.is_dense", lambda values: form == "dense")
    features = Features(federation.features, Segments(federation.sizes))
    weight = leaf(federation.clients, features.width, WIDTH)

    def product() -> Tensor:
        features.renew_gradients()
        return features.times(weight)

    benchmark(forward_and_backward(product, [weight]))


@pytest.mark.parametrize("width", [NARROW // 2, NARROW, WIDTH])
@pytest.mark.parametrize("kernel", ["numba", "mkl", "dgl"])
def test_propagation(
    benchmark: Any, monkeypatch: pytest.MonkeyPatch, federation: Federation, width: int, kernel: str
) -> None:
    monkeypatch.setattr(kernels, "NARROW", 1 if kernel == "numba" else WIDTH + 1)
    graph = use_kernel(with_self_loops(federation.graph), "dgl" if kernel == "dgl" else "torch")
    weight, h = symmetric_weight(graph), leaf(federation.nodes, width)
    benchmark(forward_and_backward(partial(propagate, graph, h, weight), [h]))
