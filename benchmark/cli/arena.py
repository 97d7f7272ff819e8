"""`fedsub arena`: tune every method on every block, compare on fresh draws, write the page."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fedsub.benchmark.analysis.arena import Arena
from fedsub.benchmark.analysis.ranking import FEDAVG, LOCAL
from fedsub.benchmark.execution.engines import RunCell
from fedsub.benchmark.execution.run import execute
from fedsub.benchmark.execution.tuning import CAP, plan_searches, run_searches
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.records.search import Block, Search, Standing, block_of
from fedsub.benchmark.report.arena import write_arena
from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.plan import Plan
from fedsub.benchmark.spec.protocol import ARENA, load_protocol
from fedsub.benchmark.spec.request import Request
from fedsub.benchmark.spec.space import TRIALS
from fedsub.datasets.errors import UserError

TABLE = str(ARENA)
REFERENCES = (LOCAL, FEDAVG)


def run_arena(request: Request, options: Namespace, work: RunCell | None) -> int:
    """Run what is missing, for as long as asked, and write the pages; returns the exit code."""
    request = replace(request, table=(TABLE,))
    listed = load_protocol(TABLE).grid["method"]
    added = [name for name in request.method if name not in listed]
    asked = (*REFERENCES, *(name for name in request.method if name not in REFERENCES))
    trials = options.trials or TRIALS
    wanted = replace(request, method=asked if request.method else ())
    searches, references, skipped = plan_searches(wanted, trials)
    for skip in skipped:
        _say(f"skipped {skip.what}: {skip.reason}")
    if options.hours > 0:
        until = time.monotonic() + 3600 * options.hours
        for block in _blocks(request, searches):
            if time.monotonic() >= until:
                break
            here = [search for search in searches if block_of(search.base) == block]
            reference = [cell for cell in references if block_of(cell) == block]
            _run_block(request, here, reference, options.cap, until, work)
    if request.method:
        # The page shows every method that has records, also those that were not asked for.
        shown = replace(request, method=(*listed, *added))
        searches, _, _ = plan_searches(shown, trials)
    try:
        arena = Arena(searches, Records(request.results))
    except ValueError as error:
        raise UserError(f"{error}; give the arena more --hours") from error
    smaller = _smaller(request, arena, trials, options.cap)
    for path in write_arena(request.results, arena, trials, options.cap, smaller):
        print(path)
    return 0


def _run_block(
    request: Request,
    searches: Sequence[Search],
    references: Sequence[Cell],
    cap: float,
    until: float,
    work: RunCell | None,
) -> None:
    """Both rungs on a block, then the final runs of what was found and of the defaults."""
    how: dict[str, Any] = {"until": until, "work": work, "warn": _say, "inform": _say}
    tuned = run_searches(request, searches, references, (), cap, **how)
    finals = [
        cell
        for search in searches
        for number in dict.fromkeys((Standing(search, tuned.records).best, 0))
        for cell in search.final(number)
    ]
    if time.monotonic() < until:
        execute(request, plan=Plan(tuple(finals), ()), **how)


def _blocks(request: Request, searches: Sequence[Search]) -> list[Block]:
    """The blocks to run, one of each graph first. Where methods are added, and no graph is named, those on
    which the arena has run."""
    order = list(dict.fromkeys(block_of(search.base) for search in searches))
    partitions = list(dict.fromkeys(partition for _, partition, _ in order))
    order.sort(key=lambda block: partitions.index(block[1]))
    if request.method and not request.dataset:
        records = Records(request.results)
        local = [search for search in searches if search.base.method == LOCAL]
        had = {block_of(each.base) for each in local if all(map(records.done, each.final(0)))}
        order = [block for block in order if block in had] or order
    return order


def _smaller(request: Request, arena: Arena, trials: int, cap: float) -> list[str]:
    """In what the arena is less than the whole one."""
    protocol = load_protocol(TABLE)
    blocks = len(protocol.grid["dataset"]) * len(protocol.grid["partition"])
    methods = len({*protocol.grid["method"]} & {*arena.methods})
    said = []
    if len(arena.blocks) < blocks:
        said.append(f"{len(arena.blocks)} of {blocks} blocks")
    if methods < len(protocol.grid["method"]):
        said.append(f"{methods} of {len(protocol.grid['method'])} methods")
    if (trials, cap) != (TRIALS, CAP):
        said.append(f"{trials} trials within {cap:g} times FedAvg's seconds, not {TRIALS} within {CAP:g}")
    return [*said, *request.settings]


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr)
