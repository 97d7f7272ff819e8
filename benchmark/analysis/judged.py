"""Verdicts on level and gain of rows against the printed figures they answer."""

from collections.abc import Iterable

from fedsub.benchmark.analysis import agreement
from fedsub.benchmark.analysis.agreement import CANNOT, NOT_MEASURED, Verdict, is_in_points
from fedsub.benchmark.analysis.metrics import CHANGE, GAIN
from fedsub.benchmark.analysis.paired import differences_of, varies
from fedsub.benchmark.analysis.published import Figure, answered_figures
from fedsub.benchmark.analysis.scores import Row
from fedsub.benchmark.spec.protocol import Protocol


def why_not(metric: str, figure: Figure) -> str:
    """Return why no run here can answer a figure; empty if one can."""
    return figure.cannot or "seconds of another machine" * agreement.is_seconds(metric)


def level_of(row: Row, metric: str, figure: Figure) -> Verdict:
    """Return the verdict on a row's score, which it must have, compared with a printed figure that it
    answers."""
    if reason := why_not(metric, figure):
        return Verdict(CANNOT, reason=reason)
    return agreement.judge(
        tuple(row.scores[metric].by_seed.values()),
        figure,
        agreement.tolerance_of(metric, figure.mean),
        one_draw_here=is_drawn_once(row),
        may_repeat=not is_in_points(metric),
    )


def gain_of(
    protocol: Protocol, row: Row, others: Iterable[Row], metric: str, figure: Figure
) -> Verdict | None:
    """Return the verdict on a row's gain over the baseline of the printed table, paired by seed.

    None for the baseline itself, without a printed baseline, and for scores not in points or already gains.
    """
    if not is_in_points(metric) or metric.startswith((GAIN, CHANGE)) or row.method == figure.baseline:
        return None
    place = {**row.point, "method": figure.baseline}
    printed = [*answered_figures(protocol, metric, **place)]
    of_table = [found for found in printed if found.source == figure.source] or printed
    if not of_table:
        return None
    alike = (other for other in others if other.point == place and not other.deviations)
    base = next((other.scores[metric].by_seed for other in alike if metric in other.scores), None)
    if base is None:
        return Verdict(NOT_MEASURED, reason=f"no {figure.baseline} on the same clients")
    own = row.scores[metric].by_seed
    differences = [*differences_of(own, base).values()]
    return agreement.judge_gain(
        differences,
        figure.mean - of_table[0].mean,
        one_draw_here=is_drawn_once(row),
        # A gain of zero in every run is exact: the method did nothing beyond its baseline.
        may_repeat=varies(own) and not any(differences),
    )


NOT_DRAWN = ("attribute", "file", "planted")
"""Partition schemes with fixed clients."""


def is_drawn_once(row: Row) -> bool:
    """Whether all seeds share one draw of the clients, by a fixed data seed or because every draw is the same
    (METIS with few nodes per client). Their spread then says nothing about other clients."""
    if row.cell.data_seed >= 0 or row.cell.partition.name in NOT_DRAWN or len(row.records) < 2:
        return row.cell.data_seed >= 0
    first, *others = (record.result.partition_statistics for record in row.records)
    return bool(first) and all(other == first for other in others)
