"""FedLIT as a loop over clients, from Xie, Xiong and Yang, WWW 2023, and the public code's reading of it.

- A linear map projects the features; edge {u, v} is embedded as [x_u ‖ x_v], u before v.
- A client's edges are clustered into T latent types: k-means first, then E (each edge to the centroid of
  highest cosine similarity) and M (each centroid to the mean of its edges) once a round.
- One graph convolution for each type over the edges of that type, the channels' outputs added up.
- The server matches every client's types to its own, the pair of highest cosine first; its centroids become
  the means of those matched. Channels are averaged over the clients in which a training node has an edge of
  the type, projection and classifier by training nodes. Clients receive all of it in their own order.

Where project and public code differ by the project's own statement (channels added up after every layer,
self-loops, one EM step a round instead of one an epoch), the loop follows the project. The first
clustering is random: its centroids and types are taken from the method as given.

The paper's clients are always there. Here one that is absent keeps its types and centroids, is in no mean and
comes back to the newest means, in the order that its own old centroids match (`methods.fedlit`). All are
matched with the server's centroids as they were before the round.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.datasets.federation import Federation
from fedsub.methods.stacked.parameters import Parameters
from tests.methods.loops import Part, mean, numbers
from tests.methods.second_derivation.common import COMMUNITY, TOLERANCE, Pair, divided, symmetric
from tests.methods.second_derivation.rounds import SOME, Meter, Turn, fit, supervised, turn

TYPES = 3
BACKBONES = ("gcn", "graphsage", "sgc")


@dataclass
class Client:
    """One client: its graph, its model, and the types of its edges."""

    part: Part
    model: Parameters
    optimiser: torch.optim.Optimizer
    edges: Tensor
    """Edges, (m, 2), the smaller end first."""
    kind: Tensor
    """Type of each edge, (m,)."""
    centroids: Tensor
    """Centroid of each type, (T, 2 · width)."""

    def of_type(self, kind: int) -> Tensor:
        """Adjacency of the edges of one type."""
        adjacency = torch.zeros_like(self.part["adjacency"])
        first, second = self.edges[self.kind == kind].T
        adjacency[first, second] = adjacency[second, first] = 1
        return adjacency

    def projected(self) -> Tensor:
        return self.part["features"] @ self.model["projection.weight"] + self.model["projection.bias"]

    def expect_and_maximise(self) -> None:
        """One EM step; a type that lost all edges keeps its centroid."""
        with torch.no_grad():
            x = self.projected()
            embedding = torch.cat([x[self.edges[:, 0]], x[self.edges[:, 1]]], dim=1)
            self.kind = _cosines(embedding, self.centroids).argmax(dim=1)
            for kind in self.kind.unique():
                self.centroids[kind] = embedding[self.kind == kind].mean(dim=0)

    def logits(self, backbone: str) -> Tensor:
        h, w = self.projected(), self.model
        for layer in range(1 if backbone == "sgc" else 2):
            name, total = f"channels.{layer}", torch.zeros_like(h)
            for kind in range(TYPES):
                weight, bias = w[f"{name}.weight"][kind], w[f"{name}.bias"][kind]
                adjacency = self.of_type(kind)
                if backbone == "graphsage":
                    mean = adjacency / adjacency.sum(dim=1, keepdim=True).clamp(min=1)
                    total = total + torch.relu(h @ weight + mean @ h @ w[f"{name}.neighbour"][kind] + bias)
                elif backbone == "gcn":
                    total = total + torch.relu(symmetric(adjacency) @ h @ weight + bias)
                else:
                    smooth = symmetric(adjacency)
                    total = total + smooth @ smooth @ h @ weight + bias
            h = total
        return h @ w["head.weight"] + w["head.bias"]


def _cosines(left: Tensor, right: Tensor) -> Tensor:
    return functional.cosine_similarity(left[:, None], right[None], dim=2)


def matched(centroids: Tensor, centres: Tensor) -> list[int]:
    """The server's type of each of a client's, the best pair left at a time."""
    similarity = _cosines(centroids, centres)
    order = sorted((-float(similarity[i, j]), i, j) for i in range(TYPES) for j in range(TYPES))
    match: dict[int, int] = {}
    for _, own, server in order:
        if own not in match and server not in match.values():
            match[own] = server
    return [match[own] for own in range(TYPES)]


class Server:
    """Centroids and channels by the server's own types."""

    def __init__(self, start: Parameters) -> None:
        self.centres: Tensor | None = None
        self.channels = {
            name: value[0].clone() for name, value in start.items() if name.startswith("channels")
        }

    def exchange(self, clients: list[Client], now: Turn) -> None:
        """Match types, average the present clients, and send to the receiving ones."""
        present = [clients[k] for k in now.present]
        linked = [client for client in present if len(client.edges)]
        if self.centres is None:
            self.centres = linked[0].centroids.clone()
        match = [matched(client.centroids, self.centres) for client in clients]
        inverse = [[match[k].index(kind) for kind in range(TYPES)] for k in now.present]
        self.centres = torch.stack(
            [
                torch.stack(
                    [c.centroids[i[t]] for c, i in zip(present, inverse, strict=True) if len(c.edges)]
                ).mean(dim=0)
                for t in range(TYPES)
            ]
        )
        for name in self.channels:
            self._average_channel(name, present, inverse)
        whole = mean([client.model for client in present], now.weights)
        with torch.no_grad():
            for k in now.receiving:
                clients[k].centroids = self.centres[match[k]].clone()
                for name, value in whole.items():
                    clients[k].model[name].copy_(
                        self.channels[name][match[k]] if name in self.channels else value
                    )

    def _average_channel(self, name: str, clients: list[Client], inverse: list[list[int]]) -> None:
        for kind in range(TYPES):
            sent = []
            for client, own in zip(clients, inverse, strict=True):
                linked = client.of_type(own[kind]).sum(dim=1) > 0
                if bool((linked & client.part["train"]).any()):
                    sent.append(client.model[name][own[kind]])
            if sent:
                self.channels[name][kind] = torch.stack(sent).mean(dim=0).detach()


