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

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

import fedsub.methods.fedpub as implementation
from fedsub.datasets.federation import Federation
from fedsub.methods.fedpub.proxy import Proxy, make_proxy
from fedsub.methods.stacked.parameters import Parameters
from tests.methods.loops import Part, numbers
from tests.methods.oracle import forward
from tests.methods.second_derivation.common import TOLERANCE, Pair, symmetric
from tests.methods.second_derivation.rounds import cosines
from tests.methods.second_derivation.served import cross_entropy, played

CLIENTS, SHARPNESS, MASK = 5, 3.0, "mask."
SCHEDULE = {
    "rounds": 3,
    "local_epochs": 2,
    # So large that Adam has no gradient to magnify that is all rounding.
    "weight_decay": 1e-2,
}


SGD = {"optimiser": "sgd", "learning_rate": 0.5}
DEFAULTS = {
    "tau": SHARPNESS,
    "masks": True,
    "similarity": "function",
    "community": "implicit",
    "regularizer": "reference",
    "lambda1": 0.001,
    "lambda2": 0.001,
    "proxy": "sbm",
}


def exchanged(name: str) -> bool:
    return not name.startswith(MASK)


class Run:
    """The stacked method, its clients one by one, and the proxy graph that the method has drawn."""

    def __init__(
        self,
        federation: Federation,
        monkeypatch: pytest.MonkeyPatch,
        backbone: str = "gcn",
        schedule: dict[str, Any] | None = None,
        spread: bool = False,
        **options: Any,
    ) -> None:
        drawn: list[Proxy] = []

        def draw(kind: str, width: int, generator: Any) -> Proxy:
            drawn.append(make_proxy(kind, width, generator))
            return drawn[-1]

        monkeypatch.setattr(implementation, "make_proxy", draw)
        self.options, self.backbone = SimpleNamespace(**{**DEFAULTS, **options}), backbone
        given = SCHEDULE | (schedule or {})
        self.pair = Pair(federation, "fedpub", vars(self.options), backbone, **given)
        self.graphs = [dense(drawn[0])] * CLIENTS if drawn else self.pair.parts
        self.up = self.down = 0
        self.correlations: list[float] = []
        """Of S with the label similarity, over the clients present."""
        self.answers: list[int] = []
        """Numbers that would go to each client after this round."""
        self.known: list[Tensor] = []
        """Per client, the entries of its last answer; empty before the first."""
        if spread:
            self.spread_masks()

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
        pair = self.pair
        for now in played(pair, self.loss, self.answer, exchanged):
            self.down += sum(self.answers[client] for client in now.receiving)
            said = [
                forward(part, used(model, self.options.lambda1), self.backbone)
                for part, model in zip(pair.parts, pair.models, strict=True)
            ]
            torch.testing.assert_close(
                pair.method.predict(), torch.cat(said).detach(), atol=TOLERANCE, rtol=0
            )
        pair.compare_bytes(self.up, self.down, self.once())
        pair.method.finish()
        if self.options.similarity in ("parameter", "gradient"):
            found = pair.method.by_round["similarity_label_correlation"]
            assert found == pytest.approx(self.correlations, abs=1e-3, nan_ok=True)

    def loss(self, k: int, model: Parameters, received: Parameters) -> Tensor:
        """Equation 4, ()."""
        loss = cross_entropy(self.pair.parts[k], used(model), self.backbone)
        if self.options.regularizer == "printed":
            for name, value in model.items():
                if name.startswith(MASK):
                    loss = loss + self.options.lambda1 * value.abs().sum()
                else:
                    loss = loss + self.options.lambda2 * (value - received[name]).square().sum()
        return loss

    @torch.no_grad()
    def answer(
        self, kept: dict[int, Parameters], sent: dict[int, Parameters], weights: dict[int, float]
    ) -> dict[int, Parameters]:
        """Return the server's models: for the present clients, or for all if the average is FedAvg's."""
        models, here = self.pair.models, list(sent)
        if self.options.similarity == "none":
            alpha, receivers = torch.tensor([*weights.values()]).expand(CLIENTS, -1), list(range(CLIENTS))
        else:
            similarity = self.similarity(here, kept)
            alpha, receivers = coefficients(similarity, self.options.community), here
            shares = self.pair.method.label_similarity[here][:, here]
            self.correlations.append(correlation(similarity, shares))
        self.up += sum(self.message(client, [client])[0] for client in here)
        if self.options.similarity == "function":
            self.up += sum(len(self.embedding(client)) for client in here)
        self.answers = [self.message(k, self.heard(k, here))[1] for k in range(CLIENTS)]
        known = self.known or [torch.ones(())] * CLIENTS
        self.known = [self.sent(k) if k in here else known[k] for k in range(CLIENTS)]
        return {
            client: average(models[client], [models[k] for k in here], row, self.options.lambda1)
            for row, client in zip(alpha, receivers, strict=True)
        }

    def embedding(self, client: int) -> Tensor:
        weights = used(self.pair.models[client], self.options.lambda1)
        return functional_embedding(self.graphs[client], weights, self.backbone)

    def similarity(self, here: list[int], received: dict[int, Parameters]) -> Tensor:
        models, kind = self.pair.models, self.options.similarity
        if kind == "function":
            return cosines(torch.stack([self.embedding(k) for k in here]))
        if kind == "parameter":
            return cosines(torch.stack([flat(models[k]) * self.sent(k) for k in here]))
        if kind == "gradient":
            changes = [(flat(models[k]) - flat(received[k])) * self.sent(k) for k in here]
            known = [self.known[k] for k in here] if self.known else [torch.ones(())] * len(here)
            return cosines(torch.stack([each * before for each, before in zip(changes, known, strict=True)]))
        shares = [class_shares(self.pair.parts[k]["labels"]) for k in here]
        return torch.stack([torch.stack([1 - divergence(a, b) for b in shares]) for a in shares])

    def sent(self, client: int) -> Tensor:
        """Return which entries of its model a client sends, in the order of `flat`."""
        model = self.pair.models[client]
        return torch.cat([kept(model, name, self.options.lambda1).flatten() for name in sent(model)])

    def heard(self, client: int, here: list[int]) -> list[int]:
        """Return the clients whose entries an answer holds: all present ones for FedAvg's average."""
        return here if self.options.similarity == "none" else [client]

    def message(self, client: int, others: list[int]) -> tuple[int, int]:
        """Return how many numbers a client sends of its model, and how many it receives of `others`."""
        model, threshold = self.pair.models[client], self.options.lambda1
        listed = 0
        for name in sent(model):
            entries = [kept(self.pair.models[other], name, threshold) for other in others]
            listed += int((kept(model, name, threshold) & torch.stack(entries).any(dim=0)).sum())
        whole = numbers({name: model[name] for name in sent(model)})
        return (2 * listed, listed) if 2 * listed < whole else (whole, whole)

    def once(self) -> int:
        if self.options.similarity == "label":
            return CLIENTS * self.pair.federation.classes
        if self.options.similarity != "function" or self.options.proxy == "feature":
            return 0
        graph = self.graphs[0]
        return CLIENTS * (graph["features"].numel() + 2 * int(graph["adjacency"].sum()))


