"""Shared code of plain loops over clients: participation in a round, local training, downloads."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.methods.core.steps import begin_round
from fedsub.methods.stacked.parameters import Parameters
from tests.methods.loops import Part, numbers
from tests.methods.second_derivation.common import Pair

EVERYONE: dict[str, Any] = {"rounds": 3}
SOME: dict[str, Any] = {"rounds": 4, "participation": 0.6, "stragglers": 0.5}
"""Schedule with absent clients, and stragglers that train for fewer epochs."""
SCHEDULES: dict[str, dict[str, Any]] = {
    "adam": {"rounds": 3, "local_epochs": 2, "weight_decay": 5e-4},
    "sgd": {"rounds": 3, "local_epochs": 3, "optimiser": "sgd", "learning_rate": 0.2, "weight_decay": 5e-4},
    "half": {"rounds": 5, "local_epochs": 2, "participation": 0.5},
}


@dataclass(frozen=True)
class Turn:
    """One round: who trains, for how many epochs, and to whom the server sends when it is over.

    The server sends to those who train next, who begin the next round with what they received.
    """

    present: list[int]
    receiving: list[int]
    epochs: list[int]
    weights: list[float]
    """Weights of the clients in `present`: training nodes divided by those of all present clients."""


def turn(pair: Pair, number: int) -> Turn:
    """Return the round that the stacked method draws."""
    method = pair.method
    begin_round(method, number)
    present = _those(method.present)
    training = [int(pair.parts[client]["train"].sum()) for client in present]
    weights = [size / sum(training) for size in training]
    return Turn(present, _those(method.receiving), method.epochs.tolist(), weights)


def _those(mask: Tensor) -> list[int]:
    return [client for client, there in enumerate(mask.tolist()) if there]


def supervised(part: Part, logits: Tensor) -> Tensor:
    """Mean cross-entropy of the client's training nodes."""
    return functional.cross_entropy(logits[part["train"]], part["labels"][part["train"]])


def fit(optimiser: torch.optim.Optimizer, loss: Callable[[], Tensor], epochs: int) -> None:
    """Train for `epochs` full-batch steps on a client's graph."""
    for _ in range(epochs):
        optimiser.zero_grad()
        loss().backward()
        optimiser.step()


def inner(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> Tensor:
    """⟨left, right⟩ over all numbers of a model."""
    return torch.stack([(left[name] * right[name]).sum() for name in left]).sum()


def distance(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> Tensor:
    """‖left − right‖² over all numbers of a model."""
    return torch.stack([(left[name] - right[name]).square().sum() for name in left]).sum()


def cosines(rows: Tensor) -> Tensor:
    """The cosines of all pairs of rows, (n, n)."""
    return functional.cosine_similarity(rows[:, None], rows, dim=2)


def difference(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> Parameters:
    return {name: (left[name] - right[name]).detach() for name in left}


def zeros(model: Mapping[str, Tensor]) -> Parameters:
    return {name: torch.zeros_like(value) for name, value in model.items()}


def overwrite(models: Sequence[Mapping[str, Tensor]], clients: Iterable[int], server: Parameters) -> None:
    with torch.no_grad():
        for client in clients:
            for name, value in server.items():
                models[client][name].copy_(value)


class Meter:
    """Counts the messages of a run; a client's message has `up` models, the server's `down` models."""

    def __init__(self, pair: Pair, up: float = 1, down: float = 1) -> None:
        self.pair, self.each = pair, (up, down)
        self.models = [0, 0]

    def count(self, now: Turn) -> None:
        self.models[0] += len(now.present)
        self.models[1] += len(now.receiving)

    def compare(self, size: int | None = None, once: int = 0, beside: int = 0) -> None:
        """Check that the stacked method has sent as much: models of `size` numbers, `beside` more with each
        upload, and `once` before the rounds."""
        size = numbers(self.pair.models[0]) if size is None else size
        up, down = (round(count * each * size) for count, each in zip(self.models, self.each, strict=True))
        self.pair.compare_bytes(up + beside * self.models[0], down, once)
