"""FedStruct as a loop over clients, from Aliakbari et al., Federated Decoupled Learning over Interconnected
Graphs (an arXiv version of the text, whose numbers of equations, theorems and algorithms are given here).

Over the graph of all clients, and over client i's own,

    Â = D̃⁻¹ (A + I),    Ā = Âᴸ                          (4; of its sum, what the public code keeps)
    z_v = Σ_u ā_vu g(s_u) + Σ_{u ∈ V_i} ā⁽ⁱ⁾_vu f(x_u),    ŷ_v = softmax z_v                            (20)

with networks f and g. The structure features s are one-hot degrees, or trained from a random start (Hop2Vec);
with Hop2Vec the text leaves g out (23). With δ_v = ŷ_v − y_v of its labelled nodes Ṽ_i a client sends

    ∂L_i/∂θ = Σ_v (∂z_v/∂θ)ᵀ δ_v                                                       (Theorems 1 and 4)
    ∂L_i/∂S = Σ_v ā_v δ_vᵀ                                                             (Theorem 6, without g)

and the server steps along Σ_i ∂L_i / Σ_i |Ṽ_i| (8). The public code weighs the means of the clients by all
their nodes. Its optimiser is Adam.

Version a: the server knows the graph and sends each labelled node's Σ_u ā_vu g(s_u) with its Jacobians, by θ
and, with Hop2Vec, by S (Algorithms 1 and 2); zeros in it need not be sent (Appendix L.2). With GraphSAGE for
both networks a node's two embeddings meet in one linear layer (10).

Version b: before training clients exchange products B_ijk = Ã_k⁽ⁱ⁾ [Â_j⁽ᵏ⁾]ˡ⁻¹ (Algorithm 3), pruned to the
p n_i largest entries of each (Appendix L.2.1), and S; while they train, gradients alone (Algorithms 4 and 5).
Its private variant sends sums over one's own nodes in place of S (Appendix L.1).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.datasets.federation import Federation
from fedsub.methods.core.training import end_round, start_round
from fedsub.methods.stacked.parameters import Parameters
from tests.methods.federations import small_federation
from tests.methods.loops import numbers, optimiser_of
from tests.methods.second_derivation.common import TOLERANCE, Pair, copied, gap
from tests.methods.second_derivation.rounds import turn

CLIENTS, WIDTH = 4, 7
INDEX = 1
"""A place in a matrix, in numbers that are sent."""
Blocks = list[list[Tensor]]


@dataclass
class Plan:
    features: str = "h2v"
    version: str = "a"
    network: str = "decoupled"
    transform: str = "mlp"
    self_loops: str = "all"
    inference: str = "both"
    private: bool = False
    pruning: int = 0
    pruning_of: str = "blocks"
    hops: int = 2
    structure_hops: int = 3
    further: dict[str, Any] = field(default_factory=dict)
    schedule: dict[str, Any] = field(default_factory=dict)

    def options(self) -> dict[str, Any]:
        named = vars(self).items()
        own = {name: value for name, value in named if name not in ("further", "schedule")}
        small = {"structure_width": WIDTH, "feature_hidden": "5", "structure_hidden": "8"}
        return small | own | self.further


def whole_adjacency(federation: Federation) -> Tensor:
    """A of all clients' nodes in their order, (n, n)."""
    adjacency = torch.zeros(federation.nodes, federation.nodes)
    for graph in (federation.graph, federation.inter):
        source, target = graph.edges()
        adjacency[target, source] = 1
    return adjacency


def with_loops(adjacency: Tensor, loops: str = "all") -> Tensor:
    """Ã; the public code gives no loop to nodes that come after the last one with an edge."""
    count = len(adjacency)
    if loops == "to-last-edge":
        count = int(adjacency.sum(dim=1).nonzero().max()) + 1
    diagonal = (torch.arange(len(adjacency)) < count).float()
    return adjacency + torch.diag(diagonal)


def walk(looped: Tensor) -> Tensor:
    """D̃⁻¹ Ã; a row without entries stays empty."""
    return looped / looped.sum(dim=1, keepdim=True).clamp(min=1)


