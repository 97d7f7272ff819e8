"""FedGCN as a loop over clients, from a summary of Yao et al., NeurIPS 2023, and of its public code.

With Â = D̃^−½ (A + I) D̃^−½ of the whole graph, whose rows no client has in full,

    s_v = Σ_k Σ_{u ∈ V_k} Â_vu x_u,    to which client k adds what its own nodes u bring,

is summed by the server once, before training. For L hops a client then has s of its nodes and of those up
to L − 1 edges away, E; its first convolution is s itself, every further one a product with the rows of E,

    H = σ(s W₁ + b₁),    H ← σ(Â_EE H W₂ + b₂),    of which it reads its own nodes.

The public library sums (A + I) x and counts the degrees of the further convolutions inside E
(`normalisation`, `degrees`). The code of November 2023 sends no sums but the features of all nodes up to L
edges away (`sent`). Zero hops are FedAvg, and models are averaged as there. The text counts rows alone: a
number that names each on its way up, and the degrees, which go up for every node and come down for those of
others, are counted as `methods.fedgcn` says.
"""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.datasets.federation import Federation
from fedsub.methods.stacked.parameters import Parameters
from tests.methods.loops import Part
from tests.methods.second_derivation.common import COMMUNITY, Pair, divided, symmetric
from tests.methods.second_derivation.rounds import supervised
from tests.methods.second_derivation.served import average, play

CLIENTS = 5
SGD = {"optimiser": "sgd", "learning_rate": 0.5}


@dataclass(frozen=True)
class Plan:
    """One variant of the exchange; the defaults are the text's."""

    hops: int = 2
    sent: str = "sums"
    normalisation: str = "symmetric"
    degrees: str = "global"

    @property
    def sums(self) -> bool:
        return self.hops > 0 and self.sent == "sums"

    @property
    def radius(self) -> int:
        """Edges from a client's own nodes to the last of which it has a row."""
        return self.hops - 1 if self.sums else self.hops


@dataclass(frozen=True)
class Whole:
    """The graph that the clients hold together, each node once."""

    adjacency: Tensor
    features: Tensor
    own: list[Tensor]
    """Each client's nodes, in the order of its rows."""
    holder: Tensor
    """The client that speaks for a node: where clients overlap, the first that holds it."""


def whole(federation: Federation) -> Whole:
    """Edges between clients included."""
    held, node = federation.origin.unique(return_inverse=True)
    adjacency = torch.zeros(len(held), len(held))
    for graph in (federation.graph, federation.inter):
        source, target = graph.edges()
        adjacency[node[target], node[source]] = 1
    holder = torch.full((len(held),), federation.clients).scatter_reduce(0, node, federation.client, "amin")
    features = torch.zeros(len(held), federation.width)
    features[node] = federation.features.to_dense()
    own = [node[federation.client == client] for client in range(federation.clients)]
    return Whole(adjacency, features, own, holder)


def around(adjacency: Tensor, nodes: Tensor, hops: int) -> Tensor:
    """`nodes`, then those up to `hops` edges away from them."""
    inside = torch.zeros(len(adjacency), dtype=torch.bool)
    inside[nodes] = True
    for _ in range(hops):
        inside = inside | (adjacency[:, inside].sum(dim=1) > 0)
    inside[nodes] = False
    return torch.cat([nodes, inside.nonzero().flatten()])


def summed(graph: Whole, normalisation: str) -> Tensor:
    """Return the server's sums, (N, d), after every client has sent the contributions of its nodes."""
    looped = graph.adjacency + torch.eye(len(graph.adjacency))
    weights = symmetric(graph.adjacency) if normalisation == "symmetric" else looped
    total = torch.zeros_like(graph.features)
    for client in range(len(graph.own)):
        speaks = graph.holder == client
        total += weights[:, speaks] @ graph.features[speaks]
    return total


def extended_parts(federation: Federation, plan: Plan) -> list[Part]:
    """Return each client's training data after the exchange: inputs on E, own nodes first, and E's matrix."""
    graph = whole(federation)
    inputs = summed(graph, plan.normalisation) if plan.sums else graph.features
    parts = []
    for client, own in enumerate(graph.own):
        extended = around(graph.adjacency, own, plan.radius)
        if plan.degrees == "global" and plan.hops > 0:
            convolution = symmetric(graph.adjacency)[extended][:, extended]
        else:
            convolution = symmetric(graph.adjacency[extended][:, extended])
        mine = federation.client == client
        parts.append(
            {
                "inputs": inputs[extended],
                "convolution": convolution,
                "summed": torch.tensor(plan.sums),
                "labels": federation.labels[mine],
                "train": federation.train[mine],
            }
        )
    return parts


