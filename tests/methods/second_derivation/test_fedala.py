"""FedALA as a loop over clients, from Zhang et al., AAAI 2023, and their code.

A client that has θ_k from its last training and receives w begins the next at

    θ = θ_k + W_k ⊙ (w − θ_k) in the highest layers, θ = w below,                         (1)

with W_k a number in [0, 1] for each entry of those layers, one at the start and kept over rounds. Before it
trains it takes steps on W_k, with G the derivative of the cross-entropy by θ on a share of its training nodes
that is drawn for the round,

    W_k ← min(1, max(0, W_k − η_W G ⊙ (w − θ_k))),                                        (2)

each followed by (1). The first time there are as many until the losses before the last WINDOW steps have a
standard deviation below the threshold, which is asked for once there are more than WINDOW; later there is
one. As long as θ_k is w, before the first exchange, nothing is learned.

The paper goes through the drawn nodes in batches and the public code knows no most steps: one batch and
FIRST_STEPS are choices of `methods.fedala`. Which nodes are drawn is read off the stacked method.
"""

import statistics
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from fedsub.methods import fedala
from fedsub.methods.core.training import end_round, start_round
from fedsub.methods.stacked.parameters import Parameters
from tests.methods.loops import Part, mean
from tests.methods.second_derivation.common import COMMUNITY, TOLERANCE, Pair, copied, divided, gap
from tests.methods.second_derivation.rounds import EVERYONE, SOME, Meter, fit, overwrite, turn
from tests.methods.second_derivation.served import cross_entropy

CLIENTS, DECAY = 5, 1e-3
SGD = {"optimiser": "sgd", "learning_rate": 0.3, "local_epochs": 3, "weight_decay": DECAY}
ADAM = {"optimiser": "adam", "learning_rate": 0.02, "local_epochs": 3, "weight_decay": DECAY}
LAYERS = [["head.weight", "head.bias"], ["layers.1.weight", "layers.1.neighbour", "layers.1.bias"]]
"""From the highest on, without the lowest; no layers are all, a choice of `methods.fedala`."""
DEFAULT = {"layers": 1, "share": 0.8, "rate": 20.0, "threshold": 0.1}
"""The public code's, but for the rate, which is large enough here for many weights to move."""


class Client:
    """One client's W and how it begins a round."""

    def __init__(self, options: dict[str, Any], backbone: str) -> None:
        self.options, self.backbone = options, backbone
        self.weights: Parameters = {}
        self.steps: list[int] = []

    def begin(self, part: Part, own: Parameters, server: Parameters) -> Parameters:
        """Return the model of (1) after the steps (2); `own` is θ_k."""
        layers = self.options["layers"]
        top = [name for layer in LAYERS[:layers] for name in layer if name in own]
        high = top if 0 < layers <= len(LAYERS) else list(own)
        first = not self.weights
        if first:
            self.weights = {name: torch.ones_like(own[name]) for name in high}
        way = {name: server[name] - own[name] for name in high}
        losses: list[float] = []
        while True:
            model = {name: value.clone().requires_grad_() for name, value in self._mixed(own, server).items()}
            loss = cross_entropy(part, model, self.backbone)
            slopes = torch.autograd.grad(loss, [model[name] for name in high])
            for name, slope in zip(high, slopes, strict=True):
                step = self.options["rate"] * slope * way[name]
                self.weights[name] = (self.weights[name] - step).clamp(0, 1)
            losses.append(loss.item())
            if not first or self._settled(losses):
                self.steps.append(len(losses))
                return self._mixed(own, server)

    def _mixed(self, own: Parameters, server: Parameters) -> Parameters:
        return {
            name: own[name] + self.weights[name] * (value - own[name]) if name in self.weights else value
            for name, value in server.items()
        }

    def _settled(self, losses: list[float]) -> bool:
        if len(losses) == fedala.FIRST_STEPS:
            return True
        recent = losses[-fedala.WINDOW :]
        return len(losses) > fedala.WINDOW and statistics.pstdev(recent) < self.options["threshold"]


