"""Rounds in which a server's model goes to the clients that are present and comes back trained."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from fedsub.methods.stacked.parameters import Parameters
from tests.methods.loops import Part, numbers
from tests.methods.oracle import forward
from tests.methods.second_derivation.common import Pair, copied
from tests.methods.second_derivation.rounds import Meter, fit, overwrite, supervised, turn

Loss = Callable[[int, Parameters, Parameters], Tensor]
"""Of a client, its model and what it received, ()."""
Update = Callable[[Parameters, dict[int, Parameters], dict[int, float]], Parameters]
"""The server's new model, from the one that it sent, the clients' and their weights, which sum to 1."""


def cross_entropy(part: Part, model: Parameters, backbone: str) -> Tensor:
    """Mean over a client's training nodes, ()."""
    return supervised(part, forward(part, model, backbone))


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
    server = {name: value[0].clone() for name, value in pair.start.items() if shared(name)}
    meter = Meter(pair)
    for number in range(1, pair.method.schedule.rounds + 1):
        now = turn(pair, number)
        # They have this model already if they received at the end of the round before, as they must have.
        overwrite(pair.models, now.present, server)
        for k in now.present:
            fit(pair.optimisers[k], partial(loss, k, pair.models[k], server), now.epochs[k])
        sent = {k: copied({name: pair.models[k][name] for name in server}) for k in now.present}
        server = update(server, sent, weights_of(pair, now.present))
        overwrite(pair.models, now.receiving, server)
        pair.compare(number)
        meter.count(now)
    meter.compare(numbers(server), once)
