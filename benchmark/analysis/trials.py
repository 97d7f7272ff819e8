"""The trials of searches as rows: what each set, what it gave, and which settings mattered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedsub.benchmark.records.search import Standing, block_of
from fedsub.benchmark.spec.space import changes
from fedsub.datasets.errors import UserError
from fedsub.datasets.options import format_value

if TYPE_CHECKING:
    import pandas

BLOCK = ("dataset", "partition", "clients")
SCORES = ("first", "validation", "test")
COLUMNS = (*BLOCK, "trial", "method", *SCORES, "best", "error")
"""Of a row, beside its settings."""


@dataclass(frozen=True)
class Outcome:
    """A search that was run."""

    standing: Standing

    @property
    def place(self) -> dict[str, Any]:
        """Graph and clients."""
        return dict(zip(BLOCK, block_of(self.standing.search.base), strict=True))

    @property
    def method(self) -> str:
        """The method with the options that were not tuned."""
        return self.standing.search.base.variant

    @property
    def title(self) -> str:
        """The method and where it was tuned."""
        return "{} on {dataset}, {partition}, {clients} clients".format(self.method, **self.place)

    @property
    def left_out(self) -> int:
        """Trials that did not fit into the cap."""
        return len(self.standing.left_out)

    @property
    def best(self) -> dict[str, Any]:
        """Keywords of `run` for the best trial: `method` with its options, and the settings found."""
        search = self.standing.search
        method, settings = changes(search.base, search.trials[self.standing.best])
        return {"method": method, **settings}

    def command(self, settings: Sequence[str] = ()) -> str:
        """The command that runs the best trial, under the `settings` that all trials had."""
        best = self.best
        method = best.pop("method")
        given = " ".join(("", *settings, *(f"{name}={text(value)}" for name, value in best.items())))
        place = " ".join(f"--{name} '{value}'" for name, value in self.place.items())
        return f"fedsub run {place} --method '{method}'{' --set' * bool(given.strip())}{given}"

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row a trial: the method with its options as `--method` takes it; the settings that differ from
        the defaults; validation score of the first rung and mean validation and test scores of all rounds,
        in percent, None where it did not get so far; whether it is the best; why it failed."""
        standing, search, found = self.standing, self.standing.search, []
        for number, cell in enumerate(search.trials):
            method, settings = changes(search.base, cell)
            first = standing.short.get(number)
            scores = (first and first.validation, standing.validation.get(number), standing.test.get(number))
            row = {**self.place, "trial": number, "method": method, **settings}
            row |= dict(zip(SCORES, scores, strict=True))
            found.append({**row, "best": number == standing.best, "error": (first and first.error) or ""})
        return found


@dataclass(frozen=True)
class Trials:
    """What `tune` returns: one outcome for each method on each graph and clients."""

    outcomes: tuple[Outcome, ...]

    def best(self, method: str = "", dataset: str = "", partition: str = "") -> dict[str, Any]:
        """Keywords of `run` for the best trial: `method` with its options, and the settings found.

        Raises UserError unless the arguments, of which each may be left out, name exactly one search.
        """
        wanted = {"method": method, "dataset": dataset, "partition": partition}
        found = [
            each
            for each in self.outcomes
            if all(
                {"method": each.method, **each.place}[name] == value
                for name, value in wanted.items()
                if value
            )
        ]
        if len(found) != 1:
            raise UserError(
                f"{len(found)} searches match: name one of {'; '.join(each.title for each in self.outcomes)}"
            )
        return found[0].best

    def frame(self) -> pandas.DataFrame:
        """One row a trial, as in `Outcome.rows`."""
        import pandas

        return pandas.DataFrame([row for each in self.outcomes for row in each.rows])


def text(value: Any) -> str:
    """A setting's value as `--set` takes it."""
    return "+".join(map(str, value)) if isinstance(value, tuple) else format_value(value)
