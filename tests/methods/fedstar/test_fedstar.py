"""FedStar: return probabilities against dense powers; a convolution as the classifier."""

from __future__ import annotations

import pytest
import torch

from fedsub.methods.core import registry
from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.setting import Setting, make_setting
from fedsub.methods.fedstar import FedStar, structure_encoding
from fedsub.methods.stacked import walks
from fedsub.methods.stacked.walks import return_probabilities
from tests.methods.federations import small_federation


def _setting(clients: int = 4, backbone: str = "gcn", head: str = "linear", **schedule: object) -> Setting:
    architecture = Architecture(backbone=backbone, hidden=(8, 6), head=head)
    return make_setting(small_federation(clients), architecture, Schedule(rounds=3, **schedule))  # type: ignore[arg-type]


@pytest.mark.parametrize("entries", [2**25, 300])
def test_return_probabilities_against_dense_powers(entries: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(walks, "CHUNK_ENTRIES", entries)
    federation = small_federation(clients=3, nodes=70, seed=1)
    found = return_probabilities(federation.graph, federation.sizes, 7)
    adjacency = federation.graph.adj_external(scipy_fmt="csr").toarray()
    walk = torch.from_numpy(adjacency).double()
    walk = walk / walk.sum(dim=1, keepdim=True).clamp(min=1)
    power = torch.eye(len(walk), dtype=torch.float64)
    for step in range(7):
        power = power @ walk
        assert torch.allclose(found[:, step].double(), power.diagonal(), atol=1e-6)


@pytest.mark.parametrize("backbone", ["gcn", "graphsage", "mlp"])
def test_a_convolution_as_the_classifier_reads_the_structure(backbone: str):
    """The forward pass of one client, written out with dense matrices."""
    method = registry.create("fedstar", {"width": 5}, _setting(2, backbone, "convolution"))
    assert isinstance(method, FedStar)
    method.build()
    with torch.no_grad():
        for value in method.parameters.values():
            value.normal_(std=0.5)
    federation = method.federation
    mine = federation.client == 1
    adjacency = torch.from_numpy(federation.graph.adj_external(scipy_fmt="csr").toarray())[mine][:, mine]
    looped = adjacency + torch.eye(int(mine.sum()))
    scale = looped.sum(dim=1).rsqrt()
    smooth = scale.unsqueeze(1) * looped * scale
    mean = adjacency / adjacency.sum(dim=1, keepdim=True).clamp(min=1)
    p = {name: value[1].detach() for name, value in method.parameters.items()}

    def times(h: torch.Tensor, s: torch.Tensor, name: str) -> torch.Tensor:
        return torch.cat([h, s], dim=1) @ torch.cat([p[name], p[f"{name}.structure"]])

    def convolved(h: torch.Tensor, s: torch.Tensor, prefix: str) -> torch.Tensor:
        own = times(h, s, f"{prefix}.weight")
        if backbone == "mlp":
            return own
        if backbone == "graphsage":
            return own + mean @ times(h, s, f"{prefix}.neighbour")
        return smooth @ own

    encoding = structure_encoding(federation.graph, federation.sizes, 16, 16)
    s = encoding[mine] @ p["structure.0.weight"] + p["structure.0.bias"]
    states = [s]
    for i in range(2):
        s = torch.tanh(smooth @ (s @ p[f"structure.{i + 1}.weight"]) + p[f"structure.{i + 1}.bias"])
        states.append(s)
    h = federation.features.to_dense()[mine]
    for i in range(2):
        h = torch.relu(convolved(h, states[i], f"layers.{i}") + p[f"layers.{i}.bias"])
    expected = convolved(h, states[-1], "head")
    torch.testing.assert_close(method.predict()[mine], expected + p["head.bias"], rtol=1e-4, atol=1e-4)
