"""FedSage's mended graphs: the inter-edges exactly, heard by the originals, in the federation's order."""

from __future__ import annotations

from dataclasses import replace

import dgl
import numpy as np
import pytest
import torch

from fedsub.datasets.errors import UserError
from fedsub.datasets.federation import federate
from fedsub.datasets.partition.base import Partition
from fedsub.datasets.splits import make_split
from fedsub.methods.core import registry
from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.participation import begin_round
from fedsub.methods.core.setting import make_setting
from fedsub.methods.core.training import train
from fedsub.methods.fedsage import FedSagePlus, FedSageTrue, missing_neighbours
from fedsub.methods.fedsage.mending import mended_inputs
from fedsub.methods.stacked import receptive_field
from fedsub.methods.stacked.backbones import make_backbone
from fedsub.methods.stacked.features import Features, NormalisedFeatures
from fedsub.methods.stacked.growth import grow
from fedsub.methods.stacked.mixing import weighted_mean
from fedsub.methods.stacked.parameters import stack
from fedsub.methods.stacked.segments import Segments
from tests.methods.federations import SPLIT, small_dataset, small_federation
from tests.methods.rounding import assert_agree

SMALL = {"latent": 6, "narrow": 5, "wide": 7, "generator_epochs": 3}


def _setting(backbone: str = "graphsage", clients: int = 4, task: str = "node-classification", **schedule):
    architecture = Architecture(backbone=backbone, hidden=(8, 6))
    schedule = {"rounds": 3} | schedule
    federation = small_federation(clients, seed=1)
    return make_setting(federation, architecture, Schedule(**schedule), seed=3, task=task)


def _overlapping():
    dataset = small_dataset(40)
    random = np.random.default_rng(0)
    nodes = tuple(np.sort(random.choice(40, 22, replace=False)) for _ in range(3))
    parts = Partition("overlapping", nodes)
    return federate(dataset, parts, make_split(dataset.labels.numpy(), parts, SPLIT, 0, dataset.classes))


@pytest.mark.parametrize("overlapping", [False, True])
@pytest.mark.parametrize("backbone", ["gcn", "graphsage"])
def test_true_mending_adds_exactly_the_inter_edges(overlapping: bool, backbone: str):
    federation = _overlapping() if overlapping else small_federation(4)
    setting = make_setting(federation, Architecture(backbone=backbone, hidden=(8, 6)), Schedule(rounds=1))
    method = registry.create("fedsage-true", {}, setting)
    method.build()
    assert isinstance(method, FedSageTrue)
    mended = method.mended
    assert mended is not None

    # For each client by hand: (its node, node outside) along the edges of the whole graph.
    adjacency = federation.source.adjacency().toarray()
    expected = set()
    for node, origin in enumerate(federation.origin.tolist()):
        client = int(federation.client[node])
        held = set(federation.origin[federation.client == client].tolist())
        for other in np.flatnonzero(adjacency[origin]).tolist():
            if other in set(federation.origin.tolist()) - held:
                expected.add((node, other))
    if overlapping:
        # An edge counts where neither client has the far end; see datasets.federation.split_edges.
        node, source = federation.inter.edges()[1].tolist(), federation.inter.edges()[0]
        expected = set(zip(node, federation.origin[source].tolist(), strict=True))

    original = {row: node for node, row in enumerate(mended.position.tolist())}
    source, target = (ends.tolist() for ends in mended.graph.edges())
    dense = federation.source.features.to_dense()
    stand_in_features = _rows(method.inputs.features)
    found: set[tuple[int, int]] = set()
    back: set[tuple[int, int]] = set()
    for u, v in zip(source, target, strict=True):
        if u in original and v in original:
            continue
        assert (u in original) != (v in original)
        node, stand_in = (original[v], u) if v in original else (original[u], v)
        same = (stand_in_features[stand_in] == dense).all(dim=1).nonzero().squeeze(1).tolist()
        matching = [origin for origin in same if (node, origin) in expected]
        assert matching
        (found if v in original else back).add((node, stand_in))
    assert len(found) == len(expected)
    assert found == back
    stand_ins = {(int(federation.client[node]), origin) for node, origin in expected}
    assert mended.graph.num_nodes() == federation.nodes + len(stand_ins)
    assert method.extras["stand_ins"] == len(stand_ins)
    inside = sum(u in original and v in original for u, v in zip(source, target, strict=True))
    assert inside == federation.graph.num_edges()


def _rows(features: Features) -> torch.Tensor:
    """The features as they were handed in, by multiplying with the identity of each client."""
    identity = torch.eye(features.width).expand(features.segments.clients, -1, -1)
    return features.times(identity.contiguous())


def test_degrees_of_true_mending_are_those_of_the_whole_graph():
    federation = small_federation(5)
    node, _, _ = missing_neighbours(federation)
    degrees = federation.graph.in_degrees() + torch.bincount(node, minlength=federation.nodes)
    assert torch.equal(degrees, federation.source.graph.in_degrees()[federation.origin])


def test_true_mending_counts_the_features_it_moves():
    setting = _setting()
    outcome = train(registry.create("fedsage-true", {}, setting))
    _, _, rows = missing_neighbours(setting.federation)
    entries = int((setting.federation.features.to_dense()[rows] != 0).sum())
    assert outcome.bytes["once"] == 2 * 8 * entries


