"""FedStar's return probabilities against dense powers."""

import pytest
import torch

from fedsub.methods.stacked import walks
from fedsub.methods.stacked.walks import return_probabilities
from tests.methods.federations import small_federation


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
