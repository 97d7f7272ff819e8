"""What a row gives over its rounds, and what its clients are, each the mean over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from fedsub.benchmark.analysis.scores import Block, Row
from fedsub.benchmark.records.record import Record

POINTS = 25
"""Of a curve that is drawn, at most."""


def mean_curve(records: Sequence[Record]) -> list[tuple[int, float]]:
    """Round and test score in percent, the mean over the records that have the same rounds as the first; at
    most `POINTS`, the last round among them; empty where no curve is on record."""
    rounds = records[0].curve.get("round", []) if records else []
    curves = [each.curve.get("test", []) for each in records if each.curve.get("round", []) == rounds]
    kept = sorted({round(place * (len(rounds) - 1) / (POINTS - 1)) for place in range(POINTS)})
    found = []
    for place in kept if rounds else ():
        values = [curve[place] for curve in curves if curve[place] is not None]
        if values:
            found.append((int(rounds[place]), statistics.fmean(values)))
    return found


def clients_of(rows: Iterable[Row]) -> dict[Block, dict[str, float]]:
    """Block → statistics of its clients (`datasets.partition.statistics`), the mean over the draws of its
    first row that has them."""
    found: dict[Block, dict[str, float]] = {}
    for row in rows:
        drawn = [record.result.partition_statistics for record in row.records]
        if row.block in found or not all(drawn):
            continue
        names = [name for name, value in drawn[0].items() if isinstance(value, (int, float))]
        found[row.block] = {
            name: statistics.fmean(values)
            for name in names
            if len(values := [value for each in drawn if (value := each.get(name)) is not None]) == len(drawn)
        }
    return found
