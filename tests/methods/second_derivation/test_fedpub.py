"""FED-PUB as a loop over clients, from Baek et al., ICML 2023 (Section 4, Appendices B.3, C.7 and C.8).

Client i computes with θ_i ⊙ μ_i. Its mask μ_i starts at one, covers the matrices and stays with it. It
minimises, over θ_i and μ_i,

    L(G_i; θ_i, μ_i) + λ₁ ‖μ_i‖₁ + λ₂ ‖θ_i − θ̄_i‖²,    (4)

θ̄_i being what it has received; in the public code the last two terms have no gradient. In predictions
and in what is sent, entries with |μ_i| < λ₁ count as zero (Appendix B.3 calls it λ₂, the public code λ₁).
h̃_i is the last hidden layer on a random graph, before its nonlinearity, averaged over the nodes. Then

    S(i, j) = cos(h̃_i, h̃_j),    θ̄_i = Σ_j α_ij θ_j,    α_i = softmax over j of τ S(i, j)    (3)

over all clients or, with explicit communities, over those with S(i, j) > 0.5.

The text does not say what the server makes of entries that some clients have not sent: here and in
`methods.fedpub` the average is over those who sent one, and who did not keeps its own. Nor how they are
named: by 32-bit indices, unless all values are shorter. Nor what SGC's hidden layer is: its logits before
the bias. Nor what a client that is there for the first time begins with: here with the common start.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

import fedsub.methods.fedpub as implementation
from fedsub.datasets.federation import Federation
from fedsub.methods.core.participation import begin_round
from fedsub.methods.fedpub.proxy import Proxy, make_proxy
from fedsub.methods.stacked.parameters import Parameters
from tests.methods.loops import Part, numbers
from tests.methods.oracle import forward
from tests.methods.second_derivation.common import TOLERANCE, Pair, copied, symmetric

CLIENTS, SHARPNESS, MASK = 5, 3.0, "mask."
SCHEDULE = {
    "rounds": 3,
    "local_epochs": 2,
    # So large that Adam has no gradient to magnify that is all rounding.
    "weight_decay": 1e-2,
}


@dataclass(frozen=True)
class Plan:
    """One run."""

    backbone: str = "gcn"
    masks: bool = True
    similarity: str = "function"
    community: str = "implicit"
    regularizer: str = "reference"
    lambda1: float = 0.001
    lambda2: float = 0.001
    proxy: str = "sbm"
    schedule: dict[str, Any] = field(default_factory=dict)

    def options(self) -> dict[str, Any]:
        """The stacked method's options."""
        names = ("masks", "similarity", "community", "regularizer", "lambda1", "lambda2", "proxy")
        return {"tau": SHARPNESS, **{name: getattr(self, name) for name in names}}


