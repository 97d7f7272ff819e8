"""Common parts of plain loops over clients: attendance, local training, the server's answer, bytes."""

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
"""A schedule with absent clients, and with stragglers, which train for fewer epochs."""


@dataclass(frozen=True)
class Turn:
    """One round: the clients that train, their epochs, and the clients that receive at its end.

    The server sends to the clients of the next round, which begin that round with the received model.
    """

    present: list[int]
    receiving: list[int]
    epochs: list[int]
    weights: list[float]
    """For each client present: its share of the training nodes of all clients present."""


def turn(pair: Pair, number: int) -> Turn:
    """The round as the stacked method draws it."""
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
    """Take one step on the client's whole graph in each epoch."""
    for _ in range(epochs):
        optimiser.zero_grad()
        loss().backward()
        optimiser.step()


def inner(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> Tensor:
    """⟨left, right⟩ over all values of a model."""
    return torch.stack([(left[name] * right[name]).sum() for name in left]).sum()


def distance(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> Tensor:
    """‖left − right‖² over all values of a model."""
    return torch.stack([(left[name] - right[name]).square().sum() for name in left]).sum()


def difference(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> Parameters:
    """left − right, detached."""
    return {name: (left[name] - right[name]).detach() for name in left}


def zeros(model: Mapping[str, Tensor]) -> Parameters:
    """Zeros in the shapes of a model."""
    return {name: torch.zeros_like(value) for name, value in model.items()}


def overwrite(models: Sequence[Mapping[str, Tensor]], clients: Iterable[int], server: Parameters) -> None:
    """Overwrite the models of these clients with the server's."""
    with torch.no_grad():
        for client in clients:
            for name, value in server.items():
                models[client][name].copy_(value)


class Meter:
    """Counts the values sent in a run. A client sends `up` and receives `down` models in a round."""

    def __init__(self, pair: Pair, up: float = 1, down: float = 1) -> None:
        self.pair, self.each = pair, (up, down)
        self.models = [0, 0]

    def count(self, now: Turn) -> None:
        """Count one round."""
        self.models[0] += len(now.present)
        self.models[1] += len(now.receiving)

    def compare(self, size: int | None = None, once: int = 0, beside: int = 0) -> None:
        """Check that the stacked method sent as much: models of `size` values, `beside` more with each model
        sent up, and `once` before the rounds."""
        size = numbers(self.pair.models[0]) if size is None else size
        up, down = (round(count * each * size) for count, each in zip(self.models, self.each, strict=True))
        self.pair.compare_bytes(up + beside * self.models[0], down, once)
