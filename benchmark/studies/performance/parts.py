"""`--performance [PART]` and `--peers`: what each part of the performance page measures."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from fedsub.benchmark.analysis.measurements import Measurements
from fedsub.benchmark.cli.arguments import Arguments
from fedsub.benchmark.report.performance import write_performance_page
from fedsub.benchmark.studies.authors.checkout import version_of
from fedsub.benchmark.studies.peers import both, grid, interleaved, trained
from fedsub.benchmark.studies.peers.pipe import one_line
from fedsub.benchmark.studies.performance import roofline
from fedsub.benchmark.studies.subjects import prepare_process
from fedsub.datasets.errors import unknown

Measures = dict[str, Callable[[], Mapping[str, Any]]]
"""By the key of the record."""


def measure(arguments: Arguments) -> Path:
    """Take the measurements that are missing, all of them with `--rerun`, and write the page; its path.

    Raises UserError for an unknown part, and where the peer is not installed.
    """
    chosen = _chosen(arguments)
    try:
        for name in chosen:
            kept = Measurements(arguments.results, name)
            for record in kept.missing(PARTS[name](arguments), arguments.rerun):
                print(f"  {record.get('error', 'done')}", file=sys.stderr)
    finally:
        # An interrupted run shows on its page what it measured.
        path = write_performance_page(arguments.results)
    return path


def missing(arguments: Arguments) -> list[str]:
    """A line on each measurement that `measure` would take. Raises UserError for an unknown part."""
    return [
        f"{name}: {key}"
        for name in _chosen(arguments)
        for key in Measurements(arguments.results, name).lacking(PARTS[name](arguments), arguments.rerun)
    ]


def _chosen(arguments: Arguments) -> tuple[str, ...]:
    chosen = arguments.performance or tuple(PARTS)
    for name in chosen:
        if name not in PARTS:
            raise unknown("part of the performance page", name, PARTS)
    return chosen


def in_fresh_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """What `function(*arguments)` returns in a new process with one thread; raises what it raises.

    Raises BrokenProcessPool if the process dies.
    """
    with ProcessPoolExecutor(1, get_context("spawn"), prepare_process) as pool:
        return pool.submit(function, *arguments).result()


def _roofline(arguments: Arguments) -> Measures:
    # Measured anew in every run of this part: same machine, same run.
    ceilings = cache(partial(in_fresh_process, roofline.measure_ceilings))

    def one(dataset: str, clients: int) -> Mapping[str, Any]:
        try:
            found: Mapping[str, Any] = in_fresh_process(roofline.measure_round, dataset, clients, ceilings())
        except Exception as error:
            return {"status": "ours failed", "error": one_line(error)}
        return found

    return {
        f"{dataset} {clients}": partial(one, dataset, clients)
        for dataset in roofline.DATASETS
        if not arguments.dataset or dataset in arguments.dataset
        for clients in arguments.clients or grid.CLIENTS
    }


@dataclass(frozen=True)
class _Peers:
    """Where the peers are; looked for when the first comparison needs them."""

    arguments: Arguments

    @cached_property
    def python(self) -> Path:
        return both.peer_python(self.arguments.peer_python)

    @cached_property
    def checkout(self) -> Path | None:
        return both.peer_checkout(self.arguments.peer_checkout)

    def cells(self, datasets: Sequence[str], clients: Sequence[int]) -> list[grid.PeerCell]:
        """The comparisons; with FedGB where a checkout is named."""
        peers = (grid.OPENFGL, grid.FEDGB) if self.checkout else (grid.OPENFGL,)
        return list(grid.plan(datasets, self.arguments.method, clients, peers))

    def record(self, cell: grid.PeerCell, compare: Callable[..., dict[str, Any]]) -> Mapping[str, Any]:
        """What `compare` tells of an interpreter and a checkout or None, and the checkout's commit."""
        if self.checkout is None or cell.pairing.peer is grid.OPENFGL:
            return compare(self.python, None)
        found = compare(self.python, self.checkout)
        return {**found, "versions": {"FedGB": version_of(self.checkout), **found.get("versions", {})}}


def _peers(arguments: Arguments) -> Measures:
    peers, limits = _Peers(arguments), interleaved.Limits(pairs=arguments.pairs)

    def one(cell: grid.PeerCell) -> Mapping[str, Any]:
        return peers.record(
            cell, lambda python, checkout: interleaved.compare(cell, python, limits, checkout)
        )

    return {cell.key: partial(one, cell) for cell in peers.cells(arguments.dataset, arguments.clients)}


def _trained(arguments: Arguments) -> Measures:
    peers = _Peers(arguments)

    def one(training: trained.Training) -> Mapping[str, Any]:
        return peers.record(training.cell, lambda python, checkout: trained.train(training, python, checkout))

    cells = peers.cells(arguments.dataset or trained.DATASETS, arguments.clients or trained.CLIENTS)
    # Seed by seed: who stops early has as much of every method.
    trainings = [trained.Training(cell, seed) for seed in range(trained.SEEDS) for cell in cells]
    return {training.key: partial(one, training) for training in trainings}


PARTS: Mapping[str, Callable[[Arguments], Measures]] = {
    "roofline": _roofline,
    "peers": _peers,
    "trained": _trained,
}
"""In the order of a whole run."""
