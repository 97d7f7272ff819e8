"""Scores by name: unit, direction, and their values in a record."""

import difflib
import math
import statistics
from collections.abc import Iterable, Sequence

from fedsub.benchmark.analysis.agreement import bare_metric, is_seconds
from fedsub.benchmark.records.record import ALONE, Record
from fedsub.benchmark.spec import catalog
from fedsub.benchmark.spec.protocol import AT_CLIENTS, AT_ROUND

GAIN = "gain_over_"
"""Prefix of a difference to another method, in points."""
CHANGE = "change_from_"
"""Prefix of a difference to the same method on another partition, in points."""
COMMUNICATION = "communication_pct_of_"
"""Prefix of bytes in percent of another method's."""
MODEL_SIZE = "model_size_pct"
"""Share of the whole model that is in use, in percent."""
_UNITS = {"correlation": "", "ratio": "", "distance": "", "mb": "MB", "seconds": "s"}
"""The word in a score's name that gives its unit; a score without one is a percentage."""
_SAID_SAME = "same_as_fedavg"
"""Entry in the extras of earlier records that marks a run equal to FedAvg."""
_SAME_LOSS = 2e-4
"""Relative tolerance of losses, which are stored to four decimals; rounding grows over the rounds."""
_SAME_SCORE = 0.5
"""Tolerance in points: rounding may change the prediction of single test nodes."""
_MORE_IS_BETTER = ("accuracy", "minority_accuracy", "macro_f1", "roc_auc", GAIN)
"""Prefixes of scores for which more is better; methods do not compete on any other score."""


def unit_of(metric: str) -> str:
    """`%`, also of differences between percentages, `MB`, `s`, or empty for ratios and correlations."""
    words = bare_metric(metric).split("_")
    return next((unit for word, unit in _UNITS.items() if word in words), "%")


def more_is_better(metric: str) -> bool:
    """Whether the largest value is the best."""
    return metric.startswith(_MORE_IS_BETTER)


def value_of(record: Record, metric: str) -> float | None:
    """Return one score of a record in percent, or a number of its extras or its partition's statistics.
    `NAME@roundR` is read from the test curve, or from the extras of every round; `NAME@clientsA-B` is the
    mean of these clients' test scores. Seconds of a run that shared its core are None."""
    if is_seconds(metric) and (record.result.core_share or ALONE) < ALONE:
        return None
    name, at, span = metric.partition(AT_CLIENTS)
    if at:
        first, last = (int(part) for part in span.split("-", 1))
        scores = record.result.by_client.get("test", []) if name == kept_score(record) else []
        chosen = [score for score in scores[first : last + 1] if score is not None]
        return statistics.fmean(chosen) if chosen else None
    name, at, number = metric.partition(AT_ROUND)
    if not at:
        value = {**record.result.partition_statistics, **record.extras, **record.metrics}.get(metric)
        # A method's own extras may be anything; only numbers can be averaged.
        return value if isinstance(value, (int, float)) else None
    if (by_round := record.result.by_round.get(name)) is not None:
        return dict(enumerate(by_round, start=1)).get(int(number))
    rounds, test = record.curve.get("round", []), record.curve.get("test", [])
    return dict(zip(rounds, test, strict=True)).get(int(number)) if name == kept_score(record) else None


def unreported(metrics: Iterable[str], records: Sequence[Record]) -> dict[str, list[str]]:
    """Return the scores that a table names and none of its `records` has, each with similar names in them.
    Only records can confirm a name, since methods may report any score."""
    held = ({*each.result.partition_statistics, *each.extras, *each.metrics} for each in records)
    reported = set[str]().union(*held)
    named = set(map(bare_metric, metrics))
    return {
        name: difflib.get_close_matches(name, sorted(reported), cutoff=0.8)
        for name in sorted(named - reported)
        if not name.startswith((GAIN, CHANGE, COMMUNICATION)) and name != MODEL_SIZE
    }


def kept_score(record: Record) -> str:
    """Return the score whose curve and clients' test scores a record keeps."""
    return record.cell.selects_by or catalog.part("task", record.cell.task.name).score


def bytes_sent(record: Record) -> float | None:
    """Bytes per round in both directions, one-off exchanges spread over the rounds; None if none are sent."""
    sent = record.bytes
    total = sent.get("up", 0.0) + sent.get("down", 0.0) + sent.get("once", 0.0) / max(record.rounds, 1)
    return total or None


def was_fedavg(record: Record, fedavg: Record | None) -> bool:
    """Whether the run did nothing beyond FedAvg: its curves are those of `fedavg`, within rounding.

    `fedavg` is FedAvg's record of the same cell settings and seed. Without it only the entry in an earlier
    record counts.
    """
    if _SAID_SAME in record.extras:
        return bool(record.extras[_SAID_SAME])
    return (
        fedavg is not None
        and _agree(record, fedavg, "test", 0.0, _SAME_SCORE)
        and _agree(record, fedavg, "loss", _SAME_LOSS, _SAME_LOSS)
    )


def _agree(one: Record, other: Record, curve: str, relative: float, absolute: float) -> bool:
    """Whether the two runs' curves are equal in every round within the tolerance."""
    mine, theirs = one.curve.get(curve, []), other.curve.get(curve, [])
    return 0 < len(mine) == len(theirs) and all(
        a is not None and b is not None and math.isclose(a, b, rel_tol=relative, abs_tol=absolute)
        for a, b in zip(mine, theirs, strict=True)
    )


def with_spread(mean: float, std: float | None, *, by_spread: bool = False) -> str:
    """Return `mean ± std` with two decimals, or with those of two significant digits of `std` (`by_spread`);
    only the mean if there is no spread."""
    if std is None:
        return f"{mean:.2f}"
    decimals = 2 - sum(std >= limit for limit in (0.995, 9.95)) if by_spread else 2
    return f"{mean:.{decimals}f} ± {std:.{decimals}f}"
