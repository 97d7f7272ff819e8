"""FedCog as a loop over parties, from Lei et al., Federated Learning over Coupled Graphs, IEEE TPDS 2023.

Equation numbers are the paper's; there is no public code. Party i holds its internal nodes V_i, their edges
among themselves, and their edges to external nodes V_i*. Its internal graph has a stand-in, of value zero,
for each external node. With d_v an internal node's degree on that graph one propagation is

    ĥ_u = Σ_v β_v h_v,  β_v = (1 + d_v)^−½,  over u and its neighbours, at internal nodes and stand-ins    (9)
    h_u = γ_u (ĥ_u + Σ ĥ of u's stand-ins at other parties),  γ_u = (1 + d_u)^−½                          (10)

where stand-ins' ĥ travel to the party of the node: the propagation on the whole graph (Theorem 1). SGC
propagates the features before training and trains a linear layer on them. In its place

    APPNP: h ← (1 − α) h + α x                                                                            (15)
    GBP: β_v = (1 + d_v)^−(1−r), γ_u = (1 + d_u)^−r                                                   (16, 17)
    GPR-GNN: Σ_l w_l h⁽ˡ⁾ with learned w.

A GCN propagates in every step of training, and gradients travel back. LNNC first joins a node whose
neighbours are all external to the internal node at the least angle in features (Section 4.5). Models are
averaged by FedAvg, of those present (Algorithm 1), or served by

    FedDyn: F_k − ⟨g_k, w⟩ + α/2 ‖w − w̄‖² is minimised; g_k ← g_k − α (w_k − w̄),
        h ← h − α Σ p_k (w_k − w̄), w̄ ← Σ p_k w_k − h / α
    FedAdagrad: Δ = Σ p_k (w_k − w̄), v ← v + Δ², w̄ ← w̄ + η Δ / (√v + τ)
    FedAdam: m ← 0.9 m + 0.1 Δ, v ← 0.99 v + 0.01 Δ², w̄ ← w̄ + η m / (√v + τ)

with v = τ² at first (Acar et al. 2021, Reddi et al. 2021).

Taken from the method, where the text is silent: GBP's sum over hops, the start of GPR-GNN's w, the hidden
layer, that a GCN's p_k weigh the losses while its models are averaged evenly, and what an absent party's
stand-ins hold.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.datasets.federation import Federation
from fedsub.methods.stacked.parameters import Parameters
from tests.methods.loops import numbers
from tests.methods.second_derivation.common import COMMUNITY, FLOAT, Pair, copied, created, divided
from tests.methods.second_derivation.rounds import overwrite, turn
from tests.methods.second_derivation.served import Adaptive, FedDyn, Update, average, weights_of

CLIENTS, HOPS, ROUNDS, RATE, DECAY = 4, 2, 3, 0.05, 1e-3
ALPHA, ETA, TAU = 0.1, 0.2, 0.03
Scale = Callable[[Tensor], Tensor]


class Party:
    """One client: its internal graph of m internal nodes and s stand-ins."""

    def __init__(self, federation: Federation, features: Tensor, client: int, lnnc: str) -> None:
        self.nodes = (federation.client == client).nonzero().flatten().tolist()
        place = {node: row for row, node in enumerate(self.nodes)}
        self.features = features[self.nodes]
        self.labels, self.train = federation.labels[self.nodes], federation.train[self.nodes]
        self.internal = torch.zeros(len(self.nodes), len(self.nodes))
        external: dict[int, list[int]] = {node: [] for node in self.nodes}
        for source, target in zip(*(end.tolist() for end in federation.graph.edges()), strict=True):
            if target in place:
                self.internal[place[target], place[source]] = 1
        for source, target in zip(*(end.tolist() for end in federation.inter.edges()), strict=True):
            if target in place:
                external[target].append(source)
        self.alone = [
            row
            for row, node in enumerate(self.nodes)
            if not self.internal[row].any() and (external[node] or lnnc == "isolated too")
        ]
        self.added = self.connect() if lnnc != "none" else 0
        self.stand_ins = sorted({node for ends in external.values() for node in ends})
        self.border = torch.zeros(len(self.stand_ins), len(self.nodes))
        for node, ends in external.items():
            for end in ends:
                self.border[self.stand_ins.index(end), place[node]] = 1
        self.degree = self.internal.sum(dim=1) + self.border.sum(dim=0)

    def connect(self) -> int:
        """Apply LNNC to the isolated nodes in `alone`; returns the number of added edges."""
        before = float(self.internal.sum())
        for row in self.alone:
            angles = []
            for other in self.features:
                cosine = functional.cosine_similarity(self.features[row], other, dim=0)
                angles.append(float(torch.acos(cosine.clamp(-1, 1))))
            others = [other for other in range(len(self.nodes)) if other != row]
            nearest = min(others, key=angles.__getitem__)
            self.internal[row, nearest] = self.internal[nearest, row] = 1
        return int(float(self.internal.sum()) - before) // 2

    def halfway(self, h: Tensor, beta: Scale) -> tuple[Tensor, Tensor]:
        """Return ĥ of internal nodes, (m, width), and of stand-ins, (s, width)."""
        h = beta(1 + self.degree)[:, None] * h
        return h + self.internal @ h, self.border @ h


class Coupled:
    """All parties. `messages` has, for every propagation, the values of each party's stand-ins."""

    def __init__(self, federation: Federation, lnnc: str = "alone") -> None:
        features = federation.features
        dense = features.to_dense() if features.layout is torch.sparse_csr else features
        self.parties = [Party(federation, dense, k, lnnc) for k in range(federation.clients)]
        self.owner = federation.client.tolist()
        self.messages: list[list[Tensor]] = []

    def propagate(
        self, h: list[Tensor], beta: Scale = torch.rsqrt, gamma: Scale = torch.rsqrt
    ) -> list[Tensor]:
        """Run one internal and one border propagation of every party."""
        halves = [party.halfway(rows, beta) for party, rows in zip(self.parties, h, strict=True)]
        return self.arrived([own for own, _ in halves], [sent for _, sent in halves], gamma)

    def arrived(self, own: list[Tensor], sent: list[Tensor], gamma: Scale = torch.rsqrt) -> list[Tensor]:
        """Run the border propagation on ĥ of internal nodes (`own`) and of stand-ins (`sent`)."""
        self.messages.append([values.detach() for values in sent])
        received: dict[int, list[Tensor]] = {}
        for party, values in zip(self.parties, sent, strict=True):
            for node, row in zip(party.stand_ins, values, strict=True):
                received.setdefault(node, []).append(row)
        found = []
        for party, half in zip(self.parties, own, strict=True):
            rows = [sum(received.get(n, []), row) for n, row in zip(party.nodes, half, strict=True)]
            found.append(gamma(1 + party.degree)[:, None] * torch.stack(rows))
        return found

    def dense(self) -> int:
        """Numbers sent in all propagations so far."""
        return sum(values.numel() for step in self.messages for values in step)