def logits(part: Part, model: Parameters, backbone: str) -> Tensor:
    own = len(part["labels"])
    h, convolution = part["inputs"], part["convolution"]
    # Exchanged sums include the first convolution.
    left = 0 if part["summed"] else 1
    if backbone == "sgc":
        h = torch.linalg.matrix_power(convolution, 1 + left) @ h
        return h[:own] @ model["head.weight"] + model["head.bias"]
    for index in range(sum(name.startswith("layers.") for name in model) // 2):
        h = h @ model[f"layers.{index}.weight"]
        if index or left:
            h = convolution @ h
        h = functional.relu(h + model[f"layers.{index}.bias"])
    return h[:own] @ model["head.weight"] + model["head.bias"]


def exchanged(federation: Federation, plan: Plan) -> int:
    """Return how many numbers are sent before training, in both directions."""
    if plan.hops == 0:
        return 0
    graph, width = whole(federation), federation.width
    extended = [around(graph.adjacency, own, plan.radius) for own in graph.own]
    others = [nodes[len(own) :] for nodes, own in zip(extended, graph.own, strict=True)]
    halo = sum(len(nodes) for nodes in others)
    if plan.sums:
        # A client's nodes bring something to themselves and to their neighbours.
        speaks = [(graph.holder == client).nonzero().flatten() for client in range(federation.clients)]
        up = sum(len(around(graph.adjacency, nodes, 1)) for nodes in speaks) * (width + 1)
        down = sum(len(nodes) for nodes in extended) * width
    else:
        up = len(torch.cat(others).unique()) * (width + 1)
        down = halo * width
    needed = plan.degrees == "global" or (plan.sums and plan.normalisation == "symmetric")
    return up + down + (len(graph.holder) + halo if needed else 0)


def compare(
    federation: Federation,
    plan: Plan,
    backbone: str = "gcn",
    hidden: tuple[int, ...] = (16, 12),
    **schedule: Any,
) -> None:
    """Some rounds of both; parameters, bytes and predictions must agree."""
    schedule = {"rounds": 3, "local_epochs": 2, "weight_decay": 5e-4} | SGD | schedule
    pair = Pair(federation, "fedgcn", vars(plan), backbone, hidden, **schedule)
    parts = extended_parts(federation, plan)

    def loss(k: int, model: Parameters, received: Parameters) -> Tensor:
        return supervised(parts[k], logits(parts[k], model, backbone))

    play(pair, loss, average, once=exchanged(federation, plan))
    pair.compare_predictions(lambda k, model: logits(parts[k], model, backbone))


DEGREES = ("global", "extended")
SUMS = [
    Plan(hops, normalisation=normalisation, degrees=degrees)
    for hops in (1, 2)
    for normalisation in ("symmetric", "none")
    for degrees in DEGREES
]
FEATURES = [Plan(hops, sent="features", degrees=degrees) for hops in (1, 2) for degrees in DEGREES]


@pytest.mark.parametrize("backbone", ["gcn", "sgc"])
@pytest.mark.parametrize("plan", [*SUMS, *FEATURES])
def test_rounds_agree(federation: Federation, plan: Plan, backbone: str) -> None:
    compare(federation, plan, backbone)


@pytest.mark.parametrize("weighting", ["training-nodes", "uniform"])
def test_rounds_without_exchange_agree(federation: Federation, weighting: str) -> None:
    compare(federation, Plan(0), weighting=weighting)


@pytest.mark.parametrize("degrees", DEGREES)
def test_three_hops_agree(federation: Federation, degrees: str) -> None:
    compare(federation, Plan(3, degrees=degrees), hidden=(8, 8, 8))


@pytest.mark.parametrize("scheme", ["metis", "metis-overlapping"])
@pytest.mark.parametrize("plan", [Plan(2), Plan(1, sent="features")], ids=["sums", "features"])
def test_rounds_of_half_the_clients_agree_also_where_they_overlap(plan: Plan, scheme: str) -> None:
    compare(divided(COMMUNITY, CLIENTS, scheme), plan, rounds=5, participation=0.5)