def largest(entries: Tensor, keep: int) -> Tensor:
    """All but the `keep` largest entries set to zero, of equal ones the first kept."""
    flat = entries.flatten()
    chosen = torch.sort(flat, descending=True, stable=True).indices[:keep]
    kept = torch.zeros_like(flat)
    kept[chosen] = flat[chosen]
    return kept.view_as(entries)


def largest_of_rows(matrix: Tensor, keep: int, origin: Tensor) -> Tensor:
    """`largest` of each row; the first of equal entries is that of the lowest node id, (n,)."""
    order = origin.argsort()
    kept = torch.zeros_like(matrix)
    kept[:, order] = torch.stack([largest(row[order], keep) for row in matrix])
    return kept


def in_clients_order(parameters: Mapping[str, Tensor], federation: Federation) -> Parameters:
    """The stacked method keeps S in the order of the graph that was divided."""
    found = copied(parameters)
    if "hop2vec" in found:
        found["hop2vec"] = found["hop2vec"][:, federation.origin]
    return found


def hidden(x: Tensor, w: Mapping[str, Tensor], name: str, mean: Tensor | None = None) -> Tensor:
    """LayerNorm and the hidden layers of f or g; `mean` (n, n) averages neighbours and makes it GraphSAGE."""
    h = functional.layer_norm(x, x.shape[1:], w[f"{name}.norm.gain"], w[f"{name}.norm.bias"])
    layer = 0
    while f"{name}.layers.{layer}.weight" in w:
        product = h @ w[f"{name}.layers.{layer}.weight"] + w[f"{name}.layers.{layer}.bias"]
        if mean is not None:
            product = product + mean @ h @ w[f"{name}.layers.{layer}.neighbour"]
        h = functional.relu(product)
        layer += 1
    return h


def head(h: Tensor, w: Mapping[str, Tensor], name: str) -> Tensor:
    """The last linear layer of f or g."""
    return h @ w[f"{name}.head.weight"] + w[f"{name}.head.bias"]


class Acquisition:
    """Algorithm 3 among all clients; `sent` numbers crossed between them.

    A client's row towards a client where its node has no neighbour is empty and not sent. The first power and
    the products that a client makes for itself are nobody's message: `blocks` leaves them whole. `rows` is a
    second reading: every row of products and every row of a power keeps its p largest entries.
    """

    def __init__(self, looped: Tensor, nodes: list[Tensor], origin: Tensor, plan: Plan) -> None:
        self.nodes, self.origin, self.plan, self.sent = nodes, origin, plan, 0
        self.tilde = [[looped[mine][:, other] for other in nodes] for mine in nodes]
        self.inverse = [1 / looped[mine].sum(dim=1, keepdim=True) for mine in nodes]
        clients = range(len(nodes))
        power: Blocks = [[self.inverse[i] * self.tilde[i][j] for j in clients] for i in clients]
        if plan.pruning and plan.pruning_of == "rows":
            power = [self.kept(torch.cat(row, dim=1)) for row in power]
        for _ in range(plan.structure_hops - 1):
            power = [self.next_row(i, power) for i in clients]
        self.bar = torch.cat([torch.cat(row, dim=1) for row in power])

    def next_row(self, i: int, power: Blocks) -> list[Tensor]:
        """Client i's blocks of the next power, (45)."""
        plan, total = self.plan, torch.zeros(len(self.nodes[i]), sum(map(len, self.nodes)))
        for k in range(len(self.nodes)):
            products = [self.tilde[i][k] @ block for block in power[k]]
            asked = int((self.tilde[i][k].sum(dim=1) > 0).sum())
            if plan.pruning and plan.pruning_of == "rows":
                products = self.kept(torch.cat(products, dim=1))
            elif plan.pruning and k != i:
                products = [largest(product, plan.pruning * len(self.nodes[i])) for product in products]
            if k != i:
                self.sent += sum(self.size(product, asked) for product in products)
            total = total + torch.cat(products, dim=1)
        total = self.inverse[i] * total
        return self.kept(total) if plan.pruning and plan.pruning_of == "rows" else self.split(total)

    def kept(self, rows: Tensor) -> list[Tensor]:
        return self.split(largest_of_rows(rows, self.plan.pruning, self.origin))

    def size(self, product: Tensor, asked: int) -> int:
        """Pruned, the entries with their places, or all of them where that is less."""
        whole, entries = asked * product.shape[1], int((product > 0).sum()) * (1 + INDEX)
        if not self.plan.pruning:
            return whole
        return entries if self.plan.pruning_of == "rows" else min(whole, entries)

    def split(self, rows: Tensor) -> list[Tensor]:
        return list(rows.split([len(mine) for mine in self.nodes], dim=1))


