"""The trials of searches as rows: their settings and scores, and the importance of each setting."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import TYPE_CHECKING, Any

from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.records.search import Search, Standing
from fedsub.benchmark.spec.custom import given_as
from fedsub.benchmark.spec.plan import DEFAULT, protocols_for
from fedsub.benchmark.spec.request import Request
from fedsub.benchmark.spec.space import changes, shared_dimensions
from fedsub.datasets.errors import UserError
from fedsub.datasets.options import format_value

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

BLOCK = ("dataset", "partition", "clients")
SCORES = ("first", "validation", "test")
COLUMNS = (*BLOCK, "trial", "method", *SCORES, "best", "error")
"""Columns of a row besides its settings."""
LEAST_TRIALS = 5
"""Least number of trials for which importance is computed."""
FOLDS = 5
"""Parts into which searches are divided to test a forest on others than those it has seen."""
GAIN = "gain"
"""Validation score of a trial's first rung, minus the mean of its search."""


class Outcome(Standing):
    """A search that was run."""

    def __init__(self, search: Search, records: Records, request: Request | None = None) -> None:
        super().__init__(search, records)
        held, request = search.base.to_dict(), request or Request()
        names = [text.partition("=")[0].strip() for text in request.settings]
        self.given = {name: held[name] for name in [*names, *["backbone"] * bool(request.backbone)]}
        """The settings that the request gives, and its backbone; they are not tuned."""

    @property
    def place(self) -> dict[str, Any]:
        """Dataset, partition and number of clients."""
        return dict(zip(BLOCK, self.search.base.block, strict=True))

    @property
    def method(self) -> str:
        """The method with the options that were not tuned."""
        return self.search.base.variant

    @property
    def title(self) -> str:
        """The method, where it was tuned, and with which settings."""
        given = "".join(f", {name}={text(value)}" for name, value in self.given.items())
        return "{} on {dataset}, {partition}, {clients} clients".format(self.method, **self.place) + given

    @property
    def best(self) -> dict[str, Any]:
        """Keyword arguments of `run` for the best trial: `method` with its options, and settings."""
        base = self.search.base
        method, settings = changes(base, self.search.trials[self.chosen])
        given = {
            name: given_as(name, value, base) if isinstance(value, str) else value
            for name, value in self.given.items()
        }
        return {"method": given_as("method", method, base), **given, **settings}

    def command(self, request: Request) -> str:
        """Return the command that runs the best trial of a search of the request."""
        base, best = self.search.base, self.best
        place = {**self.place, "method": best.pop("method"), "backbone": base.architecture.backbone}
        tables = request.table or [each.name for each in protocols_for(request) if each.name != DEFAULT]
        given = [("table", each) for each in tables]
        given += [(axis, given_as(axis, str(value), base)) for axis, value in place.items()]
        best.pop("backbone", None)
        words = " ".join(f"--{name} {shlex.quote(value)}" for name, value in given)
        settings = [f"{name}={text(value)}" for name, value in best.items()]
        return f"fedsub run {words}{' --set' * bool(settings)} {shlex.join(settings)}".rstrip()

    @cached_property
    def points(self) -> list[dict[str, Any]]:
        """One row per trial with a score of the first rung: GAIN, and every setting and option that was
        tuned, with `hidden` as `width` and `layers`."""
        shared = {each.name: each.part for each in shared_dimensions()}
        own = sorted({name for cell in self.search.trials for name, _ in cell.options})
        scored = [record for record in self.short.values() if record.validation is not None]
        mean = fmean([record.validation or 0.0 for record in scored] or [0.0])
        found = []
        for record in scored:
            values = {name: getattr(getattr(record.cell, part), name) for name, part in shared.items()}
            values |= {f"{self.method}.{name}": record.options.get(name) for name in own}
            widths, gain = values.pop("hidden"), (record.validation or 0.0) - mean
            found.append({**values, "width": widths[0], "layers": len(widths), GAIN: gain})
        return found

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row per trial: the method with its options as `--method` takes it; the settings that differ
        from the defaults; the validation score of the first rung and the mean validation and test scores of
        the full runs, in percent (None if it did not get so far); whether it is the best; why it failed."""
        found = []
        for number, cell in enumerate(self.search.trials):
            method, settings = changes(self.search.base, cell)
            first = self.short.get(number)
            second = (self.validation[number], self.test[number]) if number in self.full else (None, None)
            scores = (first and first.validation, *second)
            row = {**self.place, "trial": number, "method": method, **self.given, **settings}
            row |= dict(zip(SCORES, scores, strict=True))
            found.append({**row, "best": number == self.chosen, "error": (first and first.error) or ""})
        return found


@dataclass(frozen=True, repr=False)
class Trials:
    """Result of `tune`: one outcome for each method on each block."""

    outcomes: tuple[Outcome, ...]

    def __repr__(self) -> str:
        """The best trial of each search, a line each."""
        best = self.frame().query("best").drop(columns=["best", "error"]).dropna(axis="columns", how="all")
        return str(best.to_string(index=False))

    def best(
        self, method: str = "", dataset: str = "", partition: str = "", clients: int = 0, **settings: Any
    ) -> dict[str, Any]:
        """Return keyword arguments of `run` for the best trial: `method` with its options, and settings,
        including those given to `tune`, by which `settings` select.

        Raises UserError unless the arguments, of which each may be left out, match exactly one search.
        """
        given = {"method": method, "dataset": dataset, "partition": partition, "clients": clients}
        chosen = {name: value for name, value in given.items() if value} | settings
        wanted = {name: text(value) for name, value in chosen.items()}
        found = []
        for each in self.outcomes:
            known = {"method": each.method, **each.place, **each.given}
            if wanted.items() <= {name: text(value) for name, value in known.items()}.items():
                found.append(each)
        if len(found) != 1:
            raise UserError(
                f"{len(found)} searches match: give one of {'; '.join(each.title for each in self.outcomes)}"
            )
        return found[0].best

    def frame(self) -> pandas.DataFrame:
        """Return one row per trial, as in `Outcome.rows`."""
        import pandas

        return pandas.DataFrame([row for each in self.outcomes for row in each.rows])

    def importance(self) -> pandas.Series:
        """Return the importance of each setting over all trials together (function `importance`)."""
        return importance(self.outcomes)

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw parallel coordinates, one line per trial, and return the axes. Each setting is shown by the
        rank of its value; colours are the quarters of GAIN. Raises UserError if no trial has a score."""
        import pandas

        if not any(each.points for each in self.outcomes):
            raise UserError("no trial to draw: none has a score")
        if axes is None:
            from matplotlib.figure import Figure

            axes = Figure(figsize=(9, 4.2), layout="constrained").subplots()
        ranks = _points(self.outcomes).rank(pct=True)
        quarter = pandas.cut(ranks.pop(GAIN), 4, labels=["worst quarter", "third", "second", "best quarter"])
        drawn = ranks.assign(quarter=quarter.astype(str)).sort_values("quarter", ascending=False)
        pandas.plotting.parallel_coordinates(drawn, "quarter", ax=axes, colormap="viridis", alpha=0.7)
        return axes


