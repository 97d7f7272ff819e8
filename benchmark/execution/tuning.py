"""Running searches: both rungs, with the same cap of core-seconds for every method on a block."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, zip_longest
from typing import Any

from fedsub.benchmark.execution.engines.base import Wanted
from fedsub.benchmark.execution.run import execute
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.records.search import Search, Standing, fixed_in
from fedsub.benchmark.spec.catalog import FEDAVG
from fedsub.benchmark.spec.cell import Block, Cell
from fedsub.benchmark.spec.plan import Plan, Skip, make_plan
from fedsub.benchmark.spec.request import Request
from fedsub.benchmark.spec.space import asked_cell
from fedsub.datasets.errors import UserError
from fedsub.datasets.extras import needed
from fedsub.datasets.plugins import user_objects

FIRST = 0.5
"""Share of the cap that the first rung may use."""


@dataclass(frozen=True)
class Tuned:
    """Searches that were run, with their records."""

    searches: Sequence[Search]
    records: Records
    caps: Mapping[Block, float]
    """Block → maximum core-seconds of a method's search there; infinite without a cap."""


def plan_searches(
    request: Request, digests: Mapping[tuple[str, str], str] | None = None
) -> tuple[list[Search], list[Cell], tuple[Skip, ...]]:
    """Return a request's searches, the cell of FEDAVG on each block, and what cannot be run.

    Raises UserError as `make_plan` does.
    """
    request = replace(request, seeds=(0,))
    plan = make_plan(request, digests)
    searches = [Search.asked(request, cell) for cell in plan.cells]
    blocks = {cell.block for cell in plan.cells}
    # On all backbones, as a setting may have an effect with some only; the first one counts.
    others = make_plan(replace(request, method=(FEDAVG,), shard=None), digests).cells
    references = {cell.block: Search.of(cell, 1).full(0)[0] for cell in reversed(others)}
    return searches, [cell for block, cell in references.items() if block in blocks], plan.skipped


def tune(request: Request, digests: Any = None, sampler: Any = None, **how: Any) -> Tuned:
    """Run the searches of a request. `how` are further arguments of `execute`.

    A trial starts while its method has core-seconds left on the block: half of the cap in the first rung, the
    whole cap in the second. Trial 0 always runs in the first rung. An Optuna `sampler` chooses each further
    trial when it knows the scores of the trials before. Raises UserError as `execute` does.
    """
    with user_objects(how.get("objects") or {}):
        searches, references, skipped = plan_searches(request, digests)
        for skip in skipped:
            how["warn"](f"skipped {skip.what}: {skip.reason}")
        return run_searches(request, searches, references, sampler, **how)


def run_searches(
    request: Request, searches: Sequence[Search], references: Sequence[Cell], sampler: Any = None, **how: Any
) -> Tuned:
    """Run these searches; see `tune`."""

    def run(cells: Iterable[Cell], wanted: Wanted | None = None) -> Records:
        limited = wanted if request.cap else None
        return execute(request, plan=Plan(tuple(cells), ()), wanted=limited, **how).stored

    records = run(references) if request.cap else Records(request.results)
    caps = {search.base.block: math.inf for search in searches}
    for cell in references:
        if request.cap and (record := records.get(cell)) is not None:
            caps[cell.block] = request.cap * sum(record.core_seconds.values())
            if record.error:
                said = f"the run that sets the cap failed: {record.error}"
                how["warn"](
                    f"{cell.title}: {said}; each method has one trial; --cap 0 searches without a cap"
                )

    def run_first(searches: Sequence[Search], begin: int = 0) -> Records:
        # One trial of every search at a time, so that an interrupted run has advanced all searches equally.
        first = {cell.key: each for each in searches for cell in map(each.short, range(len(each.trials)))}
        always = {each.short(0).key for each in searches}
        return run(
            _in_turn(map(each.short, range(begin, len(each.trials))) for each in searches),
            lambda cell, now: (
                cell.key in always or Standing(first[cell.key], now).first_seconds < FIRST * caps[cell.block]
            ),
        )

    if sampler is not None:
        searches = _chosen_by(sampler, request, searches, run_first)
    records = run_first(searches)
    going_on = [
        [cell for number in Standing(each, records).promoted for cell in each.full(number)]
        for each in searches
    ]
    second = {cell.key: each for each, cells in zip(searches, going_on, strict=True) for cell in cells}
    if second:
        records = run(
            _in_turn(going_on),
            lambda cell, now: Standing(second[cell.key], now).seconds < caps[cell.block],
        )
    # The graph of a search without a record is missing.
    return Tuned([each for each in searches if Standing(each, records).short], records, caps)


def _chosen_by(
    sampler: Any,
    request: Request,
    searches: Sequence[Search],
    run: Callable[[Sequence[Search], int], Records],
) -> list[Search]:
    """Return the searches with trials chosen by copies of an Optuna sampler, one trial at a time in each.

    Raises UserError for a sampler that is not Optuna's.
    """
    optuna = needed("optuna", "optuna", "sampler")
    if not isinstance(sampler, optuna.samplers.BaseSampler):
        raise UserError(f"sampler must be Optuna's, as optuna.samplers.TPESampler() is, not {sampler!r}")
    studies = [optuna.create_study(direction="maximize", sampler=deepcopy(sampler)) for _ in searches]
    found = [Search(each.trials[:1]) for each in searches]
    for number in range(1, request.trials):
        points = [study.ask() for study in studies]
        for place, (each, point) in enumerate(zip(found, points, strict=True)):
            share_of = partial(point.suggest_float, low=0.0, high=math.nextafter(1.0, 0.0))
            cell = asked_cell(each.base, share_of, fixed_in(request, each.base))
            found[place] = Search((*each.trials, cell))
        # A failed trial is not repeated for each later one.
        records = run(found, number if number > 1 else 0)
        for each, study, point in zip(found, studies, points, strict=True):
            record = records.get(each.short(number))
            score = None if record is None else record.validation
            study.tell(point, score, None if score is not None else optuna.trial.TrialState.FAIL)
    return found


def _in_turn(lists: Iterable[Iterable[Cell]]) -> Iterator[Cell]:
    """Return the first cell of every list, then the second of every list, and so on."""
    return filter(None, chain.from_iterable(zip_longest(*lists)))