def drawn(part: Part, rows: list[int], first: int, share: float) -> Tensor:
    """Return the nodes that the stacked method drew of one client, (n,) bool; its rows begin at `first`."""
    train, size = part["train"], len(part["train"])
    if share == 1:
        return train
    mine = torch.zeros_like(train)
    mine[[row - first for row in rows if first <= row < first + size]] = True
    assert int(mine.sum()) == max(1, int(share * int(train.sum())))
    assert not bool((mine & ~train).any())
    return mine


def compare(backbone: str, options: dict[str, Any], schedule: dict[str, Any]) -> list[Client]:
    """Every round's models, and the bytes, are the stacked method's; returns the clients as they end."""
    options = {**DEFAULT, **options}
    pair = Pair(divided(COMMUNITY, CLIENTS), "fedala", options, backbone, **schedule)
    models, clients, meter = pair.models, [Client(options, backbone) for _ in pair.models], Meter(pair)
    starts = [int((pair.federation.client < k).sum()) for k in range(CLIENTS)]
    draws: list[list[int]] = []
    draw = pair.method._draw

    def draw_and_tell() -> Tensor | None:
        rows: Tensor | None = draw()
        draws.append([] if rows is None else rows.tolist())
        return rows

    pair.method._draw = draw_and_tell
    for number in range(1, schedule["rounds"] + 1):
        now = turn(pair, number)
        for k in now.present:
            fit(pair.optimisers[k], partial(cross_entropy, pair.parts[k], models[k], backbone), now.epochs[k])
        server = mean([models[k] for k in now.present], now.weights)
        start_round(pair.method, number)
        end_round(pair.method)
        for k in now.receiving:
            sample = drawn(pair.parts[k], draws[-1], starts[k], options["share"])
            part = {**pair.parts[k], "train": sample}
            overwrite(models, [k], clients[k].begin(part, copied(models[k]), server))
        meter.count(now)
        assert gap(pair.method.parameters, models) < TOLERANCE
    meter.compare()
    pair.method.finish()
    entries = torch.cat([weight.flatten() for client in clients for weight in client.weights.values()])
    figures = {"mixture_mean": float(entries.mean()), "steps_taken": max(c.steps[0] for c in clients)}
    assert pair.method.extras == pytest.approx(figures, abs=1e-4)
    assert options["share"] == 1 or all(one != other for one, other in pairwise(draws))
    return clients


@pytest.mark.parametrize(("layers", "attendance"), [(1, SOME), (2, EVERYONE), (3, SOME)])
@pytest.mark.parametrize("backbone", ["gcn", "graphsage", "mlp", "sgc"])
def test_rounds_agree(backbone: str, layers: int, attendance: dict[str, Any]) -> None:
    clients = compare(backbone, {"layers": layers}, {**SGD, **attendance})
    # Weights that all stay at one would be FedAvg's.
    assert all(any(bool((weight < 1).any()) for weight in client.weights.values()) for client in clients)


@pytest.mark.parametrize("share", [0.5, 1.0])
@pytest.mark.parametrize("optimiser", [SGD, ADAM], ids=["sgd", "adam"])
def test_rounds_agree_with_all_nodes_and_with_few(optimiser: dict[str, Any], share: float) -> None:
    compare("gcn", {"share": share}, {**optimiser, **EVERYONE})


@pytest.mark.parametrize("first_steps", [30, 100])
@pytest.mark.parametrize("attendance", [EVERYONE, SOME], ids=["everyone", "some"])
def test_the_first_steps_end_alike(
    attendance: dict[str, Any], first_steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A low threshold, which clients come below at different times, or with fewer steps not all."""
    monkeypatch.setattr(fedala, "WINDOW", 5)
    monkeypatch.setattr(fedala, "FIRST_STEPS", first_steps)
    clients = compare("gcn", {"layers": 0, "threshold": 1e-3}, {**SGD, **attendance})
    first = [client.steps[0] for client in clients]
    assert len(set(first)) > 2
    assert max(first) == 30 if first_steps == 30 else 30 < max(first) < 100
    assert all(later == 1 for client in clients for later in client.steps[1:])