def served_by(rule: str, start: Parameters, shares: dict[int, float]) -> Update:
    if rule == "feddyn":
        return FedDyn(start, ALPHA, shares)
    if rule == "fedavg":
        return average
    return Adaptive(start, ETA, TAU) if rule == "fedadagrad" else Adaptive(start, ETA, TAU, 0.9, 0.99)


class Loop:
    """A stacked method, built, and the parties' own training."""

    def __init__(
        self,
        federation: Federation,
        options: dict[str, Any],
        backbone: str = "sgc",
        lnnc: str = "alone",
        **schedule: Any,
    ) -> None:
        given = {"rounds": ROUNDS, "learning_rate": RATE, "weight_decay": DECAY} | schedule
        self.pair = Pair(federation, "fedcog", options, backbone, **given)
        self.method, self.models = self.pair.method, self.pair.models
        self.options, self.coupled = options, Coupled(federation, lnnc)
        self.parties = self.coupled.parties
        self.server = {name: value[0] for name, value in self.pair.start.items()}
        self.rule = served_by(options.get("server", "fedavg"), self.server, self.average_shares())
        self.up = self.down = self.once = 0

    def loss(self, k: int, logits: Tensor) -> Tensor:
        party = self.parties[k]
        return functional.cross_entropy(logits[party.train], party.labels[party.train])

    def penalty(self, k: int) -> Tensor:
        """Return FedDyn's term added to F_k, ()."""
        if not isinstance(self.rule, FedDyn):
            return torch.zeros(())
        return self.rule.penalty(k, self.models[k], self.server)

    def step(self, present: list[int]) -> None:
        raise NotImplementedError

    def predicted(self) -> list[Tensor]:
        raise NotImplementedError

    def average_shares(self) -> dict[int, float]:
        return weights_of(self.pair, list(range(len(self.parties))))

    def play(self) -> None:
        """Rounds of both; models must agree after each, predictions and bytes at the end."""
        schedule, optimisers = self.method.schedule, self.pair.optimisers
        for number in range(1, schedule.rounds + 1):
            now = turn(self.pair, number)
            for _ in range(schedule.local_epochs):
                for optimiser in optimisers:
                    optimiser.zero_grad()
                self.step(now.present)
                for k in now.present:
                    optimisers[k].step()
            weights, sent = self.average_shares(), {k: copied(self.models[k]) for k in now.present}
            total = sum(weights[k] for k in now.present)
            self.server = self.rule(self.server, sent, {k: weights[k] / total for k in now.present})
            # Who is absent in the next round keeps the own model till its return.
            overwrite(self.models, now.receiving, self.server)
            self.up += len(now.present) * numbers(self.models[0])
            self.down += len(now.receiving) * numbers(self.models[0])
            self.pair.compare(number)
        self.pair.compare_bytes(self.up, self.down, self.once)
        with torch.no_grad():
            said = self.predicted()
        self.pair.compare_predictions(lambda k, model: said[k])


