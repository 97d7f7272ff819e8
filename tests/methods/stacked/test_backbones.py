"""Every network with every part of its architecture is the plain formula at each client."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedsub.methods.stacked.architecture import HEADS, Architecture
from fedsub.methods.stacked.backbones import BACKBONES, make_backbone
from fedsub.methods.stacked.parameters import Parameters
from tests.methods.federations import small_federation
from tests.methods.oracle import client_parts


def plain(part: dict[str, Tensor], weights: Parameters, architecture: Architecture) -> Tensor:
    """Logits of one client from its dense features and adjacency matrix."""
    h, adjacency = part["features"], part["adjacency"]
    if architecture.input_norm:
        h = torch.nn.functional.layer_norm(h, h.shape[1:], weights["norm.gain"], weights["norm.bias"])
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
            h = layer(h, f"layers.{index}")
            if architecture.head != "bare" or index < len(architecture.hidden) - 1:
                h = h.relu()
        if architecture.head == "convolution":
            return layer(h, "head")
    return h @ weights["head.weight"] + weights["head.bias"]


@pytest.mark.parametrize("backbone", BACKBONES)
@settings(max_examples=20)
@given(
    hidden=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    hops=st.integers(0, 4),
    head=st.sampled_from(HEADS),
    input_norm=st.booleans(),
    sparse=st.booleans(),
    seed=st.integers(0, 99),
)
def test_a_network_is_its_formula_at_each_client(
    backbone: str,
    hidden: list[int],
    hops: int,
    head: str,
    input_norm: bool,
    sparse: bool,
    seed: int,
) -> None:
    architecture = Architecture(backbone, tuple(hidden), head, 0.0, input_norm, hops)
    federation, network = small_federation(clients=3, nodes=30, sparse=sparse), make_backbone(architecture)
    inputs = network.prepare(federation.graph, federation.features, federation.sizes, federation.classes)
    generator = torch.Generator().manual_seed(seed)
    start = network.initial(federation.width, federation.classes, generator)
    # Every client its own, the gain and the bias of the norm too, which start at 1 and 0.
    weights = {name: torch.randn(3, *value.shape, generator=generator) for name, value in start.items()}
    parts = client_parts(federation)
    expected = [plain(parts[k], {n: v[k] for n, v in weights.items()}, architecture) for k in range(3)]
    torch.testing.assert_close(network.forward(inputs, weights), torch.cat(expected), atol=1e-3, rtol=1e-3)
