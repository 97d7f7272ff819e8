"""FedSage's mended features and its counting."""

import dgl
import pytest
import torch

from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.training import train
from fedsub.methods.fedsage.mending import mended_inputs
from fedsub.methods.stacked.backbones import make_backbone
from fedsub.methods.stacked.features import Features, NormalisedFeatures
from fedsub.methods.stacked.growth import grow
from fedsub.methods.stacked.segments import Segments
from tests.methods.federations import make_method, small_federation

SMALL = {"latent": 6, "narrow": 5, "wide": 7, "generator_epochs": 3}


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
    network = Architecture(hidden=(8, 6))
    method = make_method("fedsage+", SMALL, small_federation(4, seed=1), network, Schedule(rounds=3))
    outcome = train(method)
    federation = method.federation
    model = sum(value.numel() for value in method.parameters.values())
    rows = 4 * int(federation.train.sum()) * federation.features.shape[1]
    assert outcome.extras["paper_communication_pct"] == pytest.approx(100 + 100 * rows / (2 * model))
    # The printed figure: 124 training nodes a client, 1,433 features, 200,967 parameters.
    assert pytest.approx(276.84, abs=0.005) == 100 * (1 + 4 * 124 * 1433 / (2 * 200_967))