def sent(model: Parameters) -> list[str]:
    return [name for name in model if exchanged(name)]


def flat(model: Parameters) -> Tensor:
    return torch.cat([model[name].detach().flatten() for name in sent(model)])


def kept(model: Parameters, name: str, threshold: float) -> Tensor:
    """Return which entries of a parameter its mask keeps, in the parameter's shape."""
    if MASK + name not in model:
        return torch.ones_like(model[name], dtype=torch.bool)
    return model[MASK + name].abs() >= threshold


def used(model: Parameters, threshold: float = 0.0) -> Parameters:
    weights = {}
    for name in sent(model):
        mask = model.get(MASK + name, torch.ones(()))
        weights[name] = model[name] * mask * kept(model, name, threshold)
    return weights


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


def correlation(first: Tensor, second: Tensor) -> float:
    """Pearson's correlation over pairs of clients; NaN for two pairs at most."""
    pairs = torch.triu(torch.ones(len(first), len(first)), 1) > 0
    return float(torch.corrcoef(torch.stack([first[pairs].double(), second[pairs]]))[0, 1])


def class_shares(labels: Tensor) -> Tensor:
    return torch.bincount(labels, minlength=6).double() / len(labels)


def divergence(left: Tensor, right: Tensor) -> Tensor:
    """Return the Jensen–Shannon divergence in bits."""
    middle = (left + right) / 2
    terms = [torch.where(side > 0, side * torch.log2(side / middle), 0.0).sum() for side in (left, right)]
    return (terms[0] + terms[1]) / 2


