"""FedStruct: its versions agree; overlapping clients; the rows that clients build together (Algorithm 3)."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsub.datasets.errors import UserError
from fedsub.datasets.federation import Federation
from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.training import train
from fedsub.methods.fedstruct.rows import unpruned_rows
from tests.methods.federations import make_method, overlapping_federation, random_graph, small_federation
from tests.methods.rounding import assert_agree
from tests.methods.variants import SMALL_STRUCTURE

pytestmark = pytest.mark.usefixtures("own_cache")
SMALL = SMALL_STRUCTURE | {"structure_hops": 4}
SCHEDULE = Schedule(rounds=3, learning_rate=0.01, weight_decay=1e-4, weighting="nodes", evaluate="received")


def make(options: dict[str, Any], federation: Federation | None = None, dropout: float = 0.0) -> Any:
    federation = federation or small_federation(clients=4, nodes=80)
    network = Architecture("gcn", (8,), dropout=dropout)
    return make_method("fedstruct", SMALL | options, federation, network, SCHEDULE, seed=1)


def trained(method: Any) -> tuple[torch.Tensor, dict[str, float]]:
    outcome = train(method)
    return method.predict(), outcome.bytes


@pytest.mark.parametrize("features", ["gdv", "n2v"])
def test_versions_a_and_b_agree_after_training(features: str) -> None:
    common = {"features": features}
    one, sent = trained(make(common | {"version": "a"}))
    two, other = trained(make(common | {"version": "b"}))
    torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-5)
    assert sent["once"] == 0
    assert other["once"] > 0


def test_dropout_hits_both_versions_alike() -> None:
    one, _ = trained(make({"version": "a"}, dropout=0.5))
    two, _ = trained(make({"version": "b"}, dropout=0.5))
    torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-4)


def test_its_own_dropout_replaces_the_protocols() -> None:
    own, _ = trained(make({"dropout": 0.5}, dropout=0.2))
    protocol, _ = trained(make({}, dropout=0.5))
    assert_agree(own, protocol)


def test_what_the_paper_counts_of_private_clients_stands_beside_what_they_send() -> None:
    """Eq. (50) sends derivatives for every labelled node and client; the paper counts one per client."""
    method = make({"version": "b", "features": "deg", "private": True})
    _, sent = trained(method)
    named = method.parameters.items()
    structure = sum(value.numel() for name, value in named if name.startswith("structure."))
    labelled, clients = int(method.federation.train.sum()), method.federation.clients
    more = 4 * ((clients - 1) * labelled - clients) * structure * method.federation.classes
    assert method.extras["up_mb_per_epoch"] == pytest.approx(sent["up"] / 1e6)
    assert method.extras["up_mb_per_epoch_by_paper"] == pytest.approx((sent["up"] - more) / 1e6)


def test_overlapping_clients_share_the_structure_of_a_node() -> None:
    federation = overlapping_federation()
    method = make({"features": "deg"}, federation)
    method.build()
    assert len(method.owner) == 60
    assert method.position.tolist() == [*range(40), *range(20, 60)]
    with pytest.raises(UserError, match="share no node"):
        make({"version": "b"}, federation).build()


def global_rows(adjacency: sp.csr_matrix, hops: int) -> np.ndarray:
    """Return Ā = (D̃⁻¹(A + I))^hops of the whole graph, computed directly."""
    looped = adjacency.toarray().astype(np.float64) + np.eye(adjacency.shape[0])
    return np.linalg.matrix_power(looped / looped.sum(axis=1, keepdims=True), hops)


@settings(max_examples=25)
@given(st.integers(2, 25), st.floats(0, 0.6), st.integers(1, 6), st.integers(1, 5), st.integers(0, 10**6))
def test_rows_equal_the_global_ones_on_any_graph(
    nodes: int, share: float, clients: int, hops: int, seed: int
) -> None:
    adjacency = random_graph(nodes, share, seed)
    client = np.random.default_rng(seed).integers(0, clients, nodes)
    built, _ = unpruned_rows(adjacency, client, np.arange(nodes), hops)
    assert built is not None
    np.testing.assert_allclose(built, global_rows(adjacency, hops), atol=1e-5)


def test_columns_beyond_one_block_are_built_too() -> None:
    adjacency = random_graph(1100, 0.002, 0)
    built, _ = unpruned_rows(adjacency, np.arange(1100) % 3, np.arange(0, 1100, 50), 3)
    assert built is not None
    np.testing.assert_allclose(built, global_rows(adjacency, 3)[::50], atol=1e-6)
