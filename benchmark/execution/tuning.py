"""Searches run: both rungs, each method on each block within the same cap of core-seconds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from fedsub.benchmark.execution.queue import Wanted
from fedsub.benchmark.execution.run import execute
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.records.search import RUNG, Block, Search, Standing, block_of
from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.plan import Plan, Skip, make_plan
from fedsub.benchmark.spec.request import Request
from fedsub.benchmark.spec.space import TRIALS
from fedsub.datasets.options import Spec
from fedsub.datasets.plugins import user_objects

CAP = 100.0
"""Core-seconds that a method has for its search on a block, in those of FedAvg's defaults there."""
REFERENCE = "fedavg"


@dataclass(frozen=True)
class Tuned:
    """Searches, and what limited them."""

    searches: tuple[Search, ...]
    skipped: tuple[Skip, ...]
    """What cannot be run."""
    caps: Mapping[Block, float]
    """Core-seconds of a method's search; infinite without a cap."""
    records: Records


def plan_searches(
    request: Request, trials: int = TRIALS, digests: Mapping[tuple[str, str], str] | None = None
) -> tuple[list[Search], list[Cell], tuple[Skip, ...]]:
    """The searches that a request asks for, the reference's cell on each block, and what cannot be run.

    Settings of the request, and options in a method's brackets, are not tuned. Raises UserError as
    `make_plan` does.
    """
    request = replace(request, seeds=(0,))
    plan = make_plan(request, digests)
    named = {text.partition("=")[0].strip() for text in request.settings}
    searches = [Search.of(cell, trials, {*named, *Spec(cell.variant).options}) for cell in plan.cells]
    blocks = {block_of(cell) for cell in plan.cells}
    others = make_plan(replace(request, method=(REFERENCE,), backbone=()), digests).cells
    references = {block_of(cell): Search.of(cell, 1).full(0)[0] for cell in others}
    return searches, [cell for block, cell in references.items() if block in blocks], plan.skipped


def tune(request: Request, trials: int = TRIALS, cap: float = CAP, digests: Any = None, **how: Any) -> Tuned:
    """Run the searches that a request asks for. `cap` 0 sets none; `how` are further arguments of `execute`.

    A trial begins as long as its method has core-seconds left on the block: a third of the cap in the first
    rung, all of it in the second. Trial 0 always runs in the first. Raises UserError as `execute` does.
    """
    with user_objects(how.get("objects") or {}):
        searches, references, skipped = plan_searches(request, trials, digests)
    return run_searches(request, searches, references, skipped, cap, **how)


def run_searches(
    request: Request,
    searches: Sequence[Search],
    references: Sequence[Cell],
    skipped: tuple[Skip, ...],
    cap: float,
    **how: Any,
) -> Tuned:
    """Run these searches. See `tune`."""

    def run(cells: Iterable[Cell], wanted: Wanted | None = None) -> Records:
        return execute(request, plan=Plan(tuple(cells), ()), wanted=wanted, **how).stored

    records = run(references) if cap else Records(request.results)
    caps = {block_of(search.base): math.inf for search in searches}
    for cell in references:
        if cap and (record := records.get(cell)) is not None and record.core_seconds:
            caps[block_of(cell)] = cap * sum(record.core_seconds.values())

    # Trial by trial, so that a run that is cut short has begun all searches alike.
    first = {
        trial.key: search for search in searches for trial in map(search.short, range(len(search.trials)))
    }
    always = {search.short(0).key for search in searches}
    records = run(
        _in_turn([search.short(number) for number in range(len(search.trials))] for search in searches),
        lambda cell, now: (
            cell.key in always or Standing(first[cell.key], now).first_seconds < caps[block_of(cell)] / RUNG
        ),
    )
    going_on = [
        (search, [cell for number in Standing(search, records).promoted for cell in search.full(number)])
        for search in searches
    ]
    second = {cell.key: search for search, cells in going_on for cell in cells}
    if second:
        records = run(
            _in_turn(cells for _, cells in going_on),
            lambda cell, now: Standing(second[cell.key], now).seconds < caps[block_of(cell)],
        )
    return Tuned(tuple(searches), skipped, caps, records)


def _in_turn(lists: Iterable[Sequence[Cell]]) -> Iterator[Cell]:
    """The first of every list, then the second of every list, and so on."""
    for row in zip_longest(*lists):
        yield from (cell for cell in row if cell is not None)
