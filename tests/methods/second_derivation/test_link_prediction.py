"""Link prediction with FedAvg as a loop over clients.

A client has an embedding h_u of each of its nodes, from its own graph without the edges that are held out. It
trains on its remaining edges, y = 1, and on as many drawn pairs of its nodes, y = 0:

    s(u, v) = ⟨h_u, h_v⟩
    f_k     = mean over the client's pairs of −y log σ(s) − (1 − y) log(1 − σ(s))
    w       ← Σ p_k w_k,  p_k the client's share of the pairs

A drawn pair is left out if it is one node twice, an edge of the graph, or a held-out pair; fresh ones are
drawn in every epoch. A client's AUC is the share of (edge, pair without one) in which the edge scores higher,
equal scores counting half. The round of the best mean over clients on validation pairs is reported, by the
mean on test pairs.
"""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from fedsub.datasets.federation import Federation
from fedsub.datasets.seeding import torch_stream
from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.steps import begin_round
from fedsub.methods.core.training import end_round, start_round, train
from fedsub.methods.tasks import NEGATIVES
from tests.methods.federations import make_method
from tests.methods.loops import mean, optimiser_of
from tests.methods.oracle import client_parts, forward
from tests.methods.second_derivation.common import TOLERANCE, copied, gap, leaves
from tests.methods.second_derivation.rounds import fit, overwrite

CLIENTS, SEED = 4, 3
SCHEDULES: dict[str, dict[str, Any]] = {
    "everyone": {"rounds": 3, "local_epochs": 2, "weight_decay": 5e-4},
    "some": {
        "rounds": 4,
        "local_epochs": 2,
        "optimiser": "sgd",
        "learning_rate": 0.2,
        "participation": 0.6,
        "stragglers": 0.5,
    },
}
Pairs = list[tuple[int, int, float]]
"""Two nodes of a client, counted from its first, and whether they are joined."""


class Loop:
    """The clients one by one, beside a stacked method that is built."""

    def __init__(self, given: Federation, method: Any) -> None:
        self.method, links = method, method.task.links
        self.parts = client_parts(method.federation)
        self.models = [leaves(copied(method.parameters), k) for k in range(CLIENTS)]
        self.optimisers = [optimiser_of(model, method.schedule) for model in self.models]
        self.sizes = given.sizes.tolist()
        self.first = [sum(self.sizes[:k]) for k in range(CLIENTS)]
        self.train, self.validation, self.test = (
            self.of_clients(each.ends.T.tolist(), each.joined.tolist())
            for each in (links.train, links.validation, links.test)
        )
        self.edges = links.train.ends[:, links.train.joined > 0].T.tolist()
        # What is drawn is the method's choice; this is how it draws.
        self.generator = torch_stream(SEED, NEGATIVES)
        held = links.validation.ends.T.tolist() + links.test.ends.T.tolist()
        self.closed = {frozenset(pair) for pair in torch.stack(given.graph.edges()).T.tolist() + held}

    def client_of(self, node: int) -> int:
        return max(k for k in range(CLIENTS) if self.first[k] <= node)

    def of_clients(self, ends: list[list[int]], joined: list[float]) -> list[Pairs]:
        found: list[Pairs] = [[] for _ in range(CLIENTS)]
        for (u, v), y in zip(ends, joined, strict=True):
            k = self.client_of(u)
            found[k].append((u - self.first[k], v - self.first[k], y))
        return found

    def fresh(self) -> list[Pairs]:
        drawn = torch.rand((2, len(self.edges)), generator=self.generator, dtype=torch.float64).T.tolist()
        ends = list(self.edges)
        for (edge, _), (r, t) in zip(self.edges, drawn, strict=True):
            k = self.client_of(edge)
            u, v = (self.first[k] + int(share * self.sizes[k]) for share in (r, t))
            if u != v and frozenset((u, v)) not in self.closed:
                ends.append([u, v])
        others = len(ends) - len(self.edges)
        return self.of_clients(ends, [1.0] * len(self.edges) + [0.0] * others)

    def scores(self, k: int, pairs: Pairs) -> list[Tensor]:
        h = forward(self.parts[k], self.models[k], self.method.backbone.architecture.backbone)
        return [(h[u] * h[v]).sum() for u, v, _ in pairs]

    def loss(self, k: int, pairs: Pairs) -> Tensor:
        scores = self.scores(k, pairs)
        signed = [s if y else -s for s, (_, _, y) in zip(scores, pairs, strict=True)]
        return -torch.stack(signed).sigmoid().log().mean()

    def area(self, k: int, pairs: Pairs) -> float:
        scores = [float(s.detach()) for s in self.scores(k, pairs)]
        joined = [s for s, (_, _, y) in zip(scores, pairs, strict=True) if y]
        others = [s for s, (_, _, y) in zip(scores, pairs, strict=True) if not y]
        return sum((s > t) + 0.5 * (s == t) for s in joined for t in others) / (len(joined) * len(others))

    def areas(self, pairs: list[Pairs]) -> float:
        return sum(self.area(k, pairs[k]) for k in range(CLIENTS)) / CLIENTS

    def round(self, number: int) -> None:
        """Run the local epochs; all clients draw in each epoch, whether they train or not."""
        begin_round(self.method, number)
        epochs = self.method.epochs.tolist()
        for epoch in range(max(epochs)):
            pairs = self.fresh() if self.method.task.links.options.negatives == "fresh" else self.train
            for k in range(CLIENTS):
                if epoch < epochs[k]:
                    fit(self.optimisers[k], partial(self.loss, k, pairs[k]), 1)

    def exchange(self) -> None:
        """w ← Σ p_k w_k over the clients that trained; those that train next receive it."""
        present = self.method.present.nonzero().squeeze(1).tolist()
        count = [len(self.train[k]) for k in present]
        server = mean([self.models[k] for k in present], [each / sum(count) for each in count])
        overwrite(self.models, self.method.receiving.nonzero().squeeze(1).tolist(), server)


def created(federation: Federation, negatives: str, backbone: str, **schedule: Any) -> Any:
    architecture = Architecture(backbone=backbone, hidden=(16, 12), dropout=0.0)
    task = f"link-prediction[width=8,negatives={negatives}]"
    return make_method("fedavg", {}, federation, architecture, Schedule(**schedule), SEED, task=task)


@pytest.mark.parametrize("schedule", list(SCHEDULES.values()), ids=list(SCHEDULES))
@pytest.mark.parametrize(
    ("negatives", "backbone"),
    [("fresh", "gcn"), ("fixed", "gcn"), ("fresh", "graphsage"), ("fixed", "sgc"), ("fresh", "mlp")],
)
def test_link_prediction(
    federation: Federation, negatives: str, backbone: str, schedule: dict[str, Any]
) -> None:
    method = created(federation, negatives, backbone, **schedule)
    method.build()
    loop = Loop(federation, method)
    validation, test = [], []
    for number in range(1, method.schedule.rounds + 1):
        loop.round(number)
        start_round(method, number)
        assert gap(method.parameters, loop.models) < TOLERANCE
        validation.append(loop.areas(loop.validation))
        test.append(loop.areas(loop.test))
        loop.exchange()
        end_round(method)
        assert gap(method.parameters, loop.models) < TOLERANCE
    outcome = train(created(federation, negatives, backbone, **schedule))
    assert outcome.curve["validation"] == pytest.approx(validation, abs=1e-4)
    best = max(range(len(validation)), key=lambda index: validation[index])
    assert outcome.metrics["roc_auc"] == pytest.approx(test[best], abs=1e-4)
