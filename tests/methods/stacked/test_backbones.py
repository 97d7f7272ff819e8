"""Every backbone with every part of its architecture equals the plain formula at each client."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsub.datasets.errors import UserError
from fedsub.methods.stacked.activation import Dropout
from fedsub.methods.stacked.architecture import HEADS, NORMS, Architecture
from fedsub.methods.stacked.backbones import BACKBONES, make_backbone
from fedsub.methods.stacked.propagation import use_kernel
from tests.methods.federations import small_federation
from tests.methods.oracle import client_parts, formula
from tests.methods.rounding import assert_agree

ARCHITECTURES = st.builds(
    Architecture,
    # The layer norm of two numbers is a step, whose gradient rounding moves without bound.
    hidden=st.lists(st.sampled_from([4, 6, 8]), min_size=1, max_size=4).map(tuple),
    head=st.sampled_from(HEADS),
    input_norm=st.booleans(),
    hops=st.integers(0, 4),
    norm=st.sampled_from(NORMS),
    residual=st.booleans(),
    heads=st.just(2),
    gpr_hops=st.integers(0, 4),
)


@pytest.mark.parametrize("backbone", BACKBONES.names())
@settings(max_examples=20)
@given(ARCHITECTURES, st.booleans(), st.sampled_from(["dgl", "torch"]), st.integers(0, 99))
def test_a_network_and_its_gradient_are_its_formula_at_each_client(
    backbone: str, architecture: Architecture, sparse: bool, kernel: str, seed: int
) -> None:
    architecture = replace(architecture, backbone=backbone)
    federation, network = small_federation(clients=3, nodes=30, sparse=sparse), make_backbone(architecture)
    use_kernel(federation.graph, kernel)
    inputs = network.prepare(federation.graph, federation.features, federation.sizes, federation.classes)
    generator = torch.Generator().manual_seed(seed)
    start = network.initial(federation.width, federation.classes, generator)
    # Different for every client, also the norms' gain and bias, which start at 1 and 0.
    weights = {
        name: torch.randn(3, *value.shape, generator=generator).requires_grad_()
        for name, value in start.items()
    }
    parts = client_parts(federation)
    expected = torch.cat(
        [formula(parts[k], {n: v[k] for n, v in weights.items()}, architecture) for k in range(3)]
    )
    actual = network.forward(inputs, weights)
    direction = torch.randn(expected.shape, generator=generator)
    torch.testing.assert_close(actual, expected, atol=1e-3, rtol=1e-3)
    scale = max(1.0, float(expected.detach().abs().max()))
    found, wanted = (
        torch.autograd.grad((each * direction).sum() / scale, [*weights.values()])
        for each in (actual, expected)
    )
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


def test_pagerank_drops_entries_of_its_input_and_of_what_it_propagates() -> None:
    """With identity weights and no hops, every output is an entry of the input after three masks."""
    architecture = Architecture("gprgnn", (20,), dropout=0.5, gpr_hops=0, gpr_dropout=True)
    federation = small_federation(clients=3, nodes=600, features=20, classes=20)
    network = make_backbone(architecture)
    inputs = network.prepare(federation.graph, federation.features, federation.sizes, federation.classes)
    identity, none = torch.eye(20).expand(3, -1, -1), torch.zeros(3, 20)
    weights = {"layers.0.weight": identity, "layers.0.bias": none, "head.weight": identity, "head.bias": none}
    weights["head.pagerank"] = torch.ones(3, 1)
    usual = replace(architecture, gpr_dropout=False)
    for network, masks in ((make_backbone(architecture), 3), (make_backbone(usual), 1)):
        dense = federation.features.to_dense()
        assert_agree(network.forward(inputs, weights), dense)
        found = network.forward(inputs, weights, Dropout(0.5, seed=0))
        assert float((found != 0).sum() / (dense != 0).sum()) == pytest.approx(0.5**masks, abs=0.05)
        assert_agree(found[found != 0], (dense * 2**masks)[found != 0])


def test_pagerank_drops_no_entries_of_normalised_features() -> None:
    architecture = Architecture("gprgnn", (4,), input_norm=True, gpr_dropout=True)
    federation, network = small_federation(), make_backbone(architecture)
    inputs = network.prepare(federation.graph, federation.features, federation.sizes, federation.classes)
    with pytest.raises(UserError, match="does not support input_norm"):
        network.forward(inputs, {}, Dropout(0.5, seed=0))


def test_pagerank_starts_at_the_papers_weights_which_sum_to_one() -> None:
    network = make_backbone(Architecture("gprgnn", gpr_hops=3, gpr_alpha=0.2))
    start = network.initial(5, 3, torch.Generator().manual_seed(0))["head.pagerank"]
    assert_agree(start, torch.tensor([0.2, 0.2 * 0.8, 0.2 * 0.64, 0.512]))
    assert_agree(float(start.sum()), 1.0)