def importance(outcomes: Iterable[Outcome], own: bool = True) -> pandas.Series:
    """Return setting → its share of the importance for GAIN, largest first; without `own` only for settings
    that all methods share.

    Permutation importance in a random forest (Breiman, Machine Learning 2001); empty for fewer than
    LEAST_TRIALS with a score.
    """
    import pandas
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.inspection import permutation_importance

    points = _points(outcomes, own)
    if len(points) < LEAST_TRIALS:
        return pandas.Series(dtype=float)
    gain = points.pop(GAIN)
    forest = RandomForestRegressor(random_state=0).fit(points, gain)
    found = permutation_importance(forest, points, gain, random_state=0).importances_mean
    shares = pandas.Series(found, points.columns).clip(lower=0)
    return (shares / (shares.sum() or 1)).sort_values(ascending=False)


def explained(outcomes: Sequence[Outcome]) -> float | None:
    """Return the share of GAIN's variance (R²) that such a forest explains in searches that it has not seen,
    from the settings that all methods share; None for fewer than FOLDS searches with a score."""
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.model_selection import GroupKFold, cross_val_score

    search = [place for place, each in enumerate(outcomes) for _ in range(len(each.points))]
    if len({*search}) < FOLDS:
        return None
    points = _points(outcomes, own=False)
    gain, forest = points.pop(GAIN), RandomForestRegressor(random_state=0)
    return float(cross_val_score(forest, points, gain, groups=search, cv=GroupKFold(FOLDS)).mean())


def _points(outcomes: Iterable[Outcome], own: bool = True) -> pandas.DataFrame:
    """All points as numbers, without columns that never vary; -1 for an option that a method lacks. Without
    `own` only the settings that all methods share."""
    import pandas

    points = pandas.DataFrame([point for each in outcomes for point in each.points])
    points = points.loc[:, (points.nunique() > 1) | (points.columns == GAIN)]
    if not own:
        points = points.loc[:, [name for name in points if "." not in name]]
    words = points.select_dtypes(exclude="number").columns
    return points.assign(**{name: points[name].factorize()[0] for name in words}).fillna(-1)


def text(value: Any) -> str:
    """Return a setting's value as `--set` takes it."""
    return "+".join(map(str, value)) if isinstance(value, (list, tuple)) else format_value(value)