def clients_of(pair: Pair) -> list[Client]:
    method = pair.method
    given = zip(method.clustering.source, method.clustering.target, method.kind, strict=True)
    kinds = {(int(u), int(v)): int(kind) for u, v, kind in given}
    clients = []
    for number, part in enumerate(pair.parts):
        first = int(pair.federation.sizes[:number].sum())
        edges = torch.triu(part["adjacency"]).nonzero()
        kind = torch.tensor([kinds[int(u) + first, int(v) + first] for u, v in edges], dtype=torch.int64)
        centroids = method.centroids[number].clone()
        clients.append(Client(part, pair.models[number], pair.optimisers[number], edges, kind, centroids))
    return clients


def objective(client: Client, backbone: str) -> Tensor:
    return supervised(client.part, client.logits(backbone))


def compare(federation: Federation, backbone: str, epochs: int, attendance: dict[str, Any]) -> list[Client]:
    """Run both; parameters, centroids and types agree after every round, bytes at the end."""
    pair = Pair(
        federation,
        "fedlit",
        {"types": TYPES, "width": 8, "dropout": 0.0},
        backbone,
        local_epochs=epochs,
        weight_decay=1e-4,
        learning_rate=0.01,
        **attendance,
    )
    method, clients, server, meter = pair.method, clients_of(pair), Server(pair.start), Meter(pair)
    for number in range(1, attendance["rounds"] + 1):
        now = turn(pair, number)
        for k in now.present:
            if number > 1:
                clients[k].expect_and_maximise()
            fit(clients[k].optimiser, partial(objective, clients[k], backbone), now.epochs[k])
        server.exchange(clients, now)
        pair.compare(number)
        meter.count(now)
        assert torch.equal(_types(method, federation), torch.cat([client.kind for client in clients]))
        assert server.centres is not None
        assert float((method.server_centroids - server.centres).abs().max()) < TOLERANCE
        own = torch.stack([client.centroids for client in clients])
        assert float((method.centroids - own).abs().max()) < TOLERANCE
    # A client says besides, one byte each, which of its types training nodes have; where some are absent the
    # server hears all centroids before the first round.
    channel, centroids = method.channel, clients[0].centroids.numel()
    channel.bytes_up -= meter.models[0] * TYPES
    meter.compare(
        numbers(clients[0].model) + centroids, len(clients) * centroids * (not method.channel.everyone)
    )
    return clients


def _types(method: Any, federation: Federation) -> Tensor:
    """The stacked method's types, edges by client and then by their smaller and larger end."""
    order = torch.argsort(method.clustering.source * federation.nodes + method.clustering.target)
    return method.kind[order]


@pytest.mark.parametrize("epochs", [1, 3])
@pytest.mark.parametrize("backbone", BACKBONES)
def test_rounds_agree(backbone: str, epochs: int) -> None:
    compare(divided(COMMUNITY, 5), backbone, epochs, {"rounds": 4})


@pytest.mark.parametrize("backbone", BACKBONES)
def test_rounds_agree_without_some(backbone: str) -> None:
    compare(divided(COMMUNITY, 5), backbone, 3, SOME)


def test_types_without_training_nodes_are_left_out() -> None:
    """Clients of a few nodes hold empty channels; their models are not averaged into a channel."""
    federation = divided("community[nodes=90,features=40,communities=8,average_degree=3]", 8)
    clients = compare(federation, "gcn", 1, {"rounds": 5})
    empty = [
        not bool(((client.of_type(kind).sum(dim=1) > 0) & client.part["train"]).any())
        for client in clients
        for kind in range(TYPES)
    ]
    assert any(empty)
