"""FedSage and FedSage+ as loops over clients, from Zhang et al., NeurIPS 2021 (arXiv 2106.13430).

FedSage is FedAvg of GraphSAGE, h_v = σ([h_v ‖ mean of neighbours] Φ). FedSage+ first trains a generator of
missing neighbours for each client i on its impaired graph, V̄_i its nodes that are not hidden:

    z = 2-layer GraphSAGE,  ñ_v = σ(θ_dᵀ z_v),  x̃_v = σ(θ_fᵀ (z_v + N(0, 1))), ñ_v rows of it
    L_d = 1/|V̄_i| Σ_v smooth-L1(ñ_v − n_v)
    L_f = 1/|V̄_i| Σ_v Σ_{p ≤ ñ_v} (min_{u hidden neighbour of v} ‖x̃_v^p − x_u‖²
                                    + Σ_{j ≠ i} min_{u ∈ V_j} ‖x̃_v^p − x_u‖²)
    L_c = cross-entropy of a GraphSAGE on the impaired graph with ñ_v generated neighbours at every v

and minimises L_d + L_f + L_c. Then every whole graph is mended, and FedAvg runs on those. What the project
states of itself is followed: squared distances are divided by the number of features, ñ_v is rounded, and
the generators start alike. The hidden nodes, the starts and the noise are taken from the method as given.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.datasets.federation import Federation
from fedsub.methods.fedsage import FedSagePlus
from fedsub.methods.fedsage.generator import GeneratorTraining
from fedsub.methods.stacked.parameters import Parameters
from tests.methods.loops import Part
from tests.methods.oracle import client_parts
from tests.methods.second_derivation.common import (
    COMMUNITY,
    FLOAT,
    TOLERANCE,
    Pair,
    adam,
    copied,
    created,
    divided,
    gap,
    leaves,
    symmetric,
)
from tests.methods.second_derivation.rounds import EVERYONE, SOME, supervised
from tests.methods.second_derivation.served import average, play, play_by_gradients

GRAPH = "community[nodes=150,features=30,communities=6]"
CLIENTS = 5
MOST = 3
"""p, the most neighbours of a node."""
EPOCHS = 6
OPTIONS = {
    "generator_epochs": EPOCHS,
    "generator_learning_rate": 0.01,
    "hidden_share": 0.6,
    "neighbours": MOST,
    "latent": 8,
    "narrow": 6,
    "wide": 10,
}
HIDDEN = (8, 6)
SCHEDULE = {"local_epochs": 2, "weight_decay": 1e-4}


def sage(adjacency: Tensor, h: Tensor, w: Parameters, name: str) -> Tensor:
    """h W + (mean over neighbours of h) U + b; a node without neighbours has none."""
    mean = adjacency / adjacency.sum(dim=1, keepdim=True).clamp(min=1)
    return h @ w[f"{name}.weight"] + mean @ h @ w[f"{name}.neighbour"] + w[f"{name}.bias"]


def convolution(adjacency: Tensor, h: Tensor, w: Parameters, name: str) -> Tensor:
    """Â h W + b."""
    return symmetric(adjacency) @ h @ w[f"{name}.weight"] + w[f"{name}.bias"]


def classify(adjacency: Tensor, x: Tensor, w: Parameters, backbone: str, prefix: str = "") -> Tensor:
    layer = sage if backbone == "graphsage" else convolution
    for index in range(2):
        x = torch.relu(layer(adjacency, x, w, f"{prefix}layers.{index}"))
    return x @ w[f"{prefix}head.weight"] + w[f"{prefix}head.bias"]


def mended(adjacency: Tensor, x: Tensor, rows: list[tuple[int, Tensor]]) -> tuple[Tensor, Tensor]:
    """The graph with additional nodes, each joined to one original in both directions."""
    size = len(adjacency)
    larger = torch.zeros(size + len(rows), size + len(rows))
    larger[:size, :size] = adjacency
    for place, (owner, _) in enumerate(rows, size):
        larger[owner, place] = larger[place, owner] = 1
    return larger, torch.cat([x, *(row[None] for _, row in rows)])


class Generator:
    """One client's NeighGen; `w` holds encoder, counts, fGen and the classifier that it is trained with."""

    def __init__(self, w: Parameters, features: int) -> None:
        self.w, self.features = w, features
        self.optimiser = adam(w, float(OPTIONS["generator_learning_rate"]), 0.0)

    def encode(self, adjacency: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """z and ñ before rounding."""
        for index in range(2):
            x = torch.relu(sage(adjacency, x, self.w, f"encoder.{index}"))
        return x, torch.relu(x @ self.w["count.weight"] + self.w["count.bias"]).squeeze(1)

    def generate(self, z: Tensor, missing: Tensor, noise: Tensor | None) -> list[tuple[int, Tensor]]:
        """Owners and features of the generated neighbours; `noise` has a row for each node with some."""
        count = missing.detach().clamp(max=MOST).round().long()
        if noise is not None:
            z = z.index_add(0, count.nonzero().squeeze(1), noise)
        h = torch.relu(z @ self.w["fgen.0.weight"] + self.w["fgen.0.bias"])
        h = torch.relu(h @ self.w["fgen.1.weight"] + self.w["fgen.1.bias"])
        slots = torch.tanh(h @ self.w["fgen.2.weight"] + self.w["fgen.2.bias"])
        slots = slots.view(len(z), MOST, self.features)
        return [(v, slots[v, p]) for v in range(len(z)) for p in range(int(count[v]))]

    def step(self, loss: Tensor) -> None:
        """Adam, also on what had no part in the loss."""
        self.optimiser.zero_grad(set_to_none=False)
        loss.backward()
        for value in self.w.values():
            value.grad = torch.zeros_like(value) if value.grad is None else value.grad
        self.optimiser.step()


@dataclass
class Impaired:
    """A client's graph without its hidden nodes, and the hidden neighbours of each node."""

    adjacency: Tensor
    x: Tensor
    labels: Tensor
    train: Tensor
    lost: list[Tensor]
    """Features of each node's hidden neighbours."""

    @classmethod
    def of(cls, part: Part, hidden: Tensor) -> Self:
        """Remove the nodes in `hidden`, (n,) bool, from a client's graph."""
        stays = ~hidden
        lost = [part["features"][row.bool() & hidden] for row in part["adjacency"][stays]]
        adjacency = part["adjacency"][stays][:, stays]
        return cls(adjacency, part["features"][stays], part["labels"][stays], part["train"][stays], lost)


def nearest(row: Tensor, candidates: Tensor) -> Tensor:
    """min ‖row − u‖² over candidates, divided by the number of features."""
    return (candidates - row).square().mean(dim=1).min()


def train_generators(
    federation: Federation, start: Parameters, hidden: Tensor, noise: list[Tensor]
) -> tuple[list[Generator], int]:
    """Every client's generator after `EPOCHS` epochs, and the numbers that were sent for them.

    `noise` is used up epoch by epoch, clients in order; empty: none is added.
    """
    parts = client_parts(federation)
    features = parts[0]["features"].shape[1]
    generators = [Generator(leaves(start, client), features) for client in range(len(parts))]
    graphs = [
        Impaired.of(part, mask)
        for part, mask in zip(parts, hidden.split(federation.sizes.tolist()), strict=True)
    ]
    sent, drawn = 0, iter(noise)
    for _ in range(EPOCHS):
        encoded = [g.encode(graph.adjacency, graph.x) for g, graph in zip(generators, graphs, strict=True)]
        draws = _shares([missing for _, missing in encoded], drawn) if noise else [None] * len(parts)
        for client, (generator, graph) in enumerate(zip(generators, graphs, strict=True)):
            z, missing = encoded[client]
            rows = generator.generate(z, missing, draws[client])
            number = torch.tensor([float(len(lost)) for lost in graph.lost])
            loss = functional.smooth_l1_loss(missing, number)
            for owner, row in rows:
                if len(graph.lost[owner]):
                    loss = loss + nearest(row, graph.lost[owner]) / len(graph.x)
                for other, part in enumerate(parts):
                    if other != client:
                        loss = loss + nearest(row, part["features"]) / len(graph.x)
            adjacency, x = mended(graph.adjacency, graph.x, rows)
            output = classify(adjacency, x, generator.w, "graphsage", "class.")[: len(graph.x)]
            # The project's mean is over all labelled nodes of the client, hidden ones included.
            right = functional.cross_entropy(output[graph.train], graph.labels[graph.train], reduction="sum")
            loss = loss + right / parts[client]["train"].sum()
            generator.step(loss)
            # Up to the server, on to the others, a gradient back from each, their sum down.
            sent += 2 * len(parts) * features * len(rows)
    return generators, sent


def _shares(missing: list[Tensor], drawn: Any) -> list[Tensor | None]:
    """The clients' rows of one epoch's noise."""
    counts = [int((m.detach().clamp(max=MOST).round() > 0).sum()) for m in missing]
    return list(next(drawn).split(counts)) if sum(counts) else [None] * len(counts)


def given(training: GeneratorTraining, features: int) -> Parameters:
    """The stacked generators' parameters under this file's names, all slots made."""
    generator = training.generator
    slots = [generator._slot(slot) for slot in range(MOST)]
    own = generator.parameters
    names = {
        f"layers.{i}.{part}": f"encoder.{i}.{part}"
        for i in range(2)
        for part in ("weight", "neighbour", "bias")
    }
    names |= {f"head.{part}": f"count.{part}" for part in ("weight", "bias")}
    names |= {
        f"{old}.{part}": f"fgen.{i}.{part}"
        for i, old in enumerate(("narrow", "wide"))
        for part in ("weight", "bias")
    }
    renamed = {new: own[old] for old, new in names.items()}
    renamed["fgen.2.weight"] = torch.cat([slot["slot.weight"][:, :, :features] for slot in slots], dim=2)
    renamed["fgen.2.bias"] = torch.cat([slot["slot.bias"][:, :features] for slot in slots], dim=1)
    return copied(renamed | {f"class.{name}": value for name, value in training.class_parameters.items()})


def undrawn(federation: Federation, **options: Any) -> FedSagePlus:
    """FedSage+ with its task only, so that its generators can be watched."""
    method = created(federation, "fedsage+", {**OPTIONS, **options}, hidden=HIDDEN)
    assert isinstance(method, FedSagePlus)
    return method


@pytest.fixture(scope="module")
def federation() -> Federation:
    return divided(GRAPH, CLIENTS, "random")


@pytest.mark.parametrize("noise", [0.0, 1.0])
@pytest.mark.parametrize("hidden_from", ["validation", "all"])
def test_generators_agree(
    federation: Federation, monkeypatch: pytest.MonkeyPatch, hidden_from: str, noise: float
) -> None:
    features = int(federation.features.shape[1])
    method = undrawn(federation, hidden_from=hidden_from, noise=noise)
    method.hide()
    training = GeneratorTraining(method, range(CLIENTS))
    start = given(training, features)
    drawn: list[Tensor] = []
    normal = torch.randn

    def keep(*size: int, **how: Any) -> Tensor:
        drawn.append(normal(*size, **how))
        return drawn[-1].clone()

    monkeypatch.setattr(torch, "randn", keep)
    for _ in range(EPOCHS):
        training.epoch()
    during = len(drawn)
    found, _ = training.whole_graph()
    monkeypatch.undo()
    noises = drawn[:during] if noise else []
    generators, sent = train_generators(federation, start, method.hidden, noises)
    assert gap(given(training, features), [generator.w for generator in generators]) < TOLERANCE
    assert method.channel.bytes_once == FLOAT * sent
    assert sent > 0
    assert found is not None
    rows = whole_graphs(federation, generators, drawn[during:] if noise else [])
    assert [owner for owner, _ in rows] == found.owner.tolist()
    assert len(rows) > 5
    assert float((torch.stack([row for _, row in rows]) - found.features).abs().max()) < TOLERANCE


def whole_graphs(
    federation: Federation, generators: list[Generator], noise: list[Tensor]
) -> list[tuple[int, Tensor]]:
    """Neighbours for the clients' whole graphs, owners as rows of the federation."""
    parts = client_parts(federation)
    with torch.no_grad():
        encoded = [g.encode(p["adjacency"], p["features"]) for g, p in zip(generators, parts, strict=True)]
        draws = _shares([m for _, m in encoded], iter(noise)) if noise else [None] * len(parts)
        rows = []
        for client, (z, missing) in enumerate(encoded):
            first = int(federation.sizes[:client].sum())
            made = generators[client].generate(z, missing, draws[client])
            rows += [(first + owner, row) for owner, row in made]
    return rows


def said(part: Part, model: Parameters, backbone: str) -> Tensor:
    """Return the client's logits; its graph may have more nodes than labels."""
    return classify(part["adjacency"], part["features"], model, backbone)[: len(part["train"])]


def objective(parts: list[Part], backbone: str, k: int, model: Parameters, received: Parameters) -> Tensor:
    """Return client k's local objective; `received` is unused."""
    return supervised(parts[k], said(parts[k], model, backbone))


def by_models(pair: Pair, backbone: str, once: int = 0) -> None:
    """All rounds of FedAvg on the pair's parts; `once` are the numbers sent before."""
    play(pair, partial(objective, pair.parts, backbone), average, once=once)
    pair.compare_predictions(lambda k, model: said(pair.parts[k], model, backbone))


@pytest.mark.parametrize("attendance", [EVERYONE, SOME], ids=["everyone", "some"])
@pytest.mark.parametrize("scheme", ["metis", "random"])
def test_fedsage_agrees(scheme: str, attendance: dict[str, Any]) -> None:
    federation = divided(COMMUNITY, CLIENTS, scheme)
    by_models(Pair(federation, "fedsage", {}, "graphsage", HIDDEN, **SCHEDULE, **attendance), "graphsage")


@pytest.mark.parametrize("attendance", [EVERYONE, SOME], ids=["everyone", "some"])
@pytest.mark.parametrize("backbone", ["gcn", "graphsage"])
@pytest.mark.parametrize(
    ("exchanged", "generated"), [("models", "row-normalised"), ("gradients", "as-generated")]
)
def test_training_on_mended_graphs_agrees(
    federation: Federation, backbone: str, exchanged: str, generated: str, attendance: dict[str, Any]
) -> None:
    """Graphs are mended by all clients, whoever is absent later."""
    options = {**OPTIONS, "noise": 0.0, "average": exchanged, "generated": generated}
    pair = Pair(federation, "fedsage+", options, backbone, HIDDEN, **SCHEDULE, **attendance)
    watched = undrawn(federation, noise=0.0)
    watched.hide()
    start = given(GeneratorTraining(watched, range(CLIENTS)), int(federation.features.shape[1]))
    generators, once = train_generators(federation, start, watched.hidden, [])
    rows = whole_graphs(federation, generators, [])
    if generated == "row-normalised":
        rows = [(owner, row / row.abs().sum()) for owner, row in rows]
    assert pair.method.extras["generated_neighbours"] == len(rows) > 5
    for client, part in enumerate(pair.parts):
        first, size = int(federation.sizes[:client].sum()), len(part["labels"])
        own = [(owner - first, row) for owner, row in rows if first <= owner < first + size]
        part["adjacency"], part["features"] = mended(part["adjacency"], part["features"], own)
    if exchanged == "gradients":
        play_by_gradients(pair, partial(objective, pair.parts, backbone), once)
    else:
        by_models(pair, backbone, once)


@pytest.mark.parametrize("attendance", [EVERYONE, SOME], ids=["everyone", "some"])
@pytest.mark.parametrize(("backbone", "scheme"), [("gcn", "random"), ("graphsage", "metis-overlapping")])
def test_training_with_true_neighbours_agrees(backbone: str, scheme: str, attendance: dict[str, Any]) -> None:
    """FedSage-true (FedStruct, section 6): each missing neighbour once, joined to all who miss it."""
    federation = divided(GRAPH, CLIENTS, scheme)
    pair = Pair(federation, "fedsage-true", {}, backbone, HIDDEN, **SCHEDULE, **attendance)
    features = federation.features.to_dense()
    source, target = (end.tolist() for end in federation.inter.edges())
    stand_ins = once = 0
    for client, part in enumerate(pair.parts):
        first, size = int(federation.sizes[:client].sum()), len(part["labels"])
        mine = [(u, v - first) for u, v in zip(source, target, strict=True) if first <= v < first + size]
        # Copies of a node at several other clients are one neighbour.
        missing = sorted({int((federation.origin == federation.origin[u]).nonzero()[0]) for u, _ in mine})
        adjacency = torch.zeros(size + len(missing), size + len(missing))
        adjacency[:size, :size] = part["adjacency"]
        for u, v in mine:
            place = size + missing.index(int((federation.origin == federation.origin[u]).nonzero()[0]))
            adjacency[v, place] = adjacency[place, v] = 1
        part["adjacency"], part["features"] = adjacency, torch.cat([part["features"], features[missing]])
        stand_ins += len(missing)
        # An entry is a number and its place, from the owner to the server and on to the client.
        once += 2 * 2 * int(features[missing].count_nonzero())
    assert pair.method.extras["stand_ins"] == stand_ins
    by_models(pair, backbone, once)
