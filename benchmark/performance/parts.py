"""`--performance [PART]` and `--peers`: what each part of the performance page measures."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmark.arguments import Arguments
from benchmark.authors.checkout import version_of
from benchmark.peers import grid, interleaved
from benchmark.peers.pipe import one_line
from benchmark.performance import roofline
from benchmark.performance.measurements import Measurements
from benchmark.performance.page import write_performance_page
from benchmark.subjects import prepare_process
from datasets.errors import unknown

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
        for clients in arguments.clients or roofline.CLIENTS
    }


def _peers(arguments: Arguments) -> Measures:
    # Looked for when the first comparison needs it.
    python = cache(partial(interleaved.peer_python, arguments.peer_python))
    limits = interleaved.Limits(pairs=arguments.pairs)
    checkout = interleaved.peer_checkout(arguments.peer_checkout)
    peers = (grid.OPENFGL, grid.FEDGB) if checkout else (grid.OPENFGL,)

    def one(cell: grid.PeerCell) -> Mapping[str, Any]:
        if checkout is None or cell.pairing.peer is grid.OPENFGL:
            return interleaved.compare(cell, python(), limits)
        record = interleaved.compare(cell, python(), limits, checkout)
        return {**record, "versions": {"FedGB": version_of(checkout), **record.get("versions", {})}}

    cells = grid.plan(arguments.dataset, arguments.method, arguments.clients, peers)
    return {cell.key: partial(one, cell) for cell in cells}


PARTS: Mapping[str, Callable[[Arguments], Measures]] = {"roofline": _roofline, "peers": _peers}
"""In the order of a whole run."""
