"""FedStruct: its versions agree, its gradient is Theorem 6's, the traffic is that of its algorithms."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
import torch.nn.functional as functional

from fedsub.datasets.errors import UserError
from fedsub.datasets.federation import Federation, federate
from fedsub.datasets.graph import build_dataset
from fedsub.datasets.partition import partition
from fedsub.datasets.splits import make_split
from fedsub.methods.core import registry
from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.setting import make_setting
from fedsub.methods.core.training import train
from fedsub.methods.fedstruct import FedStruct
from fedsub.methods.stacked.parameters import unprefixed
from tests.methods.federations import small_dataset, small_federation
from tests.methods.rounding import assert_agree

SMALL = {
    "structure_width": 8,
    "structure_hidden": "16",
    "feature_hidden": "8",
    "structure_hops": 4,
    "walk_length": 6,
    "context": 3,
    "walk_epochs": 2,
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fresh cache folder."""
    monkeypatch.setenv("FEDSUB_CACHE", str(tmp_path))


def make(
    options: dict[str, Any], federation: Federation | None = None, dropout: float = 0.0, rounds: int = 3
) -> FedStruct:
    setting = make_setting(
        federation or small_federation(clients=4, nodes=80),
        Architecture("gcn", (8,), dropout=dropout),
        Schedule(
            rounds=rounds,
            learning_rate=0.01,
            weight_decay=1e-4,
            weighting="nodes",
            evaluate="received",
            selection="last",
            averaging="pooled",
        ),
        seed=1,
    )
    method = registry.create("fedstruct", SMALL | options, setting)
    assert isinstance(method, FedStruct)
    return method


def trained(method: FedStruct) -> tuple[torch.Tensor, dict[str, float]]:
    outcome = train(method)
    return method.predict(), outcome.bytes


@pytest.mark.parametrize("features", ["deg", "gdv", "n2v", "h2v"])
@pytest.mark.parametrize("beta", ["last", "all"])
def test_versions_a_and_b_agree_after_training(features: str, beta: str) -> None:
    common = {"features": features, "beta": beta}
    one, sent = trained(make(common | {"version": "a"}))
    two, other = trained(make(common | {"version": "b"}))
    torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-5)
    assert sent["once"] == 0
    assert other["once"] > 0


def test_version_b_propagates_the_same_where_rows_would_not_fit() -> None:
    held, held_bytes = trained(make({"version": "b"}))
    method = make({"version": "b", "rows_limit_gb": 0.0})
    spread, spread_bytes = trained(method)
    assert method.rows is None
    torch.testing.assert_close(held, spread, rtol=1e-5, atol=1e-5)
    assert held_bytes == spread_bytes


def test_dropout_hits_both_versions_alike() -> None:
    one, _ = trained(make({"version": "a"}, dropout=0.5))
    two, _ = trained(make({"version": "b"}, dropout=0.5))
    torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-4)


def test_its_own_dropout_replaces_the_protocols() -> None:
    own, _ = trained(make({"dropout": 0.5}, dropout=0.2))
    protocol, _ = trained(make({}, dropout=0.5))
    assert_agree(own, protocol)


def test_prediction_is_equation_20() -> None:
    method = make({"features": "deg"})
    method.build()
    federation = method.federation
    whole = row_step(federation.source.adjacency().toarray())
    local = row_step(block_diagonal(federation))
    g = method.structure_backbone.forward(method.structure_inputs, unprefixed("structure", method.parameters))
    f = method.backbone.forward(method.inputs, unprefixed("feature", method.parameters))
    structure = torch.from_numpy(np.linalg.matrix_power(whole, 4)).float() @ g
    expected = structure[federation.origin] + torch.from_numpy(np.linalg.matrix_power(local, 2)).float() @ f
    torch.testing.assert_close(method.predict(), expected.detach(), rtol=1e-5, atol=1e-5)


def test_nodes_behind_the_last_edge_have_no_loop_if_asked_so() -> None:
    federation = small_federation(clients=20, nodes=80)
    method = make({"features": "deg", "self_loops": "to-last-edge"}, federation)
    method.build()
    adjacency = block_diagonal(federation)
    looped = np.zeros(federation.nodes)
    for nodes in np.split(np.arange(federation.nodes), federation.sizes.cumsum(0)[:-1].numpy()):
        connected = nodes[adjacency[nodes].any(axis=1)]
        looped[nodes[0] : max(connected, default=nodes[0] - 1) + 1] = 1
    assert adjacency.any(axis=1).sum() < looped.sum() < federation.nodes
    local = np.diag(looped) + adjacency
    local /= np.maximum(local.sum(axis=1, keepdims=True), 1)
    f = method.backbone.forward(method.inputs, unprefixed("feature", method.parameters))
    own = torch.from_numpy(np.linalg.matrix_power(local, 2)).float() @ f
    method.options = replace(method.options, inference="structure")
    structure = method.predict()
    method.options = replace(method.options, inference="both")
    torch.testing.assert_close(method.predict(), (structure + own).detach(), rtol=1e-5, atol=1e-5)


