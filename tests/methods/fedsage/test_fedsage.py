"""FedSage's mended features, its counting, and averaged gradients."""

from __future__ import annotations

import dgl
import pytest
import torch

from fedsub.methods.core import registry
from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.participation import begin_round
from fedsub.methods.core.setting import make_setting
from fedsub.methods.core.training import train
from fedsub.methods.fedsage.mending import mended_inputs
from fedsub.methods.stacked import receptive_field
from fedsub.methods.stacked.backbones import make_backbone
from fedsub.methods.stacked.features import Features, NormalisedFeatures
from fedsub.methods.stacked.growth import grow
from fedsub.methods.stacked.mixing import weighted_mean
from fedsub.methods.stacked.segments import Segments
from tests.methods.federations import small_federation

SMALL = {"latent": 6, "narrow": 5, "wide": 7, "generator_epochs": 3}


def _setting(backbone: str = "graphsage", clients: int = 4, task: str = "node-classification", **schedule):
    architecture = Architecture(backbone=backbone, hidden=(8, 6))
    schedule = {"rounds": 3} | schedule
    federation = small_federation(clients, seed=1)
    return make_setting(federation, architecture, Schedule(**schedule), seed=3, task=task)


@pytest.mark.parametrize("kind", [Features, NormalisedFeatures])
@pytest.mark.parametrize("sparse", [True, False])
def test_mended_features_are_those_of_one_matrix(kind: type[Features], sparse: bool):
    federation = small_federation(3, sparse=sparse)
    owner = torch.tensor([1, 2, federation.nodes - 3])
    generated = torch.randn(3, 12, generator=torch.Generator().manual_seed(1))
    mended = grow(federation.graph, federation.sizes, 3, (torch.arange(3), owner))
    network = make_backbone(Architecture(input_norm=kind is NormalisedFeatures))
    own = kind(federation.features, Segments(federation.sizes))
    inputs = mended_inputs(network, mended, own, generated, 3)
    dense = federation.features.to_dense() if sparse else federation.features
    whole = torch.cat([dense, generated])[mended.order]
    weight = torch.randn(3, 12, 4, generator=torch.Generator().manual_seed(2))
    expected = kind(whole, Segments(mended.sizes)).times(weight)
    assert torch.allclose(inputs.features.times(weight), expected, atol=1e-5)
    assert isinstance(mended.graph, dgl.DGLGraph)
    assert torch.equal(torch.cat([dense, generated])[mended.order][mended.position], dense)


def test_the_papers_counting_has_four_transfers_of_the_training_nodes_features():
    method = registry.create("fedsage+", SMALL, _setting())
    outcome = train(method)
    federation = method.federation
    model = sum(value.numel() for value in method.parameters.values())
    rows = 4 * int(federation.train.sum()) * federation.features.shape[1]
    assert outcome.extras["paper_communication_pct"] == pytest.approx(100 + 100 * rows / (2 * model))
    # The printed figure: 124 training nodes a client, 1,433 features, 200,967 parameters.
    assert pytest.approx(276.84, abs=0.005) == 100 * (1 + 4 * 124 * 1433 / (2 * 200_967))


@pytest.mark.parametrize(
    ("name", "norm", "task", "left_out"),
    [
        ("fedsage-true", True, "node-classification", 0),
        ("fedsage-true", False, "link-prediction", 10**9),
        ("fedsage+", False, "node-classification", 10**9),
        ("fedsage+", True, "link-prediction", 0),
    ],
)
def test_averaged_gradients_move_one_model_as_they_move_a_copy_at_every_client(
    name: str, norm: bool, task: str, left_out: int, monkeypatch: pytest.MonkeyPatch
):
    """Where layers leave out the rows that no later one needs, and where not."""
    options = SMALL if name == "fedsage+" else {}
    architecture = Architecture(backbone="graphsage", hidden=(8, 6), dropout=0.5, input_norm=norm)
    schedule = Schedule(rounds=3, weighting="nodes", evaluate="received", weight_decay=1e-3)
    setting = make_setting(small_federation(4, seed=1), architecture, schedule, seed=3, task=task)
    method = registry.create(name, options | {"average": "gradients"}, setting)
    with monkeypatch.context() as patched:
        patched.setattr(receptive_field, "LEFT_OUT", left_out)
        outcome = train(method)
    assert {len(value) for value in method.parameters.values()} == {1}
    size = sum(value.numel() * 4 for value in method.parameters.values())
    assert outcome.bytes["up"] == outcome.bytes["down"] == 4 * size

    copies = registry.create(name, options | {"average": "models"}, setting)
    copies.build()
    for number in range(3):
        begin_round(copies, number + 1)
        copies.optimiser.zero_grad(set_to_none=True)
        copies.objective(copies.logits(copies.dropout)).backward()
        for value in copies.parameters.values():
            if value.grad is not None:
                value.grad.copy_(weighted_mean(value.grad, copies.shares))
        copies.optimiser.step()
    for key, value in copies.parameters.items():
        torch.testing.assert_close(method.parameters[key].expand_as(value), value, rtol=1e-4, atol=1e-5)
