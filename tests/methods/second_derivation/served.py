"""Rounds in which clients send trained models and a server answers."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from fedsub.methods.stacked.parameters import Parameters
from tests.methods.loops import Part, numbers
from tests.methods.oracle import forward
from tests.methods.second_derivation.common import Pair, copied
from tests.methods.second_derivation.rounds import (
    Meter,
    Turn,
    distance,
    fit,
    overwrite,
    supervised,
    turn,
    zeros,
)

Loss = Callable[[int, Parameters, Parameters], Tensor]
"""(client, its model, the received model) → loss, ()."""
Update = Callable[[Parameters, dict[int, Parameters], dict[int, float]], Parameters]
"""(model that the server sent, clients' models, weights with sum 1) → the server's new model."""
Answer = Callable[[dict[int, Parameters], dict[int, Parameters], dict[int, float]], dict[int, Parameters]]
"""(models that the server sent, clients' models, weights) → new models, for the clients that get one."""


def everything(name: str) -> bool:
    return True


def cross_entropy(part: Part, model: Parameters, backbone: str) -> Tensor:
    """Mean cross-entropy of a client's training nodes, ()."""
    return supervised(part, forward(part, model, backbone))


def plain(pair: Pair, backbone: str) -> Loss:
    return lambda k, model, received: cross_entropy(pair.parts[k], model, backbone)


def average(received: Parameters, sent: dict[int, Parameters], weights: dict[int, float]) -> Parameters:
    """FedAvg's server, Σ p_k w_k."""
    return {name: torch.stack([weights[k] * sent[k][name] for k in sent]).sum(dim=0) for name in received}


def weights_of(pair: Pair, clients: list[int]) -> dict[int, float]:
    """Return p_k of `clients` with sum 1, by training nodes, by nodes, or uniform, as the schedule says."""
    federation, weighting = pair.federation, pair.method.schedule.weighting
    counts = federation.count(federation.train).float()
    if weighting != "training-nodes":
        counts = federation.sizes.float() if weighting == "nodes" else torch.ones_like(counts)
    return {k: float(counts[k] / counts[clients].sum()) for k in clients}


def played(
    pair: Pair,
    loss: Loss,
    answer: Answer,
    shared: Callable[[str], bool] = everything,
    rounds: int | None = None,
) -> Iterator[Turn]:
    """Run both and check that they agree after every round; yield the rounds. Clients that the server reaches
    take its model. Parameters that are not `shared` stay local."""
    models = pair.models
    kept = {
        k: copied({name: value for name, value in model.items() if shared(name)})
        for k, model in enumerate(models)
    }
    for number in range(1, (rounds or pair.method.schedule.rounds) + 1):
        now = turn(pair, number)
        for k in now.present:
            fit(pair.optimisers[k], partial(loss, k, models[k], kept[k]), now.epochs[k])
        sent = {k: copied({name: models[k][name] for name in kept[k]}) for k in now.present}
        kept |= answer(kept, sent, weights_of(pair, now.present))
        for k in now.receiving:
            overwrite(models, [k], kept[k])
        pair.compare(number)
        yield now


def play_apart(
    pair: Pair, loss: Loss, answer: Answer, shared: Callable[[str], bool] = everything, beside: int = 0
) -> None:
    """Run all rounds of `played` and check the bytes; `beside` numbers go up with each model."""
    meter = Meter(pair)
    for now in played(pair, loss, answer, shared):
        meter.count(now)
    size = sum(value[0].numel() for name, value in pair.start.items() if shared(name))
    meter.compare(size, beside=beside)


def play(
    pair: Pair,
    loss: Loss,
    update: Update,
    shared: Callable[[str], bool] = everything,
    once: int = 0,
    times: int = 1,
    rounds: int | None = None,
) -> None:
    """Run and check like `play_apart`, for a server with one model. `once` numbers are sent before, and a
    message has `times` a model's numbers."""
    server = {name: value[0].clone() for name, value in pair.start.items() if shared(name)}

    def answer(
        kept: dict[int, Parameters], sent: dict[int, Parameters], weights: dict[int, float]
    ) -> dict[int, Parameters]:
        server.update(update(copied(server), sent, weights))
        return {k: copied(server) for k in kept}

    meter = Meter(pair, times, times)
    for now in played(pair, loss, answer, shared, rounds):
        meter.count(now)
    meter.compare(numbers(server), once)


def play_by_gradients(pair: Pair, loss: Loss, once: int = 0) -> None:
    """Run and check one model that steps, in every epoch, on the mean gradient of the clients still training.

    Each of them uploads a gradient and downloads a model.
    """
    model, optimiser, messages = pair.models[0], pair.optimisers[0], 0
    for number in range(1, pair.method.schedule.rounds + 1):
        now = turn(pair, number)
        for epoch in range(max(now.epochs)):
            working = [k for k in now.present if now.epochs[k] > epoch]
            optimiser.zero_grad()
            for k, weight in weights_of(pair, working).items():
                (weight * loss(k, model, model)).backward()
            optimiser.step()
            messages += len(working)
        overwrite(pair.models, range(len(pair.models)), copied(model))
        pair.compare(number)
    pair.compare_bytes(messages * numbers(model), once=once)


class FedDyn:
    """min F_k(w_k) − ⟨g_k, w_k⟩ + α/2 ‖w_k − w‖²,  g_k ← g_k − α (w_k − w),  h ← h − α Σ_S p_k (w_k − w),
    w ← Σ_S p_k w_k − h/α, where p_k sum to 1 over all clients in h, over those present, S, in the mean."""

    def __init__(self, start: Parameters, alpha: float, shares: dict[int, float]) -> None:
        self.alpha, self.shares = alpha, shares
        self.slopes = {k: zeros(start) for k in shares}
        self.correction = zeros(start)

    def penalty(self, k: int, model: Parameters, received: Parameters) -> Tensor:
        """The term that is added to F_k."""
        linear = torch.stack([(self.slopes[k][name] * value).sum() for name, value in model.items()]).sum()
        return self.alpha / 2 * distance(model, received) - linear

    def __call__(
        self, received: Parameters, sent: dict[int, Parameters], weights: dict[int, float]
    ) -> Parameters:
        new = average(received, sent, weights)
        for name, value in received.items():
            for k, model in sent.items():
                drift = self.alpha * (model[name] - value)
                self.slopes[k][name] = self.slopes[k][name] - drift
                self.correction[name] = self.correction[name] - self.shares[k] * drift
            new[name] = new[name] - self.correction[name] / self.alpha
        return new


class Adaptive:
    """Δ = Σ p_k (w_k − w),  m ← β₁ m + (1 − β₁) Δ,  w ← w + η m / (√v + τ), v = τ² at first; FedAdagrad's
    v ← v + Δ² without a β₂, FedAdam's v ← β₂ v + (1 − β₂) Δ² with one."""

    def __init__(
        self, start: Parameters, rate: float, tau: float, beta1: float = 0.0, beta2: float | None = None
    ) -> None:
        self.rate, self.tau, self.beta1, self.beta2 = rate, tau, beta1, beta2
        self.first = zeros(start)
        self.second = {name: torch.full_like(value, tau**2) for name, value in start.items()}

    def __call__(
        self, received: Parameters, sent: dict[int, Parameters], weights: dict[int, float]
    ) -> Parameters:
        new, mean, beta2 = {}, average(received, sent, weights), self.beta2
        for name, value in received.items():
            change = mean[name] - value
            self.first[name] = self.beta1 * self.first[name] + (1 - self.beta1) * change
            kept = self.second[name] if beta2 is None else beta2 * self.second[name]
            self.second[name] = kept + (1 if beta2 is None else 1 - beta2) * change**2
            new[name] = value + self.rate * self.first[name] / (self.second[name].sqrt() + self.tau)
        return new