def coefficients(similarity: Tensor, community: str) -> Tensor:
    rows = []
    for row in similarity:
        weight = torch.exp(SHARPNESS * row)
        if community == "explicit":
            weight = weight * (row > 0.5)
        rows.append((weight / weight.sum()).float())
    return torch.stack(rows)


def average(own: Parameters, models: list[Parameters], alpha: Tensor, threshold: float) -> Parameters:
    """Return θ̄ of one client: each entry is averaged over its senders; masked or unsent ones are `own`."""
    mean = {}
    for name in sent(own):
        senders = [a * kept(m, name, threshold) for a, m in zip(alpha, models, strict=True)]
        total = torch.stack([s * m[name] for s, m in zip(senders, models, strict=True)]).sum(dim=0)
        share = torch.stack(senders).sum(dim=0)
        there = kept(own, name, threshold) & (share > 0)
        mean[name] = torch.where(there, total / share, own[name]).detach()
    return mean


def dense(proxy: Proxy) -> Part:
    """Return features and adjacency in the form of a client's part."""
    graph, features = proxy
    source, target = graph.edges()
    adjacency = torch.zeros(len(features), len(features))
    adjacency[target, source] = 1
    return {"features": features, "adjacency": adjacency}


REGULARIZERS = ("reference", "printed")


@pytest.mark.parametrize(
    "given",
    [
        *(
            {"backbone": backbone, "regularizer": kind, "lambda1": 0.01, "lambda2": 0.1, "schedule": schedule}
            for backbone in ("gcn", "graphsage", "mlp", "sgc")
            for kind in REGULARIZERS
            for schedule in ({}, SGD)
        ),
        *(
            {"similarity": similarity, "community": community}
            for similarity in ("function", "parameter", "gradient", "label", "none")
            for community in ("implicit", "explicit")
        ),
        *({"proxy": proxy} for proxy in ("er", "one", "feature")),
        {"masks": False},
    ],
)
def test_rounds_agree(federation: Federation, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    Run(federation, monkeypatch, **given).play()


@pytest.mark.parametrize(
    "given",
    [
        *(
            {"lambda1": threshold, "backbone": backbone, "regularizer": kind}
            for threshold in (0.02, 0.15)
            for backbone in ("gcn", "graphsage")
            for kind in REGULARIZERS
        ),
        # Absent clients come back to what they were sent.
        *(
            {"similarity": similarity, "lambda1": 0.02, "schedule": {"rounds": 6, "participation": 0.6}}
            for similarity in ("function", "parameter", "gradient", "none")
        ),
    ],
)
def test_masked_entries_do_not_count(
    federation: Federation, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At one threshold messages are shorter as they are, at the other with indices."""
    Run(federation, monkeypatch, spread=True, **given).play()


def test_the_random_graph_is_the_papers(federation: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five blocks of a hundred nodes, 0.1 within and 0.01 between; standard normal features."""
    graph = Run(federation, monkeypatch).graphs[0]
    blocks = graph["adjacency"].view(5, 100, 5, 100).mean(dim=(1, 3))
    within = blocks.diagonal()
    between = blocks[~torch.eye(5, dtype=torch.bool)]
    assert torch.equal(graph["adjacency"], graph["adjacency"].T)
    assert (within - 0.1).abs().max() < 0.02
    assert (between - 0.01).abs().max() < 0.004
    assert abs(float(graph["features"].mean())) < 0.02
    assert abs(float(graph["features"].std()) - 1) < 0.02
