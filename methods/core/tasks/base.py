"""What the clients learn, and how well: losses and scores per client."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedsub.datasets.errors import UserError
from fedsub.datasets.federation import Federation
from fedsub.datasets.options import Spec
from fedsub.methods.core import metrics
from fedsub.methods.core.metrics import Items, Metric, Score


@dataclass(frozen=True, eq=False)
class Evaluation:
    """One output scored."""

    state: ClassVar = ("validation", "test", "validation_loss", "further")
    validation: Score
    """By the task's first metric."""
    test: Score
    """By the task's first metric."""
    validation_loss: float
    """Mean over all validation items, pooled."""
    further: Mapping[str, Score]
    """The test items by the task's other metrics."""

    @classmethod
    def of(cls, kept: Evaluation | Mapping[str, Any]) -> Evaluation:
        """One that comes out of a checkpoint."""
        if isinstance(kept, Evaluation):
            return kept
        scores = {name: Score(**kept[name]) for name in ("validation", "test")}
        further = {name: Score(**each) for name, each in kept["further"].items()}
        return cls(**scores, validation_loss=kept["validation_loss"], further=further)


class Task(ABC):
    """A loss and scores on the outputs of n nodes over K clients."""

    name: ClassVar[str]
    """As methods, protocols and records call it."""
    default: ClassVar[tuple[str, ...]]
    """Metrics of every record; the first one selects the round, unless the protocol names another."""

    state: ClassVar[tuple[str, ...]] = ()
    """Names of the attributes that draw in training."""

    version: ClassVar[int] = 1
    """Raised where the task gives other figures than before: its cells are then others."""

    federation: Federation
    """What a method may see of the clients."""
    metrics: tuple[Metric, ...]
    """The default ones, then those that a protocol names besides; the first one selects the round."""
    width: int
    """Columns of the output that the task reads."""
    train_count: Tensor
    """(K,) training items of each client."""
    read: Tensor | None = None
    """(t,) rows whose outputs the loss reads; None: all."""
    validation: Items
    test: Items

    @abstractmethod
    def __init__(self, data: Any, seed: int = 0, device: torch.device | str = "cpu") -> None:
        """`data` is of `hold_out` or `merge`, `seed` draws in training."""

    @classmethod
    @abstractmethod
    def check(cls, spec: Spec) -> None:
        """Raises UserError for options that the task cannot take."""

    @classmethod
    @abstractmethod
    def hold_out(cls, federation: Federation, spec: Spec, seed: int) -> Any:
        """The task's data on these clients; `seed` draws what is held out beside the split."""

    @classmethod
    @abstractmethod
    def merge(cls, data: Any, seed: int) -> tuple[Any, Tensor]:
        """The data of one client that holds every node and edge, and the row there of each of the
        clients' nodes, (n,)."""

    @abstractmethod
    def client_loss(self, output: Tensor) -> Tensor:
        """Each client's mean training loss, (K,); output (n, width)."""

    def loss(self, output: Tensor) -> Tensor:
        """Sum over clients of each client's mean training loss, (); output (n, width)."""
        return self.client_loss(output).sum()

    @abstractmethod
    def evaluate(self, output: Tensor) -> Evaluation:
        """Scores of `output` (n, width) on validation and test items."""

    def restarted(self) -> Task:
        """The same task with its random draws at their start."""
        return self

    def score(self, validation: Tensor, test: Tensor, validation_loss: float) -> Evaluation:
        """Every metric of what the task reads from an output for validation and for test items."""
        first, *others = self.metrics
        return Evaluation(
            validation=first(validation, self.validation),
            test=first(test, self.test),
            validation_loss=validation_loss,
            further={each.name: each(test, self.test) for each in others},
        )

    @classmethod
    def metrics_with(cls, further: Iterable[str] = (), first: str = "") -> tuple[Metric, ...]:
        """The default metrics and `further` ones, led by `first` if that is given.

        Raises UserError for one of another task.
        """
        named = filter(None, (first, *cls.default, *further))
        found = [metrics.find(name) for name in dict.fromkeys(named)]
        for each in found:
            if cls.name not in each.tasks:
                raise UserError(f"{each.name} scores {', '.join(each.tasks)}, not {cls.name}: leave it out")
        return tuple(found)
