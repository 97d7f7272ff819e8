"""How often the first rung of a search keeps the trial that is best when all are run in full."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

from fedsub.benchmark.analysis.trials import Outcome
from fedsub.benchmark.cli.commands import say
from fedsub.benchmark.execution.engines import RunCell
from fedsub.benchmark.execution.run import execute
from fedsub.benchmark.execution.tuning import plan_searches
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.records.search import Search
from fedsub.benchmark.report.wording import markdown_table
from fedsub.benchmark.spec.plan import Plan
from fedsub.benchmark.spec.request import Request


class _InFull(Outcome):
    """The same search had every trial gone on."""

    @cached_property
    def promoted(self) -> list[int]:
        return [*range(len(self.search.trials))]


@dataclass(frozen=True)
class Kept:
    """One search of which every trial was run in full."""

    title: str
    place: int
    """Of the best trial among all in the first rung, from 1."""
    is_kept: bool
    """Whether it went on."""
    lost: tuple[float, float]
    """Points of validation and of test score by which the trial that the search chose is below it, on the
    draws of the search."""


def judge(search: Search, records: Records) -> Kept | None:
    """What the first rung did to a search; None while a trial has not been run in full."""
    short, full = Outcome(search, records), _InFull(search, records)
    if len(full.validation) < len(search.trials) or len(short.short) < len(search.trials):
        return None
    best, chosen = full.chosen, short.chosen
    order = sorted(short.short, key=lambda number: (-(short.short[number].validation or 0.0), number))
    validation, test = (scores[best] - scores[chosen] for scores in (full.validation, full.test))
    return Kept(short.title, order.index(best) + 1, best in short.promoted, (validation, test))


def run_rungs(request: Request, work: RunCell | None) -> str:
    """Run what is missing of the searches in full; a table, and a sentence on all of them."""
    searches, _, skipped = plan_searches(request)
    for skip in skipped:
        say(f"skipped {skip.what}: {skip.reason}")
    numbers = [(search, number) for search in searches for number in range(len(search.trials))]
    cells = [cell for search, n in numbers for cell in (search.short(n), *search.full(n))]
    records = execute(request, work, plan=Plan(tuple(cells), ()), warn=say, inform=say).stored
    return _told([found for search in searches if (found := judge(search, records)) is not None])


def _told(listed: Sequence[Kept]) -> str:
    if not listed:
        return "No search has every trial in full."
    rows = [
        [each.title, str(each.place), "yes" if each.is_kept else "no", *map("{:.2f}".format, each.lost)]
        for each in listed
    ]
    head = ["search", "place of the best in the first rung", "kept", "validation lost", "test lost"]
    lost = [fmean(each) for each in zip(*(each.lost for each in listed), strict=True)]
    return (
        f"{markdown_table(head, rows)}\n\nThe first rung kept the best of all trials in "
        f"{sum(each.is_kept for each in listed)} of {len(listed)} searches. In the mean {lost[0]:.2f} points "
        f"of validation and {lost[1]:.2f} of test score are lost."
    )
