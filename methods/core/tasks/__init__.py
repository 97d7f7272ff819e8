"""The tasks by name; a run's tasks are made before its method."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

from fedsub.datasets.errors import unknown
from fedsub.datasets.options import Spec
from fedsub.datasets.paths import PLUGIN
from fedsub.methods.core import metrics
from fedsub.methods.core.tasks.base import Task
from fedsub.methods.core.tasks.link_prediction import LinkPrediction
from fedsub.methods.core.tasks.node_classification import NodeClassification

TASKS = MappingProxyType({kind.name: kind for kind in (NodeClassification, LinkPrediction)})


def find(name: str) -> type[Task]:
    """The task of this name. Raises UserError with the nearest names."""
    if name not in TASKS:
        raise unknown("task", name, TASKS)
    return TASKS[name]


def check(task: str | Spec) -> None:
    """Raises UserError for an unknown task and for options that it cannot take."""
    spec = Spec.of(task)
    find(spec.name).check(spec)


def check_metric(task: str | Spec, name: str) -> None:
    """Raises UserError for a metric that does not exist or scores another task."""
    find(Spec.of(task).name).metrics_with([name])


def further_metrics(task: str | Spec, wanted: Iterable[str]) -> tuple[str, ...]:
    """Those of the names `wanted` that are metrics of the task beside its default ones, in their order; a
    file is taken to be one and is not read."""
    kind = find(Spec.of(task).name)
    known = {name for name in metrics.names() if kind.name in metrics.find(name).tasks} - {*kind.default}
    return tuple(name for name in dict.fromkeys(wanted) if name in known or name.endswith(PLUGIN))
