"""`fedsub arena`: tune every method on every block, compare on fresh draws, write the page."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fedsub.benchmark.analysis.ranking import FEDAVG, LOCAL
from fedsub.benchmark.execution.engines import RunCell
from fedsub.benchmark.execution.run import execute
from fedsub.benchmark.execution.tuning import plan_searches, run_searches
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.records.search import Block, Search, block_of
from fedsub.benchmark.report.arena import write_arena
from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.plan import Plan
from fedsub.benchmark.spec.protocol import ARENA
from fedsub.benchmark.spec.request import Request
from fedsub.benchmark.spec.space import TRIALS
from fedsub.datasets.errors import UserError

REFERENCES = (LOCAL, FEDAVG)


def run_arena(request: Request, options: Namespace, work: RunCell | None) -> int:
    """Run what is missing, for as long as asked, and write the pages; returns the exit code."""
    request = replace(request, table=(str(ARENA),))
    asked = tuple(dict.fromkeys((*REFERENCES, *request.method))) if request.method else ()
    trials = options.trials or TRIALS
    searches, references, skipped = plan_searches(replace(request, method=asked), trials)
    for skip in skipped:
        _say(f"skipped {skip.what}: {skip.reason}")
    until = time.monotonic() + 3600 * options.hours
    for block in _blocks(request, searches):
        if time.monotonic() < until:
            here = [search for search in searches if block_of(search.base) == block]
            reference = [cell for cell in references if block_of(cell) == block]
            _run_block(request, here, reference, options.cap, until=until, work=work)
    if not (pages := write_arena(request, searches, asked, trials, options.cap)):
        raise UserError("no block is finished: give the arena more --hours")
    for path in pages:
        print(path)
    return 0


def _run_block(
    request: Request, searches: Sequence[Search], references: Sequence[Cell], cap: float, **how: Any
) -> None:
    """Both rungs on a block, then the final runs of what was found and of the defaults."""
    how |= {"warn": _say, "inform": _say}
    tuned = run_searches(request, searches, references, cap, **how)
    finals = [
        cell
        for standing in tuned.standings
        for number in dict.fromkeys((standing.best, 0))
        for cell in standing.search.final(number)
    ]
    if time.monotonic() < how["until"]:
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


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr)
