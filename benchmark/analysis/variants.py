"""Runs with other settings or options of the method behind a printed figure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fedsub.benchmark.analysis.agreement import is_in_points
from fedsub.benchmark.analysis.paired import differences_of
from fedsub.benchmark.analysis.scores import Row
from fedsub.benchmark.spec.protocol import bare
from fedsub.datasets.options import format_value, parse_name


@dataclass(frozen=True)
class Trial:
    """A row that answers no printed figure, beside one that does."""

    changed: str
    """Its changed settings, as `--set` and the brackets of `--method` take them."""
    mean: float
    seeds: int
    level: float | None
    """Points above the figure's row, over the seeds that both have; None where they share none."""
    gain: float | None
    """Points above the printed table's baseline under the same settings, over the seeds that both have; None
    where they share none."""


def trials_of(row: Row, others: Iterable[Row], metric: str, baseline: str) -> tuple[Trial, ...]:
    """What was run otherwise in the place of a row, of whose `metric` a paper prints a figure; nothing where
    the row has no such score.

    Scores that are not judged in points have none: their settings are what the figure counts.
    """
    if metric not in row.scores or not is_in_points(metric):
        return ()
    near = [other for other in others if other.block == row.block and other.backbone == row.backbone]
    found = []
    for other in near:
        changed = _changed(row, other)
        if changed and not other.outdated and metric in other.scores:
            score, own = other.scores[metric], row.scores[metric].by_seed
            below = _baseline(near, baseline, other, metric)
            found.append(
                Trial(
                    changed,
                    score.mean,
                    len(score.by_seed),
                    _mean(differences_of(score.by_seed, own)),
                    _mean(differences_of(score.by_seed, below)),
                )
            )
    return tuple(found)


def _changed(row: Row, other: Row) -> str:
    """Options and settings of `other` that `row` does not have; empty where it is no trial of `row`."""
    if bare(row.method) != bare(other.method) or any(score.published for score in other.scores.values()):
        return ""
    (_, given), (_, options) = parse_name(row.method), parse_name(other.method)
    # Its name leaves out what is a default.
    if any(other.records[0].options.get(name) != value for name, value in given.items()):
        return ""
    added = [f"{name}={format_value(options[name])}" for name in options if name not in given]
    return ", ".join(filter(None, (*added, other.deviations)))


def _baseline(near: Sequence[Row], baseline: str, trial: Row, metric: str) -> Mapping[int, float]:
    """Seed by seed, the baseline under the trial's settings."""
    found = {
        other.deviations: other.scores[metric].by_seed
        for other in near
        if other.method == baseline and metric in other.scores
    }
    return found.get(trial.deviations, {})


def _mean(differences: Mapping[int, float]) -> float | None:
    return statistics.fmean(differences.values()) if differences else None
