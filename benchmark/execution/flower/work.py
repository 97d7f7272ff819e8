"""Run of a cell as a federation through Flower, and its record."""

from __future__ import annotations

import time

from fedsub.benchmark.execution.flower import loopback
from fedsub.benchmark.execution.runner import attempt, make_clients, names_in, record_of
from fedsub.benchmark.records.record import Record
from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.custom import check_unchanged, user_objects_of
from fedsub.datasets.partition.statistics import describe
from fedsub.datasets.plugins import user_objects
from fedsub.methods.core import registry
from fedsub.methods.core.setting import make_setting
from fedsub.methods.core.training import Outcome


def run(cell: Cell) -> Record:
    """Run a cell with processes for clients and server; returns its record.

    Raises UserError if the cell cannot run as a federation.
    """
    with user_objects(user_objects_of(cell)):
        started = time.perf_counter()
        dataset, partition, federation = make_clients(cell)
        statistics = describe(dataset, partition).to_dict()
        setup = time.perf_counter() - started
        check_unchanged(cell)
        outcome = Outcome(**loopback.run(cell, federation))
        method = registry.create(cell.method, dict(cell.options), make_setting(federation))
        privacy = method.info.privacy_of(method.options)
        extras = {"engine": "flower", **names_in(partition)}
        return record_of(cell, outcome, dataset, statistics, setup, None, privacy, extras)


def federated(cell: Cell) -> Record:
    """Call `run` and turn any exception into a failed record."""
    return attempt(cell, run)
