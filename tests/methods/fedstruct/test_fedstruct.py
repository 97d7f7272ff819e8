"""FedStruct: its versions agree; overlapping clients; options that exclude each other."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from fedsub.datasets.errors import UserError
from fedsub.datasets.federation import Federation
from fedsub.datasets.graph import build_dataset
from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.training import train
from tests.methods.federations import divided, make_method, overlapping_federation, small_federation
from tests.methods.rounding import assert_agree

pytestmark = pytest.mark.usefixtures("own_cache")
SMALL = {
    "structure_width": 8,
    "structure_hidden": "16",
    "feature_hidden": "8",
    "structure_hops": 4,
    "walk_length": 6,
    "context": 3,
    "walk_epochs": 2,
}
SCHEDULE = Schedule(
    learning_rate=0.01,
    weight_decay=1e-4,
    weighting="nodes",
    evaluate="received",
    selection="last",
    averaging="pooled",
)


def make(
    options: dict[str, Any], federation: Federation | None = None, dropout: float = 0.0, rounds: int = 3
) -> Any:
    federation = federation or small_federation(clients=4, nodes=80)
    network, schedule = Architecture("gcn", (8,), dropout=dropout), replace(SCHEDULE, rounds=rounds)
    return make_method("fedstruct", SMALL | options, federation, network, schedule, seed=1)


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


def test_structure_tells_classes_apart_that_features_do_not() -> None:
    """Two communities without features: Hop2Vec finds them, f without structure cannot."""
    generator = np.random.default_rng(0)
    labels = np.arange(120) % 2
    edges = np.triu(generator.random((120, 120)) < np.where(labels[:, None] == labels, 0.1, 0.005), 1)
    source, target = np.nonzero(edges)
    dataset = build_dataset("two", source, target, sp.csr_matrix(np.ones((120, 4), dtype=np.float32)), labels)
    federation = divided(dataset, 4, "random", split="ratio[train=0.2,validation=0.1,test=0.7]")
    outcome = train(make({"structure_width": 32, "structure_hops": 6}, federation, rounds=60))
    assert outcome.metrics["accuracy"] > 0.9
