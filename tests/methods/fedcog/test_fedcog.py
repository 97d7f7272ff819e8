"""FedCog's propagation is the whole graph's; LNNC removes the leak condition."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsub.datasets.federation import Federation
from fedsub.datasets.graph import as_scipy, build_dataset
from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.channel import size_of
from fedsub.methods.core.training import train
from fedsub.methods.fedcog.coupling import CoupledConvolution, connect, exposed
from fedsub.methods.fedcog.features import FeaturePropagation, as_dense, mixed_hops
from tests.methods.federations import divided, make_method, small_federation

SCHEDULE = Schedule(rounds=3, learning_rate=0.5, optimiser="sgd", averaging="pooled")
NETWORK = Architecture(hidden=(8, 8), dropout=0.0)


def whole_graph(federation: Federation, exponent: float = 0.5) -> np.ndarray:
    """D̃^(−r) Ã D̃^(r−1) of the nodes that any client holds, plus LNNC's edges, seen from the n copies:
    the product with one row per copy, (n, n), spread evenly over a neighbour's copies."""
    origin = federation.origin.numpy()
    nodes, row = np.unique(origin, return_inverse=True)
    adjacency = federation.source.adjacency()[nodes][:, nodes].toarray()
    source, target = federation.graph.edges()
    adjacency[row[source], row[target]] = 1
    degree = adjacency.sum(axis=1) + 1
    matrix = degree[:, None] ** -exponent * (adjacency + np.eye(len(nodes))) * degree ** (exponent - 1)
    return (matrix / np.bincount(row))[row][:, row]


@settings(max_examples=40)
@given(
    nodes=st.integers(5, 40),
    scheme=st.sampled_from(["random", "metis-overlapping"]),
    clients=st.integers(2, 8),
    exponent=st.sampled_from([0.5, 0.2]),
    seed=st.integers(0, 1000),
)
def test_any_graph_and_any_partition(
    nodes: int, scheme: str, clients: int, exponent: float, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    ends = generator.integers(0, nodes, (2, 2 * nodes))
    features = generator.normal(size=(nodes, 3)).astype(np.float32)
    dataset = build_dataset("any", ends[0], ends[1], features, generator.integers(0, 2, nodes), 2)
    federation = divided(dataset, min(clients, nodes) if scheme == "random" else 5, scheme)
    joined = [connect(federation, isolated=True)] if scheme == "random" else []
    for case in (federation, *joined):
        coupled = CoupledConvolution(case, exponent)(case.features)
        whole = torch.from_numpy(whole_graph(case, exponent)).float() @ case.features
        torch.testing.assert_close(coupled, whole, rtol=0, atol=1e-5)


@settings(max_examples=30)
@given(nodes=st.integers(4, 40), clients=st.integers(2, 5), seed=st.integers(0, 1000), isolated=st.booleans())
def test_lnnc_leaves_no_node_with_only_external_neighbours(
    nodes: int, clients: int, seed: int, isolated: bool
) -> None:
    federation = small_federation(clients=min(clients, nodes // 2), nodes=nodes, seed=seed)
    protected = connect(federation, isolated)
    sizes = federation.sizes[federation.client].numpy()
    alone = exposed(federation, isolated) & (sizes == 1)
    assert np.array_equal(exposed(protected, isolated), alone)
    client = federation.client
    source, target = protected.graph.edges()
    assert torch.equal(client[source], client[target])


@pytest.mark.parametrize("backbone", ["sgc", "gcn"])
@pytest.mark.parametrize("input_norm", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_without_lnnc_one_step_a_round_is_central_training(
    backbone: str, input_norm: bool, sparse: bool
) -> None:
    federation = small_federation(clients=5, nodes=80, sparse=sparse)
    outputs = []
    for name, options in (("central", {}), ("fedcog", {"lnnc": False})):
        network = replace(NETWORK, backbone=backbone, input_norm=input_norm)
        method = make_method(
            name, options, federation, network, replace(SCHEDULE, evaluate="received"), seed=1
        )
        train(method)
        outputs.append(method.predict())
    torch.testing.assert_close(outputs[1], outputs[0], rtol=0, atol=1e-4)


def test_propagation_is_reported_beside_a_rounds_updates() -> None:
    network = replace(NETWORK, backbone="sgc")
    method = make_method("fedcog", {"hops": 1}, small_federation(clients=4), network, SCHEDULE, seed=1)
    outcome = train(method)
    extras, mebi = outcome.extras, 2**20
    assert extras["propagation_mb"] == pytest.approx(outcome.bytes["once"] / mebi)
    assert extras["update_mb"] == pytest.approx((outcome.bytes["up"] + outcome.bytes["down"]) / mebi)
    assert extras["mb_ratio_to_update"] == pytest.approx(extras["propagation_mb"] / extras["update_mb"])


@pytest.mark.parametrize("terms", [2**25, 100])
def test_sparse_and_dense_propagation_agree(terms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedsub.methods.fedcog.features.BLOCK_TERMS", terms)
    generator = np.random.default_rng(0)
    matrix = sp.random(200, 600, 0.005, format="csr", dtype=np.float32, random_state=1)
    ends = generator.integers(0, 200, (2, 300))
    dataset = build_dataset("wide", ends[0], ends[1], matrix, np.arange(200) % 3)
    federation = divided(dataset, 6, "random")
    convolution = CoupledConvolution(federation)
    sparse, dense = FeaturePropagation(convolution), FeaturePropagation(convolution)
    x = as_scipy(federation.features)
    first = sparse(x)
    assert not isinstance(first, torch.Tensor)
    second = dense(torch.from_numpy(x.toarray()))
    assert isinstance(second, torch.Tensor)
    np.testing.assert_allclose(first.toarray(), second.numpy(), atol=1e-6)
    sizes, others = ({name: size_of(*form) for name, form in each.sent().items()} for each in (sparse, dense))
    assert sizes == others
    assert sizes["nonzero"] < sizes["sparse"] < sizes["dense"]
    for hops, form in ((1, sp.csr_matrix), (8, torch.Tensor)):
        wide = mixed_hops("gprgnn", x, sparse, hops, 0.1)
        assert isinstance(wide, form)
        torch.testing.assert_close(as_dense(wide), mixed_hops("gprgnn", as_dense(x), dense, hops, 0.1))
