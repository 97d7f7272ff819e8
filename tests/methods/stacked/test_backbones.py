"""Every network with every part of its architecture is the plain formula at each client."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fedsub.datasets.errors import UserError
from fedsub.methods.stacked.architecture import HEADS, NORMS, Architecture
from fedsub.methods.stacked.backbones import BACKBONES, make_backbone
from fedsub.methods.stacked.parameters import Parameters
from tests.methods.federations import small_federation
from tests.methods.oracle import client_parts

Weights = dict[str, Tensor]
Layer = Callable[[Tensor, str], Tensor]


def plain(part: Weights, weights: Parameters, architecture: Architecture) -> Tensor:
    """Logits of one client from its dense features and adjacency matrix."""
    h, adjacency = part["features"], part["adjacency"]
    if architecture.input_norm:
        h = layer_norm(h, weights["norm.gain"], weights["norm.bias"])
    looped = adjacency + torch.eye(len(adjacency))
    degree = looped.sum(dim=1)
    normalised = looped / torch.outer(degree, degree).sqrt()
    mean = adjacency / adjacency.sum(dim=1, keepdim=True).clamp(min=1)

    def layer(h: Tensor, name: str) -> Tensor:
        product = h @ weights[f"{name}.weight"]
        if architecture.backbone == "gcn":
            product = normalised @ product
        if architecture.backbone == "graphsage":
            product = product + mean @ h @ weights[f"{name}.neighbour"]
        return product + weights[f"{name}.bias"]

    if architecture.backbone == "sgc":
        h = torch.linalg.matrix_power(normalised, architecture.hops) @ h
    else:
        for index in range(len(architecture.hidden)):
            name, before = f"layers.{index}", h
            h = layer(h, name)
            if architecture.residual and architecture.backbone == "gcn":
                h = h + before @ weights[f"{name}.residual"]
            if architecture.norm == "layer":
                h = layer_norm(h, weights[f"{name}.gain"], weights[f"{name}.shift"])
            if architecture.head != "bare" or index < len(architecture.hidden) - 1:
                h = h.relu()
        if architecture.head == "convolution":
            return layer(h, "head")
    return h @ weights["head.weight"] + weights["head.bias"]


def layer_norm(h: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
    """torch's own module."""
    module = nn.LayerNorm(len(gain))
    return torch.func.functional_call(module, {"weight": gain, "bias": shift}, h)


@pytest.mark.parametrize("backbone", BACKBONES.names())
@settings(max_examples=20)
@given(
    hidden=st.lists(st.integers(2, 6), min_size=1, max_size=4),
    hops=st.integers(0, 4),
    head=st.sampled_from(HEADS),
    input_norm=st.booleans(),
    norm=st.sampled_from(NORMS),
    residual=st.booleans(),
    sparse=st.booleans(),
    seed=st.integers(0, 99),
)
def test_a_network_and_its_gradient_are_its_formula_at_each_client(
    backbone: str,
    hidden: list[int],
    hops: int,
    head: str,
    input_norm: bool,
    norm: str,
    residual: bool,
    sparse: bool,
    seed: int,
) -> None:
    architecture = Architecture(
        backbone, tuple(hidden), head, 0.0, input_norm, hops, norm=norm, residual=residual
    )
    federation, network = small_federation(clients=3, nodes=30, sparse=sparse), make_backbone(architecture)
    inputs = network.prepare(federation.graph, federation.features, federation.sizes, federation.classes)
    generator = torch.Generator().manual_seed(seed)
    start = network.initial(federation.width, federation.classes, generator)
    # Every client its own, the gain and the bias of the norms too, which start at 1 and 0.
    weights = {
        name: torch.randn(3, *value.shape, generator=generator).requires_grad_()
        for name, value in start.items()
    }
    parts = client_parts(federation)
    expected = torch.cat(
        [plain(parts[k], {n: v[k] for n, v in weights.items()}, architecture) for k in range(3)]
    )
    actual = network.forward(inputs, weights)
    direction = torch.randn(expected.shape, generator=generator)
    torch.testing.assert_close(actual, expected, atol=1e-3, rtol=1e-3)
    scale = max(1.0, float(expected.detach().abs().max()))
    for found, wanted in zip(
        torch.autograd.grad((actual * direction).sum() / scale, [*weights.values()]),
        torch.autograd.grad((expected * direction).sum() / scale, [*weights.values()]),
        strict=True,
    ):
        torch.testing.assert_close(found, wanted, atol=1e-3, rtol=1e-3)


def test_norm_and_residual_start_as_torch_starts_them() -> None:
    generator = torch.Generator().manual_seed(0)
    plain_start = make_backbone(Architecture("gcn", (8, 8))).initial(5, 3, generator.manual_seed(0))
    start = make_backbone(Architecture("gcn", (8, 8), norm="layer", residual=True)).initial(5, 3, generator)
    assert {*start} - {*plain_start} == {
        f"layers.{index}.{part}" for index in (0, 1) for part in ("gain", "shift", "residual")
    }
    assert (start["layers.0.gain"] == 1).all()
    assert (start["layers.0.shift"] == 0).all()
    assert 0.5 / 5**0.5 < float(start["layers.0.residual"].abs().max()) <= 1 / 5**0.5


def test_a_norm_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UserError, match="norm"):
        Architecture(norm="batch")
