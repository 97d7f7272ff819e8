"""What plain loops over clients share: who takes part in a round, local training, what comes down."""

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
"""Clients that are absent, and others that train for fewer epochs than they should."""


@dataclass(frozen=True)
class Turn:
    """One round: who trains, for how many epochs, and to whom the server sends when it is over.

    The server sends to those who train next, who begin the next round with what they received.
    """

    present: list[int]
    receiving: list[int]
    epochs: list[int]
    weights: list[float]
    """Of those present, in their order: training nodes over those of all present."""


def turn(pair: Pair, number: int) -> Turn:
    """The round that the stacked method draws."""
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
    """As many steps on the whole graph of a client as it has epochs."""
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


def difference(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> Parameters:
    """left − right, detached."""
    return {name: (left[name] - right[name]).detach() for name in left}


def zeros(model: Mapping[str, Tensor]) -> Parameters:
    """As many zeros as a model has numbers."""
    return {name: torch.zeros_like(value) for name, value in model.items()}


def overwrite(models: Sequence[Mapping[str, Tensor]], clients: Iterable[int], server: Parameters) -> None:
    """These clients hold what the server sends."""
    with torch.no_grad():
        for client in clients:
            for name, value in server.items():
                models[client][name].copy_(value)


class Meter:
    """Numbers sent in a run, in models: `up` and `down` are what one client sends and receives."""

    def __init__(self, pair: Pair, up: float = 1, down: float = 1) -> None:
        self.pair, self.each = pair, (up, down)
        self.models = [0, 0]

    def count(self, now: Turn) -> None:
        """One more round."""
        self.models[0] += len(now.present)
        self.models[1] += len(now.receiving)

    def compare(self, size: int | None = None, once: int = 0, beside: int = 0) -> None:
        """The stacked method has sent as much: models of `size` numbers, `beside` with each that goes up, and
        `once` before the rounds."""
        size = numbers(self.pair.models[0]) if size is None else size
        up, down = (round(count * each * size) for count, each in zip(self.models, self.each, strict=True))
        self.pair.compare_bytes(up + beside * self.models[0], down, once)