class Run:
    """The stacked method, its clients one by one, and the proxy graph that the method has drawn."""

    def __init__(self, federation: Federation, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
        drawn: list[Proxy] = []

        def draw(kind: str, width: int, generator: Any) -> Proxy:
            drawn.append(make_proxy(kind, width, generator))
            return drawn[-1]

        monkeypatch.setattr(implementation, "make_proxy", draw)
        given = SCHEDULE | plan.schedule
        self.pair = Pair(federation, "fedpub", plan.options(), plan.backbone, **given)
        self.plan = plan
        self.graphs = [dense(drawn[0])] * CLIENTS if drawn else self.pair.parts
        self.rounds = given["rounds"]
        self.present = self.pair.method.attendance.epochs > 0
        start = copied(self.pair.models[0])
        self.personal = [{name: start[name] for name in sent(start)} for _ in range(CLIENTS)]
        """What the server last made for each client."""
        self.up = self.down = 0

    def spread_masks(self) -> None:
        """Masks around zero, so that entries lie on both sides of the threshold."""
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for name, value in self.pair.method.parameters.items():
                if name.startswith(MASK):
                    value.copy_(0.1 * torch.randn(value.shape, generator=generator))
                    for client, model in enumerate(self.pair.models):
                        model[name].copy_(value[client])

    def play(self) -> None:
        """All rounds, twice; parameters, predictions and bytes must agree."""
        method, models = self.pair.method, self.pair.models
        for number in range(1, self.rounds + 1):
            begin_round(method, number)
            self.round(number)
            self.pair.compare(number)
            said = [
                forward(part, used(model, self.plan.lambda1), self.plan.backbone)
                for part, model in zip(self.pair.parts, models, strict=True)
            ]
            torch.testing.assert_close(method.predict(), torch.cat(said).detach(), atol=TOLERANCE, rtol=0)
        self.pair.compare_bytes(self.up, self.down, self.once())

    def round(self, number: int) -> None:
        """One round of the loop."""
        pair, plan, models = self.pair, self.plan, self.pair.models
        here = self.present[number - 1].nonzero().flatten().tolist()
        # After the last round everyone who was there receives.
        next_here = self.present[min(number, self.rounds - 1)].nonzero().flatten().tolist()
        received = [copied(model) for model in models]
        for client in here:
            for _ in range(pair.method.schedule.local_epochs):
                pair.optimisers[client].zero_grad()
                objective(pair.parts[client], models[client], received[client], plan).backward()
                pair.optimisers[client].step()
        with torch.no_grad():
            if plan.similarity == "none":
                # FedAvg's weights, and the same average for those who come back.
                size = pair.federation.count(pair.federation.train)[here].float()
                alpha, receivers = (size / size.sum()).expand(CLIENTS, -1), list(range(CLIENTS))
            else:
                alpha, receivers = coefficients(self.similarity(here, received), plan.community), here
            for row, client in zip(alpha, receivers, strict=True):
                self.personal[client] = average(models[client], [models[k] for k in here], row, plan.lambda1)
            self.up += sum(self.message(client, [client])[0] for client in here)
            self.down += sum(self.message(client, self.heard(client, here))[1] for client in next_here)
            if plan.similarity == "function":
                self.up += sum(len(self.embedding(client)) for client in here)
            for client in next_here:
                for name, value in self.personal[client].items():
                    models[client][name].copy_(value)

    def embedding(self, client: int) -> Tensor:
        """h̃ of a client."""
        weights = used(self.pair.models[client], self.plan.lambda1)
        return functional_embedding(self.graphs[client], weights, self.plan.backbone)

    def similarity(self, here: list[int], received: list[Parameters]) -> Tensor:
        """S of those who are here."""
        models, kind = self.pair.models, self.plan.similarity
        if kind == "function":
            return cosines([self.embedding(k) for k in here])
        if kind == "parameter":
            return cosines([flat(models[k]) for k in here])
        if kind == "gradient":
            return cosines([flat(models[k]) - flat(received[k]) for k in here])
        shares = [class_shares(self.pair.parts[k]["labels"]) for k in here]
        return torch.stack([torch.stack([1 - divergence(a, b) for b in shares]) for a in shares])

    def heard(self, client: int, here: list[int]) -> list[int]:
        """Whose entries an answer to a client holds: of those here, where it is made now."""
        return here if self.plan.similarity == "none" else [client]

    def message(self, client: int, others: list[int]) -> tuple[int, int]:
        """Numbers that a client sends of its model, and of these that come back of `others`."""
        model, threshold = self.pair.models[client], self.plan.lambda1
        listed = 0
        for name in sent(model):
            entries = [kept(self.pair.models[other], name, threshold) for other in others]
            listed += int((kept(model, name, threshold) & torch.stack(entries).any(dim=0)).sum())
        whole = numbers({name: model[name] for name in sent(model)})
        return (2 * listed, listed) if 2 * listed < whole else (whole, whole)

    def once(self) -> int:
        """Numbers sent before the first round."""
        if self.plan.similarity == "label":
            return CLIENTS * self.pair.federation.classes
        if self.plan.similarity != "function" or self.plan.proxy == "feature":
            return 0
        graph = self.graphs[0]
        return CLIENTS * (graph["features"].numel() + 2 * int(graph["adjacency"].sum()))


def sent(model: Parameters) -> list[str]:
    """Names of what is averaged."""
    return [name for name in model if not name.startswith(MASK)]


def flat(model: Parameters) -> Tensor:
    """What is averaged, as a vector."""
    return torch.cat([model[name].detach().flatten() for name in sent(model)])


def kept(model: Parameters, name: str, threshold: float) -> Tensor:
    """Which entries of a parameter its mask leaves, of the parameter's shape."""
    if MASK + name not in model:
        return torch.ones_like(model[name], dtype=torch.bool)
    return model[MASK + name].abs() >= threshold


def used(model: Parameters, threshold: float = 0.0) -> Parameters:
    """The weights that the network computes with."""
    weights = {}
    for name in sent(model):
        mask = model.get(MASK + name, torch.ones(()))
        weights[name] = model[name] * mask * kept(model, name, threshold)
    return weights


def objective(part: Part, model: Parameters, received: Parameters, plan: Plan) -> Tensor:
    """Equation 4, ()."""
    train = part["train"]
    logits = forward(part, used(model), plan.backbone)[train]
    loss = functional.cross_entropy(logits, part["labels"][train])
    if plan.regularizer == "printed":
        for name, value in model.items():
            if name.startswith(MASK):
                loss = loss + plan.lambda1 * value.abs().sum()
            else:
                loss = loss + plan.lambda2 * (value - received[name]).square().sum()
    return loss


def functional_embedding(graph: Part, weights: Parameters, backbone: str) -> Tensor:
    """h̃, (width,)."""
    adjacency, h = graph["adjacency"], graph["features"]
    if backbone == "sgc":
        return (symmetric(adjacency) @ symmetric(adjacency) @ h @ weights["head.weight"]).mean(dim=0)
    for index in range(2):
        h = functional.relu(h) if index else h
        product = h @ weights[f"layers.{index}.weight"]
        if backbone == "gcn":
            product = symmetric(adjacency) @ product
        if backbone == "graphsage":
            neighbours = adjacency @ h / adjacency.sum(dim=1, keepdim=True).clamp(min=1)
            product = product + neighbours @ weights[f"layers.{index}.neighbour"]
        h = product + weights[f"layers.{index}.bias"]
    return h.mean(dim=0)


def cosines(vectors: list[Tensor]) -> Tensor:
    """S, one row and column for each vector."""
    near = functional.cosine_similarity
    return torch.stack([torch.stack([near(a, b, dim=0) for b in vectors]) for a in vectors])


def class_shares(labels: Tensor) -> Tensor:
    """Share of each of the graph's six classes."""
    return torch.bincount(labels, minlength=6).double() / len(labels)


def divergence(left: Tensor, right: Tensor) -> Tensor:
    """Jensen–Shannon's, in bits."""
    middle = (left + right) / 2
    terms = [torch.where(side > 0, side * torch.log2(side / middle), 0.0).sum() for side in (left, right)]
    return (terms[0] + terms[1]) / 2


def coefficients(similarity: Tensor, community: str) -> Tensor:
    """α, row by row."""
    rows = []
    for row in similarity:
        weight = torch.exp(SHARPNESS * row)
        if community == "explicit":
            weight = weight * (row > 0.5)
        rows.append((weight / weight.sum()).float())
    return torch.stack(rows)


def average(own: Parameters, models: list[Parameters], alpha: Tensor, threshold: float) -> Parameters:
    """θ̄ of one client: entry by entry over those who sent it; `own` of what it masks out or no one sent."""
    mean = {}
    for name in sent(own):
        senders = [a * kept(m, name, threshold) for a, m in zip(alpha, models, strict=True)]
        total = torch.stack([s * m[name] for s, m in zip(senders, models, strict=True)]).sum(dim=0)
        share = torch.stack(senders).sum(dim=0)
        there = kept(own, name, threshold) & (share > 0)
        mean[name] = torch.where(there, total / share, own[name]).detach()
    return mean


def dense(proxy: Proxy) -> Part:
    """Features and adjacency, as a client's."""
    source, target = proxy.graph.edges()
    adjacency = torch.zeros(len(proxy.features), len(proxy.features))
    adjacency[target, source] = 1
    return {"features": proxy.features, "adjacency": adjacency}


@pytest.mark.parametrize("regularizer", ["reference", "printed"])
@pytest.mark.parametrize("schedule", [{}, {"optimiser": "sgd", "learning_rate": 0.5}], ids=["adam", "sgd"])
@pytest.mark.parametrize("backbone", ["gcn", "graphsage", "mlp", "sgc"])
def test_rounds_agree(
    federation: Federation,
    backbone: str,
    schedule: dict[str, Any],
    regularizer: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = Plan(backbone, regularizer=regularizer, lambda1=0.01, lambda2=0.1, schedule=schedule)
    Run(federation, plan, monkeypatch).play()


@pytest.mark.parametrize("regularizer", ["reference", "printed"])
@pytest.mark.parametrize("backbone", ["gcn", "graphsage"])
@pytest.mark.parametrize("threshold", [0.02, 0.15])
def test_masked_entries_do_not_count(
    federation: Federation,
    threshold: float,
    backbone: str,
    regularizer: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At one threshold messages are shorter as they are, at the other with indices."""
    run = Run(federation, Plan(backbone, regularizer=regularizer, lambda1=threshold), monkeypatch)
    run.spread_masks()
    run.play()


@pytest.mark.parametrize("community", ["implicit", "explicit"])
@pytest.mark.parametrize("similarity", ["function", "parameter", "gradient", "label", "none"])
def test_similarities_agree(
    federation: Federation, similarity: str, community: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Run(federation, Plan(similarity=similarity, community=community), monkeypatch).play()


@pytest.mark.parametrize("proxy", ["er", "one", "feature"])
def test_other_inputs_of_the_embedding(
    federation: Federation, proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Run(federation, Plan(proxy=proxy), monkeypatch).play()


def test_without_masks(federation: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    Run(federation, Plan(masks=False), monkeypatch).play()


@pytest.mark.parametrize("similarity", ["function", "none"])
def test_absent_clients_come_back_to_what_they_were_sent(
    federation: Federation, similarity: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = {"rounds": 6, "participation": 0.6}
    run = Run(federation, Plan(similarity=similarity, lambda1=0.02, schedule=schedule), monkeypatch)
    run.spread_masks()
    run.play()


def test_the_random_graph_is_the_papers(federation: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five blocks of a hundred nodes, 0.1 within and 0.01 between; standard normal features."""
    graph = Run(federation, Plan(), monkeypatch).graphs[0]
    blocks = graph["adjacency"].view(5, 100, 5, 100).mean(dim=(1, 3))
    within = blocks.diagonal()
    between = blocks[~torch.eye(5, dtype=torch.bool)]
    assert torch.equal(graph["adjacency"], graph["adjacency"].T)
    assert (within - 0.1).abs().max() < 0.02
    assert (between - 0.01).abs().max() < 0.004
    assert abs(float(graph["features"].mean())) < 0.02
    assert abs(float(graph["features"].std()) - 1) < 0.02
