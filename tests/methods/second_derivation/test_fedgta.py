"""FedGTA as a loop over clients, from Li et al., PVLDB 17(1), 2023, and its public code.

After training, client k propagates its predictions from its labelled nodes T_k,

    Y ← α Â Y + (1 − α) Y⁰,    then Y_T ← Y_T + Y⁰_T,    Y⁰ = one-hot on T_k, softmax of the logits elsewhere,

and takes P = softmax(Y) and Q = softmax(Y / T), both one-hot on T_k. It sends its model, the moments
M_k = [mean P^j, and mean (P − P̄)^j] for j = 1 … J, and its confidence

    a_k = Σ_v d_v C / e + Σ_v d_v Σ_c Q log(Q + 10⁻⁸),    d_v the degree without self-loop.

Client i receives the mean of the models j with cos(M_i, M_j) > γ, weighted by a_j. The paper's clients are
always there. Here means are over those who sent in the round, and for a client that did not the server keeps
the last mean that it made (`methods.fedgta`): with that the client comes back.
"""

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.methods.stacked.parameters import Parameters
from tests.methods.loops import Part, mean
from tests.methods.oracle import forward
from tests.methods.second_derivation.common import COMMUNITY, Pair, divided, symmetric
from tests.methods.second_derivation.rounds import EVERYONE, SOME, cosines
from tests.methods.second_derivation.served import play_apart

CLIENTS, CLASSES, ORDER, STEPS, SPREAD, TEMPERATURE = 5, 6, 4, 5, 0.5, 20.0


@dataclass(frozen=True)
class Message:
    """Message of a client besides its model."""

    moments: Tensor
    confidence: Tensor


def message(part: Part, model: Parameters, network: str, kind: str, openfgl: bool) -> Message:
    """Return moments and confidence of one client; the confidence is summed node by node, as in the text.

    OpenFGL propagates only predictions of labelled nodes, without self-loops, and clips values to [0, 1].
    """
    adjacency, labelled = part["adjacency"], part["train"]
    one_hot = functional.one_hot(part["labels"], CLASSES).float()
    said = torch.softmax(logits(part, model, network, torch.ones_like(labelled)), dim=1)
    start = torch.where(labelled[:, None], one_hot, said)
    smooth = symmetric(adjacency)
    if openfgl:
        start = torch.where(labelled[:, None], said, 0.0)
        scale = adjacency.sum(dim=1).clamp(min=1).rsqrt()
        smooth = scale[:, None] * adjacency * scale
    y = start.clone()
    for _ in range(STEPS):
        y = SPREAD * smooth @ y + (1 - SPREAD) * start
        if openfgl:
            y = y.clamp(0, 1)
        else:
            y[labelled] += start[labelled]
    p, q = torch.softmax(y, dim=1), torch.softmax(y / TEMPERATURE, dim=1)
    p[labelled] = one_hot[labelled]
    q[labelled] = one_hot[labelled]
    moments = [(p**j).mean(dim=0) for j in range(1, ORDER + 1)]
    if kind == "hybrid":
        moments += [((p - p.mean(dim=0)) ** j).mean(dim=0) for j in range(1, ORDER + 1)]
    confidence = torch.zeros(())
    for v, degree in enumerate(adjacency.sum(dim=1)):
        confidence += degree * (CLASSES / math.e + (q[v] * torch.log(q[v] + 1e-8)).sum())
    return Message(torch.cat(moments), confidence)


