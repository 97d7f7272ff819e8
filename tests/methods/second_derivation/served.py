"""Rounds in which a server's model goes to the clients that are present and comes back trained."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as functional
from torch import Tensor

from methods.stacked.parameters import Parameters
from tests.methods.loops import Part, numbers
from tests.methods.oracle import forward
from tests.methods.second_derivation.common import TOLERANCE, Pair, copied, gap

Loss = Callable[[int, Parameters, Parameters], Tensor]
"""Of a client, its model and what it received, ()."""
Update = Callable[[Parameters, dict[int, Parameters], dict[int, float]], Parameters]
"""The server's new model, from the one that it sent, the clients' and their weights, which sum to 1."""


def cross_entropy(part: Part, model: Parameters, backbone: str) -> Tensor:
    """Mean over a client's training nodes, ()."""
    return functional.cross_entropy(
        forward(part, model, backbone)[part["train"]], part["labels"][part["train"]]
    )


def average(received: Parameters, sent: dict[int, Parameters], weights: dict[int, float]) -> Parameters:
    """FedAvg's server, Σ p_k w_k."""
    return {name: torch.stack([weights[k] * sent[k][name] for k in sent]).sum(dim=0) for name in received}


def weights_of(pair: Pair, clients: list[int]) -> dict[int, float]:
    """p_k of some clients, by training nodes unless the schedule says that all count alike."""
    counts = pair.federation.count(pair.federation.train).float()
    if pair.method.schedule.weighting == "uniform":
        counts = torch.ones_like(counts)
    return {k: float(counts[k] / counts[clients].sum()) for k in clients}


def play(
    pair: Pair,
    loss: Loss,
    update: Update,
    shared: Callable[[str], bool] = lambda name: True,
    once: int = 0,
) -> None:
    """All rounds of both. After each the clients must hold the same: the server's model where it reached
    them. Parameters that are not `shared` stay with the client; `once` are the numbers sent before."""
    method, schedule = pair.method, pair.method.schedule
    server = {name: value[0].clone() for name, value in pair.start.items() if shared(name)}
    up = down = 0
    for number in range(1, schedule.rounds + 1):
        method.attend(number)
        present = method.present.nonzero().flatten().tolist()
        for k in present:
            # It has this model already if it received at the end of the round before, as it must have.
            load(pair.models[k], server)
            for _ in range(schedule.local_epochs):
                pair.optimisers[k].zero_grad()
                loss(k, pair.models[k], server).backward()
                pair.optimisers[k].step()
        sent = {k: copied({name: pair.models[k][name] for name in server}) for k in present}
        server = update(server, sent, weights_of(pair, present))
        method.train_round(number)
        method.exchange(number)
        # Those who take part in the next round; after the last one those who took part in it.
        receiving = method.receiving.nonzero().flatten().tolist()
        for k in receiving:
            load(pair.models[k], server)
        assert gap(method.parameters, pair.models) < TOLERANCE
        up, down = up + len(present), down + len(receiving)
    pair.compare_bytes(up * numbers(server), down * numbers(server), once)


@torch.no_grad()
def load(model: Parameters, received: Parameters) -> None:
    """A client begins from what it received."""
    for name, value in received.items():
        model[name].copy_(value)
