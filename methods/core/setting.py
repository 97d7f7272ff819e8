"""The setting of a method: clients, task, network and schedule."""

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

from fedsub.datasets.federation import Federation
from fedsub.datasets.options import Spec
from fedsub.methods import tasks
from fedsub.methods.core.schedule import Schedule
from fedsub.methods.stacked.architecture import Architecture
from fedsub.methods.tasks import Task


@dataclass(frozen=True, eq=False)
class Setting:
    """Everything a method is given; `make_setting` makes one."""

    federation: Federation
    """The data that the method sees: the clients, or all of them merged into one."""
    task: Task
    """The task for training, on the federation's nodes."""
    scoring: Task
    """The task for scoring, on the clients' nodes."""
    rows: Tensor | None
    """(n,) the federation's row of each of the clients' nodes; None: the rows are the same."""
    architecture: Architecture
    schedule: Schedule
    seed: int
    kernel: str
    device: str


def make_setting(
    federation: Federation,
    architecture: Architecture | None = None,
    schedule: Schedule | None = None,
    seed: int = 0,
    *,
    task: str | Spec = tasks.NodeClassification.name,
    metrics: Iterable[str] = (),
    merged: bool = False,
    data_seed: int | None = None,
    kernel: str = "auto",
    device: str = "cpu",
) -> Setting:
    """Make the setting of a task on these clients, scored by its own metrics and by `metrics`.

    `merged` is the method's `MethodInfo.merged`; `data_seed` draws held-out edges (None: `seed`).
    Raises UserError for an unknown task or metric, and for options that the task cannot take.
    """
    spec = Spec.of(task)
    kind = tasks.find(spec.name)
    data = kind.hold_out(federation, spec, seed if data_seed is None else data_seed)
    learned = scoring = kind(data, seed, device)
    rows = None
    if merged:
        whole, rows = kind.merge(data, seed)
        learned, rows = kind(whole, seed, device), rows.to(device)
    network, timetable = architecture or Architecture(), schedule or Schedule()
    scoring.metrics = kind.metrics_with(metrics, timetable.selection_metric)
    return Setting(learned.federation, learned, scoring, rows, network, timetable, seed, kernel, device)