def row_step(adjacency: np.ndarray) -> np.ndarray:
    """D̃⁻¹(A + I)."""
    looped = adjacency.astype(np.float64) + np.eye(len(adjacency))
    return looped / looped.sum(axis=1, keepdims=True)


def block_diagonal(federation: Federation) -> np.ndarray:
    source, target = (end.numpy() for end in federation.graph.edges())
    dense = np.zeros((federation.nodes, federation.nodes))
    dense[source, target] = 1
    return dense


def test_networks_normalise_then_two_linear_layers() -> None:
    method = make({"features": "h2v"})
    method.build()
    named = method.parameters
    x = functional.layer_norm(named["hop2vec"][0], (8,))
    x = x * named["structure.norm.gain"][0] + named["structure.norm.bias"][0]
    x = (x @ named["structure.layers.0.weight"][0] + named["structure.layers.0.bias"][0]).relu()
    expected = x @ named["structure.head.weight"][0] + named["structure.head.bias"][0]
    torch.testing.assert_close(method._structure(None), expected)


@pytest.mark.parametrize("version", ["a", "b"])
def test_hop2vec_gradient_is_theorem_6(version: str) -> None:
    method = make({"transform": "none", "version": version})
    method.build()
    federation = method.federation
    logits = method.logits(method.dropout)
    method.objective(logits).backward()
    source = federation.source
    rows = np.linalg.matrix_power(row_step(source.adjacency().toarray()), 4)
    error = torch.softmax(logits.detach(), dim=1) - functional.one_hot(federation.labels, source.classes)
    expected = torch.zeros(source.nodes, source.classes)
    for client in range(federation.clients):
        labelled = (federation.train & (federation.client == client)).nonzero().squeeze(1)
        a = torch.from_numpy(rows[federation.origin[labelled].numpy()]).float()
        expected += method.weights[client] / len(labelled) * (a.T @ error[labelled])
    gradient = method.parameters["hop2vec"].grad
    assert gradient is not None
    torch.testing.assert_close(gradient[0], expected, rtol=1e-4, atol=1e-6)


