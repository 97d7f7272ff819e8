"""This suite's worker, on METIS clients with FED-PUB's backbone and schedule: `python -m …our_worker FD`."""

import warnings
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from fedsub.benchmark.studies.clients import write_clients
from fedsub.benchmark.studies.handover import Run, serve, timed
from fedsub.datasets.federation import Federation, federate
from fedsub.datasets.graph import BETA_NOTICE, largest_component, row_normalised
from fedsub.datasets.options import OptionValue
from fedsub.datasets.partition import partition
from fedsub.datasets.registry import load
from fedsub.datasets.splits import make_split
from fedsub.methods.core import registry
from fedsub.methods.core.base import Architecture, FederatedMethod, Schedule
from fedsub.methods.core.setting import make_setting
from fedsub.methods.core.training import end_round, start_round
from fedsub.methods.stacked.memory import keep_freed_memory
from fedsub.methods.tasks import Evaluation

SPLIT = "ratio-per-client[train=0.2,validation=0.4,test=0.4]"
"""Drawn within each client, so that none of a hundred clients lacks training or test nodes."""


def make_federation(name: str, clients: int) -> Federation:
    """Return METIS clients of the graph's largest component, with row-normalised features.

    Raises UserError if the graph cannot be loaded.
    """
    dataset = row_normalised(largest_component(load(name)))
    parts = partition(dataset, "metis", clients, seed=0)
    split = make_split(dataset.labels, parts, SPLIT, 0, dataset.classes)
    return federate(dataset, parts, split)


def make_method(
    federation: Federation,
    name: str = "fedavg",
    architecture: Architecture | None = None,
    schedule: Schedule | None = None,
    seed: int = 0,
    **options: OptionValue,
) -> FederatedMethod:
    """Make a method on these clients, by default with FED-PUB's backbone and schedule."""
    setting = make_setting(federation, architecture, schedule, seed, merged=registry.describe(name).merged)
    return registry.create(name, options, setting)


def one_round(method: FederatedMethod) -> Callable[[], Evaluation]:
    """Make a function that runs the next round (local epochs, evaluation, exchange) and returns its score."""
    numbers = count(1)

    def run() -> Evaluation:
        start_round(method, next(numbers))
        found = method.setting.scoring.evaluate(method.predict())
        end_round(method)
        return found

    return run


def prepare(task: dict[str, Any]) -> tuple[dict[str, Any], Run]:
    """Make the clients, write them to a file for the peer, and build the method."""
    warnings.filterwarnings("ignore", message=BETA_NOTICE, category=UserWarning)
    # As in the benchmark's runner.
    keep_freed_memory()
    federation = make_federation(task["dataset"], task["clients"])
    architecture, schedule = Architecture(**task["architecture"]), Schedule(**task["schedule"])
    method = make_method(federation, task["method"], architecture, schedule, task["seed"], **task["options"])
    method.build()
    step = one_round(method)
    counts = write_clients(federation, Path(task["exchange"]))
    return {"counts": counts}, lambda command: {"seconds": timed(step, command["rounds"])}


if __name__ == "__main__":
    serve(prepare)
