"""Metrics: functions that score K clients from outputs and items, found by name.

Each file of this package holds one metric of the file's name, and so does a user's file.
"""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from fedsub.datasets import plugins
from fedsub.datasets.errors import UserError, unknown
from fedsub.datasets.paths import PLUGIN
from fedsub.methods.stacked import kernels


class Score(NamedTuple):
    """Scores of K clients by one metric; tensors on the CPU."""

    value: Tensor
    """(K,) float64 in [0, 1]; NaN for a client with nothing to score."""
    weight: Tensor
    """(K,) number of items behind each value; its weight if clients are pooled."""


@dataclass(frozen=True, eq=False)
class Items:
    """The m nodes, or pairs of nodes, of one role (validation, test) on which K clients are scored."""

    labels: Tensor
    """(m,): a node's class, int64, or whether a pair is joined, float32 0 or 1."""
    client: Tensor
    """(m,) int64 in 0…K−1, the client of each item."""
    clients: int
    """Number of clients K."""
    rows: Tensor
    """(m,) int64, each item's row in the output."""
    majority: Tensor | None = None
    """(K,) int64, the commonest class among each client's training nodes, −1 without any; None for pairs."""

    @cached_property
    def count(self) -> Tensor:
        """Number of items of each client, (K,) int64."""
        return torch.bincount(self.client, minlength=self.clients).cpu()

    def counts(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """Count by client and class, (K, C) int64 each: the correctly predicted items of the class, and the
        items of the class plus the items predicted as it. The highest `output` (n, C) is the prediction."""
        shape = self.clients, output.shape[1]
        if kernels.compiled(output):
            right, either = torch.zeros(2, *shape, dtype=torch.int64)
            arrays = (self.rows.numpy(), self.labels.numpy(), self.client.numpy())
            scores = output.detach().contiguous().numpy()
            kernels.count_classes(scores, *arrays, right.numpy(), either.numpy())
            return right, either
        first = self.client * shape[1]
        predicted, true = first + output[self.rows].argmax(dim=1), first + self.labels
        right, guessed, held = (
            torch.bincount(cell, minlength=shape[0] * shape[1]).view(shape).cpu()
            for cell in (true[predicted == true], predicted, true)
        )
        return right, guessed + held

    def right(self, output: Tensor) -> Tensor:
        """Number of correctly predicted items of each client, (K,) float64; `output` is (n, C)."""
        return self.counts(output)[0].sum(dim=1).double()


@dataclass(frozen=True)
class Metric:
    """A function found by its name: `metric(output, items)` scores every client."""

    name: str
    """Name of the function, of its file, and of the score in records."""
    score: Callable[[Tensor, Items], Score]
    tasks: tuple[str, ...]
    """Tasks that it scores: `node-classification`, where `output` is the logits of all nodes, (n, C), and
    `items.rows` selects the scored ones; `link-prediction`, where `output` is the pairs' scores, (m,)."""
    averaging: str | None
    """How clients are averaged, `client-mean` or `pooled`; None: as the protocol says."""

    def __call__(self, output: Tensor, items: Items) -> Score:
        return self.score(output, items)


def metric(
    *, task: str | tuple[str, ...] = "node-classification", averaging: str | None = None
) -> Callable[[Callable[[Tensor, Items], Score]], Metric]:
    """Decorator that makes a function the metric of its name, for one or several tasks."""
    tasks = (task,) if isinstance(task, str) else task

    def mark(score: Callable[[Tensor, Items], Score]) -> Metric:
        return Metric(score.__name__, score, tasks, averaging)

    return mark


@cache
def names() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def find(name: str) -> Metric:
    """Return the metric of this name, or the metric in the .py file at this path, which has the file's name.
    Brackets after a path, which tell states of the file apart, are ignored.

    Raises UserError with the nearest names for an unknown one, and for a file without such a metric.
    """
    # By the text's end, as a plan does that asks whether code may run: `Path` drops the last / of `x.py/`.
    if (file := name.partition("[")[0]).endswith(PLUGIN):
        path = Path(file)
        given = getattr(plugins.load_file("metric", path), path.stem, None)
        if not isinstance(given, Metric):
            raise UserError(f"{path} has no metric {path.stem}: put @metric(task=…) above that function")
        return given
    if name not in names():
        raise unknown("metric", name, names())
    return getattr(importlib.import_module(f"{__name__}.{name}"), name)