def test_pruned_to_every_entry_is_version_b_and_to_few_is_not() -> None:
    whole, _ = trained(make({"version": "b"}))
    all_kept, _ = trained(make({"version": "b", "pruning": 80}))
    few, _ = trained(make({"version": "b", "pruning": 3}))
    torch.testing.assert_close(whole, all_kept, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(whole, few, atol=1e-3)


def test_graphsage_runs_on_both_parts_and_learns() -> None:
    method = make({"network": "graphsage", "features": "h2v"}, rounds=60)
    outcome = train(method)
    assert outcome.curve["loss"][-1] < 0.5 * outcome.curve["loss"][0]
    assert any(name.startswith("structure.layers.0.neighbour") for name in method.parameters)


def test_overlapping_clients_share_the_structure_of_a_node() -> None:
    dataset = small_dataset(nodes=60)
    halves = [np.arange(40), np.arange(20, 60)]
    owner = partition(dataset, "random", 2, 0)
    parts = type(owner)("overlap", tuple(halves))
    split = make_split(dataset.labels.numpy(), parts, "ratio", 0, dataset.classes)
    federation = federate(dataset, parts, split)
    method = make({"features": "deg"}, federation)
    method.build()
    assert len(method.owner) == 60
    assert method.position.tolist() == [*range(40), *range(20, 60)]
    with pytest.raises(UserError, match="share no node"):
        make({"version": "b"}, federation).build()


class TestTraffic:
    """Bytes against the algorithms' terms."""

    clients, nodes, classes, width = 4, 80, 3, 8

    def sizes(self, method: FedStruct) -> tuple[int, int, int]:
        """|θ|, |θ_s|, labelled nodes."""
        named = method.parameters.items()
        model = sum(value.numel() for name, value in named if name != "hop2vec")
        structure = sum(value.numel() for name, value in named if name.startswith("structure."))
        return model, structure, int(method.federation.train.sum())

    def test_version_a_sends_embeddings_and_jacobians_down(self) -> None:
        method = make({"features": "deg"})
        _, sent = trained(method)
        model, structure, labelled = self.sizes(method)
        down = self.clients * model + labelled * self.classes * (1 + structure)
        assert sent == {"up": 4 * self.clients * model, "down": 4 * down, "once": 0}

    def test_version_a_with_hop2vec_adds_the_reachable_features(self) -> None:
        method = make({"features": "h2v"})
        _, sent = trained(method)
        model, structure, labelled = self.sizes(method)
        rows = np.linalg.matrix_power(row_step(method.federation.source.adjacency().toarray()), 4)
        pairs = (rows[method.federation.origin[method.federation.train].numpy()] > 0).sum()
        down = self.clients * model + labelled * self.classes * (1 + structure)
        down += int(pairs) * self.classes * self.width
        assert sent["down"] == 4 * down
        assert sent["up"] == 4 * self.clients * (model + self.nodes * self.width)

    def test_version_b_sends_gradients_and_once_the_powers_and_features(self) -> None:
        method = make({"features": "h2v", "version": "b"})
        _, sent = trained(method)
        model, _, _ = self.sizes(method)
        per_round = 4 * self.clients * (model + self.nodes * self.width)
        rows = foreign_rows(method.federation)
        once = 4 * (3 * rows * self.nodes + (self.clients - 1) * self.nodes * self.width)
        assert sent == {"up": per_round, "down": per_round, "once": once}

    def test_pruning_sends_fewer_bytes_once(self) -> None:
        _, whole = trained(make({"version": "b"}))
        _, pruned = trained(make({"version": "b", "pruning": 5}))
        assert pruned["once"] < whole["once"]
        assert pruned["up"] == whole["up"]

    @pytest.mark.parametrize(
        "options", [{"features": "deg"}, {"features": "h2v", "transform": "none"}], ids=["deg", "h2v"]
    )
    @pytest.mark.parametrize("rows_limit_gb", [2.5, 0.0])
    def test_the_private_variant_changes_the_traffic_and_nothing_else(
        self, options: dict[str, Any], rows_limit_gb: float
    ) -> None:
        options = {"version": "b", "rows_limit_gb": rows_limit_gb, **options}
        open_result, _ = trained(make(options))
        method = make({**options, "private": True})
        result, sent = trained(method)
        torch.testing.assert_close(result, open_result, rtol=0, atol=1e-5)
        model, structure, labelled = self.sizes(method)
        federation = method.federation
        learned = self.nodes * self.classes if options["features"] == "h2v" else 0
        sums = (self.clients - 1) * labelled * self.classes
        up = 4 * (self.clients * (model + learned) + sums)
        if not learned:
            # Eq. (50): for each labelled node, from each other client, the derivative of c values by θ_s.
            derivatives = 4 * structure * self.classes
            assert method.extras["up_mb_per_epoch_by_paper"] == (up + self.clients * derivatives) / 1e6
            up += (self.clients - 1) * labelled * derivatives
            assert method.extras["up_mb_per_epoch"] == up / 1e6
        assert sent["up"] == up
        assert sent["down"] == 4 * (self.clients * model + learned)
        queries = (federation.count(federation.train) * (self.nodes - federation.sizes)).sum()
        once = 4 * (3 * foreign_rows(federation) * self.nodes + int(queries))
        assert sent["once"] == once


def foreign_rows(federation: Federation) -> int:
    """Pairs of a node and another client that holds neighbours of it."""
    source, target = (end.numpy() for end in federation.inter.edges())
    return len({(node, federation.client[far].item()) for node, far in zip(target, source, strict=True)})


def test_private_clients_receive_sums_over_their_owners_nodes() -> None:
    """Eq. (49), client by client."""
    method = make({"version": "b", "features": "deg", "private": True})
    method.build()
    assert method.rows is not None
    g = method._structure(None)
    sums = (method.rows @ method._kept_apart(g)).view(len(method.rows), method.federation.clients, -1)
    for client in range(method.federation.clients):
        own = torch.from_numpy(np.flatnonzero(method.owner == client))
        torch.testing.assert_close(sums[:, client], method.rows[:, own] @ g[own])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pruning": 3}, "add version=b"),
        ({"private": True}, "add version=b"),
        ({"private": True, "version": "b"}, "transform=none .*add it"),
        ({"version": "b", "network": "graphsage"}, "drop network=graphsage"),
        ({"transform": "none", "features": "deg"}, "drop it"),
        ({"structure_hops": 0}, "at least 1"),
        ({"structure_width": 0}, "at least 1"),
        ({"context": 30}, "context must be 2 to"),
        ({"return_parameter": 0.0}, "be positive"),
        ({"dropout": 1.0}, "less than 1"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make(options)


def test_unreadable_widths_are_refused() -> None:
    with pytest.raises(UserError, match="128\\+64"):
        make({"feature_hidden": "a+b"}).build()


def test_structure_tells_classes_apart_that_features_do_not() -> None:
    """Two communities without features: Hop2Vec finds them, f alone cannot."""
    generator = np.random.default_rng(0)
    labels = np.arange(120) % 2
    edges = np.triu(generator.random((120, 120)) < np.where(labels[:, None] == labels, 0.1, 0.005), 1)
    source, target = np.nonzero(edges)
    dataset = build_dataset("two", source, target, sp.csr_matrix(np.ones((120, 4), dtype=np.float32)), labels)
    parts = partition(dataset, "random", 4, 0)
    split = make_split(labels, parts, "ratio[train=0.2,validation=0.1,test=0.7]", 0, 2)
    federation = federate(dataset, parts, split)
    outcome = train(make({"structure_width": 32, "structure_hops": 6}, federation, rounds=60))
    assert outcome.metrics["accuracy"] > 0.9


@pytest.mark.parametrize(
    ("options", "keeps"),
    [
        ({}, False),
        ({"features": "deg"}, False),
        ({"version": "b"}, True),
        ({"version": "b", "features": "deg"}, True),
        ({"version": "b", "features": "gdv"}, False),
        ({"version": "b", "features": "n2v"}, False),
    ],
)
def test_what_keeps_to_privacy_is_the_variants_own(options: dict[str, Any], keeps: bool) -> None:
    assert (make(options).options.breaks_privacy() == "") == keeps