class Loop:
    """The clients and the server; `model` is the one that all of them hold, S among it. Counts the numbers
    that are sent."""

    def __init__(self, federation: Federation, plan: Plan, start: Parameters, weighting: str) -> None:
        self.federation, self.plan, self.weighting = federation, plan, weighting
        self.model = {name: value[0].clone().requires_grad_() for name, value in start.items()}
        self.up = self.down = self.once = 0
        self.clients = range(federation.clients)
        self.nodes = [(federation.client == k).nonzero().flatten() for k in self.clients]
        self.labelled = [mine[federation.train[mine]] for mine in self.nodes]
        self.truth = functional.one_hot(federation.labels, federation.classes).float()
        features = federation.features
        self.x = features.to_dense() if features.layout is torch.sparse_csr else features
        adjacency = whole_adjacency(federation)
        degree = adjacency.sum(dim=1).long()
        self.degrees = functional.one_hot(degree.clamp(max=WIDTH - 1), WIDTH).float()
        self.mean = adjacency / degree.clamp(min=1)[:, None]
        own = [adjacency[mine][:, mine] for mine in self.nodes]
        self.own_mean = [local / local.sum(dim=1, keepdim=True).clamp(min=1) for local in own]
        self.own_bar = [
            torch.linalg.matrix_power(walk(with_loops(local, plan.self_loops)), plan.hops) for local in own
        ]
        looped = with_loops(adjacency)
        if plan.version == "a":
            self.bar = torch.linalg.matrix_power(walk(looped), plan.structure_hops)
            layers = sum(name.startswith("structure.layers") for name in self.model) // 3
            self.reached = torch.linalg.matrix_power(looped, layers if self.sage else plan.structure_hops) > 0
            return
        acquisition = Acquisition(looped, self.nodes, federation.origin, plan)
        self.bar, self.once = acquisition.bar, acquisition.sent
        if plan.private:
            self.once += sum(len(self.labelled[i]) * len(self.nodes[j]) for i, j in self.pairs())
        else:
            self.once += (federation.clients - 1) * self.structure(self.model).numel()

    @property
    def sage(self) -> bool:
        return self.plan.network == "graphsage"

    def pairs(self) -> list[tuple[int, int]]:
        return [(i, j) for i in self.clients for j in self.clients if i != j]

    def structure(self, model: Mapping[str, Tensor]) -> Tensor:
        """S, (n, d_s)."""
        return model["hop2vec"] if self.plan.features == "h2v" else self.degrees

    def embedded(self, model: Mapping[str, Tensor], rows: Tensor, of: Tensor | None = None) -> Tensor:
        """Return the part from the server or the other clients for the nodes `rows`: Σ_u ā_vu g(s_u) over the
        nodes `of` (None: all); for GraphSAGE its last embedding."""
        s = self.structure(model)
        if self.sage:
            return hidden(s, model, "structure", self.mean)[rows]
        bar, s = (self.bar[rows], s) if of is None else (self.bar[rows][:, of], s[of])
        return bar @ (head(hidden(s, model, "structure"), model, "structure") if self.has_g else s)

    @property
    def has_g(self) -> bool:
        return self.plan.transform == "mlp"

    def structural(self, model: Mapping[str, Tensor], embedded: Tensor) -> Tensor:
        """Return the contribution of structure to the logits."""
        return head(embedded, model, "structure") if self.sage else embedded

    def featural(self, model: Mapping[str, Tensor], k: int) -> Tensor:
        """Return the contribution of features to the logits of client k's nodes, (n_k, C)."""
        x = self.x[self.nodes[k]]
        if self.sage:
            return head(hidden(x, model, "feature", self.own_mean[k]), model, "feature")
        return self.own_bar[k] @ head(hidden(x, model, "feature"), model, "feature")

    def predicted(self) -> Tensor:
        with torch.no_grad():
            everyone = torch.arange(self.federation.nodes)
            z = self.structural(self.model, self.embedded(self.model, everyone))
            if self.plan.inference == "both":
                z = z + torch.cat([self.featural(self.model, k) for k in self.clients])
        return z

    def gradient(self, k: int) -> Parameters:
        """Return the gradient of L_k for all trained parameters, from the values that client k receives."""
        rows, plan = self.labelled[k], self.plan
        held = {name: value.detach().requires_grad_() for name, value in self.model.items()}
        remote = [n for n in held if n.startswith(("structure", "hop2vec"))]
        remote = [n for n in remote if not (self.sage and "head" in n)]
        # Each sender's Σ_u ā_vu g(s_u) over its own nodes, and their Jacobians; else in one piece.
        senders = self.nodes if plan.private else [None]
        sums = [self.embedded(held, rows, of).detach() for of in senders]
        embedded = torch.stack(sums).sum(dim=0).requires_grad_()
        h = self.featural(held, k)[torch.isin(self.nodes[k], rows)]
        z = self.structural(held, embedded) + h
        delta = torch.softmax(z, dim=1).detach() - self.truth[rows]
        local = [name for name in held if name not in remote]
        *slopes, error = torch.autograd.grad((delta * z).sum(), [*(held[n] for n in local), embedded])
        found = dict(zip(local, slopes, strict=True))
        sent = {name: held[name].detach() for name in remote}
        if not self.has_g:
            found["hop2vec"] = sum(
                (torch.outer(self.bar[v], d) for v, d in zip(rows, error, strict=True)),
                torch.zeros_like(held["hop2vec"]),
            )
        elif plan.version == "a" or plan.private:
            # One Jacobian a sender, (|Ṽ_k|, width, …) by each tensor.
            for of in senders:
                jacobian = torch.func.jacrev(lambda w, of=of: self.embedded({**held, **w}, rows, of))(sent)
                for name, value in jacobian.items():
                    found[name] = found.get(name, 0) + torch.tensordot(error, value, dims=2)
        else:
            slopes_there = torch.autograd.grad(
                (error * self.embedded(held, rows)).sum(), [held[name] for name in remote]
            )
            found |= dict(zip(remote, slopes_there, strict=True))
        self.count(k, error, sent)
        return found

    def count(self, k: int, error: Tensor, sent: Mapping[str, Tensor]) -> None:
        """Count the numbers that client k received and sent for one gradient."""
        plan, learned = self.plan, self.model["hop2vec"].numel() if "hop2vec" in self.model else 0
        theta = numbers(self.model) - learned
        self.up += theta + learned
        self.down += theta
        by_theta = error.numel() * (numbers(dict(sent)) - learned)
        if plan.version == "a":
            self.down += error.numel() + by_theta
            if learned:
                pairs = int(self.reached[self.labelled[k]].sum())
                # Without g the derivative is ā_vq times the identity.
                self.down += pairs * (error.shape[1] * WIDTH if self.has_g else 1)
        elif plan.private:
            self.up += (len(self.clients) - 1) * (error.numel() + by_theta)
            self.down += len(self.nodes[k]) * (learned // self.federation.nodes)
        else:
            self.down += learned

    def epoch(self, optimiser: torch.optim.Optimizer, present: list[int]) -> None:
        """The clients that are present send a gradient each, the server steps."""
        labelled = torch.tensor([float(len(self.labelled[k])) for k in present])
        if self.weighting == "nodes":
            nodes = torch.tensor([float(len(self.nodes[k])) for k in present])
            weights = nodes / nodes.sum() / labelled
        else:
            weights = torch.ones(len(present)) / labelled.sum()
        gradients = [self.gradient(k) for k in present]
        for name, value in self.model.items():
            value.grad = torch.stack([w * g[name] for w, g in zip(weights, gradients, strict=True)]).sum(0)
        optimiser.step()


def compare(federation: Federation, plan: Plan) -> Loop:
    """Run both; models, predictions and bytes must agree."""
    schedule = {"rounds": 3, "learning_rate": 0.02, "weight_decay": 1e-3} | plan.schedule
    pair = Pair(federation, "fedstruct", plan.options(), **schedule)
    method = pair.method
    loop = Loop(federation, plan, in_clients_order(pair.start, federation), method.schedule.weighting)
    optimiser = optimiser_of(loop.model, method.schedule)
    for number in range(1, method.schedule.rounds + 1):
        present = turn(pair, number).present
        start_round(method, number)
        end_round(method)
        for _ in range(method.schedule.local_epochs):
            loop.epoch(optimiser, present)
        assert gap(in_clients_order(method.parameters, federation), [loop.model]) < TOLERANCE
    torch.testing.assert_close(method.predict(), loop.predicted(), atol=TOLERANCE, rtol=TOLERANCE)
    pair.compare_bytes(loop.up, loop.down, loop.once)
    return loop


DEEP = {"feature_hidden": "5+4", "structure_hidden": "8+6"}
WEIGHTINGS = ("training-nodes", "nodes")


@pytest.mark.parametrize(
    "plan",
    [
        *(Plan(version=version, transform=transform) for version in "ab" for transform in ("mlp", "none")),
        *(Plan(features="deg", version=version, further=DEEP) for version in "ab"),
        *(Plan(version=version, inference="structure") for version in "ab"),
        *(Plan(features=features, network="graphsage", further=DEEP) for features in ("deg", "h2v")),
    ],
)
def test_rounds_agree(federation: Federation, plan: Plan) -> None:
    compare(federation, plan)


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("further", [{"optimiser": "adam"}, {"optimiser": "sgd"}, {"participation": 0.5}])
@pytest.mark.parametrize("version", ["a", "b"])
def test_server_steps(federation: Federation, version: str, further: dict[str, Any], weighting: str) -> None:
    """Also where absent clients send no gradient."""
    schedule = {"weighting": weighting, "local_epochs": 2, **further}
    compare(federation, Plan(version=version, schedule=schedule))
    if version == "b" and weighting == "nodes":
        compare(federation, Plan(version=version, transform="none", private=True, schedule=schedule))


@pytest.mark.parametrize("loops", ["all", "to-last-edge"])
def test_nodes_without_edges(loops: str) -> None:
    federation = small_federation(3)
    loop = compare(federation, Plan(features="deg", version="b", self_loops=loops))
    assert any(bool((bar.sum(dim=1) == 0).any()) for bar in loop.own_bar) == (loops == "to-last-edge")


@pytest.mark.parametrize("pruning_of", ["blocks", "rows"])
@pytest.mark.parametrize("pruning", [1, 4])
def test_pruned(federation: Federation, pruning: int, pruning_of: str) -> None:
    plan = Plan(version="b", pruning=pruning, pruning_of=pruning_of)
    loop = compare(federation, plan)
    whole = torch.linalg.matrix_power(walk(with_loops(whole_adjacency(federation))), plan.structure_hops)
    assert not torch.allclose(loop.bar, whole)


@pytest.mark.parametrize("limit", [2.5, 0.0])
@pytest.mark.parametrize(
    ("features", "transform", "private"), [("deg", "mlp", True), ("h2v", "none", True), ("h2v", "mlp", False)]
)
def test_rows_that_would_not_fit(
    federation: Federation,
    features: str,
    transform: str,
    private: bool,
    limit: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are propagated anew in every epoch."""
    monkeypatch.setattr("fedsub.methods.fedstruct.rows.ROWS_LIMIT", limit)
    compare(federation, Plan(features, "b", transform=transform, private=private))