@pytest.mark.parametrize("backbone", ["gcn", "sgc", "graphsage"])
def test_originals_hear_generated_neighbours(backbone: str):
    federation = small_federation(3)
    network = make_backbone(Architecture(backbone=backbone, hidden=(8, 6)))
    generator = torch.Generator().manual_seed(0)
    start = stack(network.initial(12, 3, generator), 3)
    own = Features(federation.features, Segments(federation.sizes))
    plain = network.prepare(federation.graph, federation.features, federation.sizes, 3)
    owner = torch.tensor([0, 5, 5, federation.nodes - 1])
    generated = 10 * torch.ones(len(owner), 12)
    mended = grow(federation.graph, federation.sizes, len(owner), (torch.arange(len(owner)), owner))
    inputs = mended_inputs(network, mended, own, generated, 3)
    before = network.forward(plain, start)
    after = network.forward(inputs, start)
    changed = (before - after).abs().amax(dim=1)
    assert (changed[owner] > 1e-3).all()
    # Only nodes within as many hops as there are convolutions can have heard.
    reached = torch.zeros(federation.nodes, dtype=torch.bool)
    reached[owner] = True
    adjacency = federation.graph.adj_external(scipy_fmt="csr").toarray()
    for _ in range(2):
        reached |= torch.from_numpy(adjacency.T @ reached.numpy() > 0)
    assert (changed[~reached] < 1e-6).all()


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


@pytest.mark.parametrize("name", ["fedsage+", "fedsage-true"])
@pytest.mark.parametrize("backbone", ["gcn", "sgc", "graphsage"])
def test_predictions_are_in_the_federations_order(name: str, backbone: str):
    setting = _setting(backbone)
    options = SMALL | {"generator_learning_rate": 0.1} if name == "fedsage+" else {}
    method = registry.create(name, options, setting)
    train(method)
    assert isinstance(method, FedSagePlus | FedSageTrue)
    assert method.mended is not None
    every = method.backbone.forward(replace(method.inputs, position=None), method.parameters)
    row = {node: int(method.mended.position[node]) for node in range(setting.federation.nodes)}
    predicted = method.predict()
    assert len(predicted) == setting.federation.nodes
    own = _rows(method.inputs.features) if name == "fedsage-true" else None
    for node in range(setting.federation.nodes):
        assert_agree(predicted[node], every[row[node]])
        if own is not None:
            assert torch.equal(own[row[node]], setting.federation.features.to_dense()[node])
    client = method.inputs.segments.client[method.mended.position]
    assert torch.equal(client, setting.federation.client)


def test_generated_rows_are_brought_to_the_length_of_row_normalised_ones():
    options = SMALL | {"generator_learning_rate": 0.1}
    found = []
    for generated in ("as-generated", "row-normalised"):
        method = registry.create("fedsage+", options | {"generated": generated}, _setting())
        assert isinstance(method, FedSagePlus)
        method.build()
        made = method.train_generators()
        assert made is not None
        found.append(made.features)
    raw, scaled = found
    length = raw.abs().sum(dim=1, keepdim=True)
    assert (length > 1.5).any()
    torch.testing.assert_close(scaled * length, raw)
    torch.testing.assert_close(scaled.abs().sum(dim=1), torch.ones(len(scaled)))


def test_the_papers_counting_has_four_transfers_of_the_training_nodes_features():
    method = registry.create("fedsage+", SMALL, _setting())
    outcome = train(method)
    federation = method.federation
    model = sum(value.numel() for value in method.parameters.values())
    rows = 4 * int(federation.train.sum()) * federation.features.shape[1]
    assert outcome.extras["paper_communication_pct"] == pytest.approx(100 + 100 * rows / (2 * model))
    # The printed figure: 124 training nodes a client, 1,433 features, 200,967 parameters.
    assert pytest.approx(276.84, abs=0.005) == 100 * (1 + 4 * 124 * 1433 / (2 * 200_967))


@pytest.mark.parametrize("task", ["node-classification", "link-prediction"])
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("name", ["fedsage-true", "fedsage+"])
@pytest.mark.parametrize("left_out", [0, 10**9])
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


def test_averaged_gradients_without_mending_are_fedsgd():
    setting = _setting(weighting="nodes", evaluate="received", rounds=4)
    assert len(set(setting.federation.sizes.tolist())) > 1
    sgd = registry.create("fedsgd", {}, setting)
    expected = train(sgd)
    method = registry.create("fedsage+", SMALL | {"neighbours": 0, "average": "gradients"}, setting)
    plus = train(method)
    assert plus.curve["test"] == pytest.approx(expected.curve["test"])
    for name, value in sgd.parameters.items():
        torch.testing.assert_close(method.parameters[name], value, rtol=0, atol=1e-6)


def test_fedsage_is_graphsage_and_true_is_flagged():
    assert registry.describe("fedsage").backbones == ("graphsage",)
    assert registry.describe("fedsage-true").breaks_privacy
    assert not registry.describe("fedsage+").breaks_privacy


@pytest.mark.parametrize("name", ["fedsage", "fedsage+", "fedsage-true"])
def test_link_prediction_runs(name: str):
    options = SMALL if name == "fedsage+" else {}
    outcome = train(registry.create(name, options, _setting(task="link-prediction[width=5]")))
    assert 0 <= outcome.metrics["roc_auc"] <= 1


@pytest.mark.parametrize(
    ("options", "named"),
    [({"hidden_share": 1.5}, "hidden_share"), ({"neighbours": -1}, "neighbours"), ({"wide": 0}, "wide")],
)
def test_impossible_options_are_named(options: dict[str, float], named: str):
    with pytest.raises(UserError, match=named):
        registry.create("fedsage+", options, _setting()).build()
