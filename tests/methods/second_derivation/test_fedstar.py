"""FedStar as a loop over clients, from Tan et al., AAAI 2023 (arXiv 2211.13009).

Structure embedding of node v: degree [d_v = 1, d_v = 2, …, d_v ≥ k₁] beside the return probabilities
[(A D⁻¹)_vv, …, (A D⁻¹)^k₂_vv]. Two encoders run in parallel and feature layer l reads both; f_l is the
backbone's convolution, g_l a graph convolution with tanh (as in the public code):

    H^l = f_l([H^(l−1) ‖ S^(l−1)]),    S^l = g_l(S^(l−1)),    S⁰ a linear map of the embedding

and the classifier reads [H^L ‖ S^L]. The server averages the structure encoder, its linear map included, by
|G_m| / |G|; every other parameter stays with its client. The paper classifies whole graphs; for nodes
nothing is pooled, and SGC, all classifier, reads [X ‖ S^L].
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from fedsub.methods.stacked import propagation
from fedsub.methods.stacked.parameters import Parameters
from tests.methods.loops import Part
from tests.methods.second_derivation.common import COMMUNITY, Pair, divided, symmetric
from tests.methods.second_derivation.rounds import EVERYONE, SOME, supervised
from tests.methods.second_derivation.served import average, play

CLIENTS = 5
DEGREES, STEPS = 4, 5
SPARSE = "community[nodes=200,features=60,communities=8,average_degree=2]"


def structure_embedding(adjacency: Tensor) -> Tensor:
    """[one-hot degree ‖ return probabilities]; a node without neighbours has neither."""
    degree = adjacency.sum(dim=1)
    one_hot = torch.stack([degree == d for d in range(1, DEGREES)] + [degree >= DEGREES], dim=1).float()
    walk = adjacency / degree.clamp(min=1)
    power, returns = torch.eye(len(adjacency)), []
    for _ in range(STEPS):
        power = power @ walk
        returns.append(power.diagonal())
    return torch.cat([one_hot, torch.stack(returns, dim=1)], dim=1)


def logits(part: Part, w: Parameters, backbone: str, head: str) -> Tensor:
    adjacency = part["adjacency"]
    smooth = symmetric(adjacency)
    mean = adjacency / adjacency.sum(dim=1, keepdim=True).clamp(min=1)

    def convolved(h: Tensor, s: Tensor, name: str) -> Tensor:
        both = torch.cat([h, s], dim=1)
        read = both @ _joined(w, f"{name}.weight")
        if backbone == "gcn":
            read = smooth @ read
        if backbone == "graphsage":
            read = read + mean @ both @ _joined(w, f"{name}.neighbour")
        return read + w[f"{name}.bias"]

    s = structure_embedding(adjacency) @ w["structure.0.weight"] + w["structure.0.bias"]
    h = part["features"]
    for layer in range(2):
        # SGC's one layer is the classifier, after two steps of the structure encoder and of its own.
        if backbone != "sgc":
            h = torch.relu(convolved(h, s, f"layers.{layer}"))
        name = f"structure.{layer + 1}"
        s = torch.tanh(smooth @ s @ w[f"{name}.weight"] + w[f"{name}.bias"])
    if head == "convolution" and backbone != "sgc":
        return convolved(h, s, "head")
    both = torch.cat([h, s], dim=1)
    if backbone == "sgc":
        both = smooth @ smooth @ both
    return both @ _joined(w, "head.weight") + w["head.bias"]


def _joined(w: Parameters, name: str) -> Tensor:
    """The matrix that reads [h ‖ s]; its two row blocks are parameters of their own."""
    return torch.cat([w[name], w[f"{name}.structure"]])


@pytest.mark.parametrize("attendance", [EVERYONE, SOME], ids=["everyone", "some"])
@pytest.mark.parametrize("backbone", ["gcn", "graphsage", "mlp", "sgc"])
@pytest.mark.parametrize(
    ("graph", "scheme", "head"), [(COMMUNITY, "metis", "convolution"), (SPARSE, "random", "linear")]
)
def test_rounds_agree(
    backbone: str,
    head: str,
    graph: str,
    scheme: str,
    attendance: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that is absent keeps its own parameters and comes back to the newest structure encoder."""
    # Several chunks a client; FedTAD's walks are in one.
    monkeypatch.setattr(propagation, "CHUNK_ENTRIES", 1500)
    pair = Pair(
        divided(graph, CLIENTS, scheme),
        "fedstar",
        {"degrees": DEGREES, "steps": STEPS, "width": 6},
        backbone,
        local_epochs=2,
        weight_decay=1e-4,
        head=head,
        **attendance,
    )

    def loss(k: int, model: Parameters, received: Parameters) -> Tensor:
        return supervised(pair.parts[k], logits(pair.parts[k], model, backbone, head))

    play(pair, loss, average, lambda name: name.startswith("structure."))


def test_some_nodes_have_no_neighbour() -> None:
    """The second graph of the test above holds the case on which paper and public code part."""
    federation = divided(SPARSE, CLIENTS, "random")
    assert int((federation.graph.in_degrees() == 0).sum()) > 20
