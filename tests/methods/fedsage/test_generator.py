"""FedSage+'s generator (searches, chunks, draws), mended features and counting."""

from dataclasses import replace
from typing import Any

import dgl
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.training import DivergedError, train
from fedsub.methods.fedsage import generator as fedsage_generator
from fedsub.methods.fedsage import matching as fedsage_matching
from fedsub.methods.fedsage.generator import Generated, GeneratorTraining, client_chunks
from fedsub.methods.fedsage.matching import nearest_hidden
from fedsub.methods.fedsage.mending import choose_hidden, mended_inputs
from fedsub.methods.stacked.backbones import make_backbone
from fedsub.methods.stacked.features import Features, NormalisedFeatures
from fedsub.methods.stacked.inputs import grow
from fedsub.methods.stacked.segments import Segments
from tests.methods.federations import make_method, small_federation

SMALL = {"latent": 6, "narrow": 5, "wide": 7, "generator_epochs": 3, "generator_learning_rate": 0.1}


def _method(options: dict[str, object], clients: int = 3, nodes: int = 60) -> Any:
    federation, network = small_federation(clients, nodes), Architecture(hidden=(8, 6))
    return make_method("fedsage+", SMALL | options, federation, network, Schedule(rounds=1), seed=5)


@given(seed=st.integers(0, 1000), share=st.floats(0, 1))
@settings(max_examples=25)
def test_each_client_hides_its_share(seed: int, share: float):
    random = np.random.default_rng(seed)
    client = torch.from_numpy(np.sort(random.integers(0, 4, 50)))
    sample = torch.from_numpy(random.random(50) < 0.5)
    hidden = choose_hidden(sample, client, share, random)
    assert not (hidden & ~sample).any()
    for k in range(int(client[-1]) + 1):
        mine = client == k
        assert int(hidden[mine].sum()) == round(share * int(sample[mine].sum()))


def test_chunks_and_sparse_features_change_no_gradient(monkeypatch: pytest.MonkeyPatch):
    found = []
    for entries, share in ((2**24, 0.0), (30, 0.0), (30, 2.0)):
        monkeypatch.setattr(fedsage_matching, "CHUNK_ENTRIES", entries)
        monkeypatch.setattr(fedsage_matching, "DENSE_SHARE", share)
        method = _method({}, clients=4, nodes=90)
        method.hide()
        training = GeneratorTraining(method, range(4))
        random = torch.Generator().manual_seed(1)
        assert method.others.sparse == (share > 1)
        counts = torch.randint(0, 4, (90,), generator=random) * (training.missing > 0)
        owner = torch.repeat_interleave(torch.arange(90), counts)
        features = torch.rand(len(owner), 12, generator=random).requires_grad_()
        made = Generated(features, owner)
        (own,) = torch.autograd.grad(training.own_loss(made), features)
        found.append((own, training.others_gradient(made)))
    for each in found[1:]:
        torch.testing.assert_close(each, found[0], rtol=1e-5, atol=1e-7)
    assert all(gradient.any() for gradient in found[0])


@settings(max_examples=30)
@given(rows=st.integers(1, 20), width=st.integers(1, 9), seed=st.integers(0, 99))
def test_nearest_hidden_against_a_loop(rows, width, seed):
    """Features are integers, so that many nodes are equally near and sums are exact."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randint(0, 2, (15, width), generator=generator).float()
    generated = torch.randint(0, 3, (rows, width), generator=generator).float()
    neighbour = torch.randint(0, 15, (40,), generator=generator)
    first = torch.randint(0, 30, (rows,), generator=generator)
    count = torch.randint(1, 11, (rows,), generator=generator)
    expected = []
    for row, start, held in zip(generated, first.tolist(), count.tolist(), strict=True):
        candidates = neighbour[start : start + held]
        distance = (features[candidates] - row).square().sum(dim=1).tolist()
        expected.append(int(candidates[distance.index(min(distance))]))
    assert nearest_hidden(generated, first, count, neighbour, features).tolist() == expected


def test_clients_learn_alone_and_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch):
    options: dict[str, object] = {"noise": 0.0, "generator_epochs": 30, "generator_learning_rate": 0.02}
    found = []
    for limit in (2**32, 1):
        monkeypatch.setattr(fedsage_generator, "CHUNK_BYTES", limit)
        method = _method(options, clients=4, nodes=80)
        method.setting = replace(
            method.setting, architecture=replace(method.setting.architecture, dropout=0.0)
        )
        chunks = list(client_chunks(4, 12, method.options))
        assert len(chunks) == (1 if limit > 1 else 4)
        found.append((method.train_generators(), method.channel.bytes_once))
    (whole, sent), (parts, sent_in_parts) = found
    assert sent == sent_in_parts > 0
    assert torch.equal(whole.owner, parts.owner)
    assert torch.allclose(whole.features, parts.features, atol=1e-5)


def test_every_chunk_draws_noise_of_its_own_and_starts_alike():
    method = _method({}, clients=4, nodes=80)
    method.hide()
    first, second, again = (GeneratorTraining(method, range(k, k + 2)) for k in (0, 2, 2))
    for name, value in first.generator.parameters.items():
        assert torch.equal(value, second.generator.parameters[name])
    noise = [torch.randn(8, generator=each.generator.random) for each in (first, second, again)]
    assert not torch.equal(noise[0], noise[1])
    assert torch.equal(noise[1], noise[2])
    masks = [each.dropout.mask((8, 8)) for each in (first, second, again)]
    assert not torch.equal(masks[0], masks[1])
    assert torch.equal(masks[1], masks[2])


def test_divergence_is_named():
    method = _method({"generator_learning_rate": 1e30, "generator_epochs": 4})
    with pytest.raises(DivergedError, match="generator_learning_rate"):
        method.build()


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