def attended(part: Part, w: Parameters, read: Tensor, misread: bool) -> Tensor:
    """GAMLP's logits: hops 0 to 3 of the features in shares of the node's own, then three layers.

    The share of hop l at v is the softmax over hops of sigmoid(q · [X_0 ‖ X_1 ‖ X_2 ‖ X_3 ‖ X_l]_v + b). The
    public code writes these hop after hop for the nodes that it computes, and reads them node after node.
    """
    hops = [part["features"]]
    for _ in range(3):
        hops.append(symmetric(part["adjacency"]) @ hops[-1])
    hops = [x[read] for x in hops]
    score = [torch.sigmoid(torch.cat([*hops, x], dim=1) @ w["hops.weight"] + w["hops.bias"]) for x in hops]
    scores = torch.stack(score)
    if misread:
        scores = scores.view(-1, len(hops)).T[:, :, None]
    h = (torch.softmax(scores, dim=0) * torch.stack(hops)).sum(dim=0)
    for layer in range(3):
        h = functional.prelu(h, w["slope"]) if layer else h
        h = h @ w[f"layers.{layer}.weight"] + w[f"layers.{layer}.bias"]
    return h


def logits(part: Part, model: Parameters, network: str, read: Tensor) -> Tensor:
    if network.startswith("gamlp"):
        return attended(part, model, read, network == "gamlp-reference")
    return forward(part, model, network)[read]


@pytest.mark.parametrize("attendance", [EVERYONE, SOME], ids=["everyone", "some"])
@pytest.mark.parametrize(
    ("network", "kind"),
    [
        ("gcn", "hybrid"),
        ("gcn", "hybrid-openfgl"),
        ("gcn", "raw"),
        ("graphsage", "hybrid"),
        ("sgc", "raw"),
        ("mlp", "hybrid"),
        ("gamlp", "raw"),
        ("gamlp-reference", "raw"),
    ],
)
def test_rounds_agree(network: str, kind: str, attendance: dict[str, Any]) -> None:
    """The threshold is the middle of the cosines that one round of all clients leaves."""
    between = compare(network, kind, -1.0, {"rounds": 1}).sort().values
    middle = len(between) // 2
    threshold = float(between[middle - 1] + between[middle]) / 2
    played = compare(network, kind, threshold, attendance)
    assert bool((played > threshold).any())
    assert bool((played < threshold).any())


def compare(network: str, kind: str, threshold: float, attendance: dict[str, Any]) -> Tensor:
    """Every round's parameters and the bytes must agree; returns the cosines of two clients in all rounds."""
    kind, _, propagation = kind.partition("-")
    options: dict[str, Any] = {"threshold": threshold, "moments": kind, "order": ORDER}
    if propagation:
        options["propagation"] = propagation
    if network.startswith("gamlp"):
        options |= {"network": "gamlp", "hop_weights": network.partition("-")[2] or "nodes"}
    pair = Pair(
        divided(COMMUNITY, CLIENTS),
        "fedgta",
        options,
        "mlp" if network.startswith("gamlp") else network,
        local_epochs=3,
        weight_decay=5e-4,
        optimiser="sgd",
        learning_rate=0.1,
        **attendance,
    )
    cosines_seen: list[Tensor] = []

    def loss(k: int, model: Parameters, received: Parameters) -> Tensor:
        part = pair.parts[k]
        said = logits(part, model, network, part["train"])
        return functional.cross_entropy(said, part["labels"][part["train"]])

    def answer(
        kept: dict[int, Parameters], sent: dict[int, Parameters], weights: dict[int, float]
    ) -> dict[int, Parameters]:
        """Until a client is first present, the server's model for it is the common start."""
        clients = list(sent)
        told = [message(pair.parts[k], sent[k], network, kind, bool(propagation)) for k in clients]
        nearness, found = cosines(torch.stack([each.moments for each in told])), {}
        for i, client in enumerate(clients):
            near = [j for j in range(len(told)) if j == i or nearness[i, j] > threshold]
            weight = torch.stack([told[j].confidence for j in near])
            found[client] = mean([sent[clients[j]] for j in near], weight / weight.sum())
        cosines_seen.append(nearness[~torch.eye(len(told), dtype=torch.bool)])
        return found

    play_apart(pair, loss, answer, beside=(2 if kind == "hybrid" else 1) * ORDER * CLASSES + 1)
    return torch.cat(cosines_seen)
