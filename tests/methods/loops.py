"""Shared code of the plain per-client loops in tests: initial parameters, parts, losses, a comparison."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.datasets.federation import Federation
from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.training import Outcome, train
from fedsub.methods.stacked.parameters import Parameters
from tests.methods.federations import make_method, small_federation
from tests.methods.oracle import client_parts, forward

Part = dict[str, Tensor]
WIDTHS = (8, 6)


class Clients:
    """A small federation, and runs and initial parameters of methods on it; by default without dropout."""

    def __init__(
        self,
        schedule: Schedule,
        backbone: str = "gcn",
        clients: int = 3,
        dropout: float = 0.0,
        federation: Federation | None = None,
    ) -> None:
        self.federation = federation or small_federation(clients)
        self.architecture = Architecture(backbone, WIDTHS, dropout=dropout)
        self.schedule = schedule

    def create(self, name: str, options: dict[str, Any] | None = None) -> Any:
        return make_method(name, options, self.federation, self.architecture, self.schedule, seed=2)

    def run(self, name: str, **options: Any) -> tuple[Any, Outcome]:
        method = self.create(name, options)
        return method, train(method)

    def start(self, name: str = "fedavg", **options: Any) -> tuple[Parameters, Tensor]:
        """Return one client's initial parameters, and the clients' weights (K,)."""
        method = self.create(name, options)
        method.build()
        first = {key: value[0].detach().clone() for key, value in method.parameters.items()}
        return first, method.weights


def leaves(start: Parameters) -> Parameters:
    return {name: value.detach().clone().requires_grad_() for name, value in start.items()}


def optimiser_of(model: Parameters, schedule: Schedule) -> torch.optim.Optimizer:
    kind = torch.optim.SGD if schedule.optimiser == "sgd" else torch.optim.Adam
    return kind(list(model.values()), lr=schedule.learning_rate, weight_decay=schedule.weight_decay)


def mean(models: Sequence[Parameters], weights: Sequence[float] | Tensor) -> Parameters:
    """Σ_k p_k w_k, detached."""
    return {
        name: torch.stack([w * model[name].detach() for w, model in zip(weights, models, strict=True)]).sum(0)
        for name in models[0]
    }


def hidden_of(part: Part, model: Parameters, backbone: str) -> Tensor:
    """Return the classifier's inputs, (nodes, width); for SGC the logits before the bias."""
    if backbone == "sgc":
        return forward(part, model, backbone) - model["head.bias"]
    width = model["head.weight"].shape[0]
    headless = {"head.weight": torch.eye(width), "head.bias": torch.zeros(width)}
    return forward(part, model | headless, backbone)


def numbers(start: Parameters) -> int:
    """Number of entries of one model."""
    return sum(value.numel() for value in start.values())


def train_by_loop(
    federation: Federation,
    start: Parameters,
    logits: Callable[[int, Parameters], Tensor],
    shared: list[str],
    weights: Tensor,
    schedule: Schedule,
) -> list[Parameters]:
    """The oracle: `start` holds one client's parameters, `logits` computes client k's outputs, (nodes, C);
    returns every client's parameters after the last exchange."""
    parts = client_parts(federation)
    models = [leaves(start) for _ in parts]
    optimisers = [optimiser_of(model, schedule) for model in models]
    for _ in range(schedule.rounds):
        for k, (part, model, optimiser) in enumerate(zip(parts, models, optimisers, strict=True)):
            train = part["train"]
            for _ in range(schedule.local_epochs):
                optimiser.zero_grad()
                functional.cross_entropy(logits(k, model)[train], part["labels"][train]).backward()
                optimiser.step()
        average = mean(models, weights)
        with torch.no_grad():
            for model in models:
                for name in shared:
                    model[name].copy_(average[name])
    return models
