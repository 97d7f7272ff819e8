"""The trials of searches as rows: what each set, and what it gave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.records.search import Search, Standing
from fedsub.benchmark.spec.space import changes
from fedsub.datasets.errors import UserError
from fedsub.datasets.options import format_value

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Trial:
    """One point of a search."""

    number: int
    method: str
    """With its options, as `--method` takes it."""
    settings: dict[str, Any]
    """Those that differ from the defaults."""
    first: float | None
    """Validation score of the first rung, in percent; None where it failed or was not run."""
    validation: float | None
    """Mean validation score of all rounds; None where the trial did not go on."""
    test: float | None
    """Mean test score beside it."""
    error: str
    """Why it failed in the first rung; empty if it did not."""


@dataclass(frozen=True)
class Outcome:
    """A search that was run."""

    dataset: str
    partition: str
    clients: int
    method: str
    trials: tuple[Trial, ...]
    best: Trial
    left_out: int
    """Trials that did not fit into the cap."""
    seconds: float
    """Core-seconds of all trials."""

    @property
    def title(self) -> str:
        """The method and where it was tuned."""
        return f"{self.method} on {self.dataset}, {self.partition}, {self.clients} clients"

    def command(self, settings: Sequence[str] = ()) -> str:
        """The command that runs the best trial, under the `settings` that all trials had."""
        found = (*settings, *(f"{name}={text(value)}" for name, value in self.best.settings.items()))
        place = f"--dataset '{self.dataset}' --partition '{self.partition}' --clients {self.clients}"
        given = f" --set {' '.join(found)}" if found else ""
        return f"fedsub run {place} --method '{self.best.method}'{given}"


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
            if all(getattr(each, name) == value for name, value in wanted.items() if value)
        ]
        if len(found) != 1:
            raise UserError(
                f"{len(found)} searches match: name one of {'; '.join(each.title for each in self.outcomes)}"
            )
        return {"method": found[0].best.method, **found[0].best.settings}

    def frame(self) -> pandas.DataFrame:
        """One row a trial: where it was, its settings, its scores in percent, and whether it is the best."""
        import pandas

        rows = [
            {
                "dataset": each.dataset,
                "partition": each.partition,
                "clients": each.clients,
                "trial": trial.number,
                "method": trial.method,
                **trial.settings,
                "first": trial.first,
                "validation": trial.validation,
                "test": trial.test,
                "best": trial is each.best,
            }
            for each in self.outcomes
            for trial in each.trials
        ]
        return pandas.DataFrame(rows)


def outcomes_of(searches: Sequence[Search], records: Records) -> Trials:
    """Of every search, by the records at hand."""
    return Trials(tuple(_outcome(Standing(search, records)) for search in searches))


def text(value: Any) -> str:
    """A setting's value as `--set` takes it."""
    return "+".join(map(str, value)) if isinstance(value, tuple) else format_value(value)


def _outcome(standing: Standing) -> Outcome:
    search = standing.search
    trials = tuple(_trial(standing, number) for number in range(len(search.trials)))
    return Outcome(
        search.base.dataset.text,
        search.base.partition.text,
        search.base.clients,
        search.base.variant,
        trials,
        trials[standing.best],
        len(standing.left_out),
        standing.seconds,
    )


def _trial(standing: Standing, number: int) -> Trial:
    search = standing.search
    method, settings = changes(search.base, search.trials[number])
    first = standing.short.get(number)
    return Trial(
        number,
        method,
        settings,
        None if first is None else first.validation,
        standing.validation.get(number),
        standing.test.get(number),
        "" if first is None else first.error or "",
    )