class Propagated(Loop):
    """Features propagated once before training, then a linear layer or a network with one hidden layer."""

    def __init__(self, federation: Federation, *given: Any, hops: int = HOPS, **further: Any) -> None:
        super().__init__(federation, *given, **further)
        self.inputs = [[party.features for party in self.parties]]
        kind, r = self.options.get("convolution"), self.options.get("exponent", 0.5)
        for _ in range(hops):
            h = self.coupled.propagate(
                self.inputs[-1], lambda degree: degree ** (r - 1), lambda degree: degree**-r
            )
            if kind == "appnp":
                h = [0.9 * new + 0.1 * x for new, x in zip(h, self.inputs[0], strict=True)]
            self.inputs.append(h)
        self.once = self.coupled.dense()

    def embedding(self, k: int) -> Tensor:
        """Return the inputs of party k's classifier, (m, d)."""
        layers = torch.stack([h[k] for h in self.inputs])
        kind, hops = self.options.get("convolution"), len(layers) - 1
        weights = torch.tensor([0.0] * hops + [1.0])
        if kind == "gbp":
            weights = torch.tensor([0.1 * 0.9**hop for hop in range(hops + 1)])
        if kind == "gprgnn":
            weights = self.models[k]["hops"]
        return torch.einsum("l,lmd->md", weights, layers)

    def logits(self, k: int) -> Tensor:
        h, w = self.embedding(k), self.models[k]
        if "layers.0.weight" in w:
            h = functional.relu(h @ w["layers.0.weight"] + w["layers.0.bias"])
        return h @ w["head.weight"] + w["head.bias"]

    def step(self, present: list[int]) -> None:
        for k in present:
            (self.loss(k, self.logits(k)) + self.penalty(k)).backward()

    def predicted(self) -> list[Tensor]:
        return [self.logits(k) for k in range(len(self.parties))]


class Convolved(Loop):
    """A GCN of two coupled layers. Every party multiplies by its own weights before it propagates (9).

    Σ_k p_k F_k is minimised over the weights of all: with the losses K p_k F_k and even averages a step of
    plain descent is that of (5).
    """

    def __init__(self, *given: Any, **further: Any) -> None:
        super().__init__(*given, **further)
        self.last: list[list[Tensor | None]] = [[None] * len(self.parties) for _ in range(2)]
        """Layer → values of each party's stand-ins in its last step."""

    def forward(self, working: list[int]) -> list[Tensor]:
        """Return logits of all parties; for idle parties the last values of their stand-ins count."""
        h = [party.features for party in self.parties]
        for layer, last in enumerate(self.last):
            h = [rows @ w[f"layers.{layer}.weight"] for rows, w in zip(h, self.models, strict=True)]
            halves = [party.halfway(rows, torch.rsqrt) for party, rows in zip(self.parties, h, strict=True)]
            sent = [values for _, values in halves]
            for k, before in enumerate(last):
                if k not in working:
                    sent[k] = torch.zeros_like(sent[k]) if before is None else before
            h = self.coupled.arrived([own for own, _ in halves], sent)
            if torch.is_grad_enabled():
                last[:] = [values.detach() for values in sent]
            biases = [w[f"layers.{layer}.bias"] for w in self.models]
            h = [functional.relu(rows + bias) for rows, bias in zip(h, biases, strict=True)]
        return [rows @ w["head.weight"] + w["head.bias"] for rows, w in zip(h, self.models, strict=True)]

    def step(self, present: list[int]) -> None:
        logits = self.forward(present)
        losses = [
            len(present) * share * self.loss(k, logits[k]) + self.penalty(k)
            for k, share in weights_of(self.pair, present).items()
        ]
        torch.stack(losses).sum().backward()
        # Between two parties that both work a value travels there and its gradient back.
        owner = self.coupled.owner
        for k in present:
            ends = sum(owner[node] in present for node in self.parties[k].stand_ins)
            widths = [self.models[k][f"layers.{layer}.bias"].numel() for layer in range(2)]
            self.up += 2 * ends * sum(widths)

    def average_shares(self) -> dict[int, float]:
        return dict.fromkeys(range(len(self.parties)), 1 / len(self.parties))

    def predicted(self) -> list[Tensor]:
        return self.forward(list(range(len(self.parties))))


KINDS: dict[str, type[Loop]] = {"sgc": Propagated, "gcn": Convolved}


@pytest.mark.parametrize(("optimiser", "epochs"), [("sgd", 2), ("adam", 1)])
@pytest.mark.parametrize("weighting", ["uniform", "training-nodes", "nodes"])
@pytest.mark.parametrize("backbone", ["sgc", "gcn"])
def test_rounds_agree(
    federation: Federation, backbone: str, epochs: int, weighting: str, optimiser: str
) -> None:
    given: dict[str, Any] = {"weighting": weighting, "local_epochs": epochs, "optimiser": optimiser}
    KINDS[backbone](federation, {}, backbone, **given).play()


@pytest.mark.parametrize("hidden", [0, 7])
@pytest.mark.parametrize(
    "options",
    [
        {"convolution": "appnp"},
        {"convolution": "gbp", "exponent": 0.3},
        {"convolution": "gprgnn"},
        {"convolution": "sgc"},
    ],
    ids=lambda options: options["convolution"],
)
def test_other_propagations(federation: Federation, options: dict[str, Any], hidden: int) -> None:
    given = options | {"hidden": hidden, "hops": 4}
    loop = Propagated(federation, given, "gcn", hops=4)
    if "hops" in loop.models[0]:
        start = torch.tensor([0.1, 0.09, 0.081, 0.0729, 0.6561])
        torch.testing.assert_close(loop.models[0]["hops"].detach(), start)
    loop.play()


@pytest.mark.parametrize("backbone", ["sgc", "gcn"])
@pytest.mark.parametrize("participation", [1.0, 0.5])
@pytest.mark.parametrize("rule", ["fedavg", "feddyn", "fedadagrad", "fedadam"])
def test_server_rules(federation: Federation, rule: str, participation: float, backbone: str) -> None:
    options: dict[str, Any] = {"server_learning_rate": ETA, "tau": TAU}
    if rule in ("fedavg", "feddyn"):
        options = {} if rule == "fedavg" else {"alpha": ALPHA}
    given: dict[str, Any] = {
        "participation": participation,
        "rounds": 5,
        "local_epochs": 2,
        "optimiser": "sgd",
    }
    KINDS[backbone](federation, {"server": rule, **options}, backbone, **given).play()


@pytest.mark.parametrize(
    ("lnnc", "options"), [("none", {"lnnc": False}), ("alone", {}), ("isolated too", {"lnnc_isolated": True})]
)
@pytest.mark.parametrize("backbone", ["sgc", "gcn"])
def test_lnnc(backbone: str, lnnc: str, options: dict[str, Any]) -> None:
    """Clients that hold few of their nodes' neighbours."""
    federation = divided(COMMUNITY, 8, "random")
    # Plain descent: Adam's first steps blow the rounding of a small gradient up.
    loop = KINDS[backbone](federation, options, backbone, lnnc, optimiser="sgd")
    added = sum(party.added for party in loop.parties)
    assert loop.method.extras["lnnc_edges"] == added
    assert (added > 0) == (lnnc != "none")
    if lnnc == "isolated too":
        assert added > sum(party.added for party in Coupled(federation).parties)
    loop.play()


def test_what_is_sent_of_sparse_values(federation: Federation) -> None:
    """Table 4 counts only values; a receiver also needs the column of each and the number per row."""
    loop = Propagated(federation, {})
    sent = {}
    for wire in ("nonzero", "sparse"):
        method: Any = created(federation, "fedcog", {"wire": wire}, "sgc")
        method.build()
        sent[wire] = method.channel.bytes_once
    every = [stand_ins for step in loop.coupled.messages for stand_ins in step]
    values, rows = sum(int(each.count_nonzero()) for each in every), sum(map(len, every))
    assert values < loop.coupled.dense()
    assert sent == {"nonzero": FLOAT * values, "sparse": FLOAT * (2 * values + rows)}
