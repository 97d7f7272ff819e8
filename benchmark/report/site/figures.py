"""Every printed figure as a line of the page's table."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedsub.benchmark.analysis.agreement import Verdict
from fedsub.benchmark.analysis.figures import DECIMALS, Entry
from fedsub.benchmark.analysis.metrics import heading_of, with_spread
from fedsub.benchmark.analysis.summary import table_name
from fedsub.benchmark.report.leaderboard import authors_shown
from fedsub.benchmark.report.site.prose import joined


def figure_line(entry: Entry, said: Mapping[str, Any]) -> dict[str, Any]:
    """One line of the table of all figures, JSON-ready. What `reproduction.json` says of it,
    `said`, is taken from there."""
    score = None if entry.row is None else entry.row.scores[entry.metric]
    records = () if entry.row is None else entry.row.records
    level, gain = entry.level, entry.gain
    return {
        "paper": said["paper"],
        "table": f"{said['paper']}, {table_name(said['table'])}",
        "graph": said["dataset"],
        "clients": joined((said["partition"], said["clients"])),
        "method": said["method"],
        "backbone": said["backbone"],
        "score": heading_of(entry.metric) if entry.metric else said["metric"],
        "note": said["note"],
        "printed": with_spread(entry.figure.mean, entry.figure.std),
        "printed_at": entry.figure.mean,
        "measured": "" if score is None else with_spread(score.mean, score.std),
        "measured_at": None if score is None else _place(score.mean),
        "seeds": None if score is None else len(score.by_seed),
        "difference": level.shown,
        "difference_at": _place(level.difference),
        "interval": level.shown_interval,
        "verdict": level.word,
        "why": level.reason,
        "seeds_to_decide": level.seeds,
        "gain": "" if gain is None else gain.word,
        "gain_shown": "" if gain is None else joined((gain.shown_gain, gain.shown_interval, gain.reason)),
        "over": "" if gain is None else entry.figure.baseline,
        "cause": entry.cause,
        "authors": "" if entry.authors is None else authors_shown(entry.authors),
        "command": said["command"],
        "protocol": entry.protocol,
        "records": said["records"],
        # Those of equal work stand in the files of other tables.
        "files": sorted({(record.source or record.cell).protocol for record in records}),
    }


def columns_of(lines: Sequence[Mapping[str, Any]]) -> dict[str, tuple[list[Any], list[int]]]:
    """Of every field of the lines its different values, and where among them each line's stands."""
    columns: dict[str, tuple[list[Any], list[int]]] = {}
    for name in lines[0] if lines else ():
        places: dict[str, int] = {}
        at = [places.setdefault(json.dumps(line[name]), len(places)) for line in lines]
        columns[name] = ([json.loads(value) for value in places], at)
    return columns


def _place(value: float | None) -> float | None:
    """What a column is sorted by."""
    return None if value is None else round(value, DECIMALS)


def forest(entries: Iterable[Entry]) -> dict[str, Any] | None:
    """The differences of one protocol with their intervals, for a forest plot; None where there are none.

    In points where every figure is judged by the same δ; else each in units of its own δ, seconds by the
    logarithm of their ratio.
    """
    judged = [entry for entry in entries if entry.level.difference is not None and entry.level.tolerance]
    if not judged:
        return None
    same = {entry.level.tolerance for entry in judged if not entry.level.is_ratio}
    in_points = len(same) == 1 and not any(entry.level.is_ratio for entry in judged)
    lines = []
    for entry in judged:
        level = entry.level
        assert level.difference is not None
        ends = level.interval or (None, None)
        low, middle, high = (_scaled(end, level, in_points) for end in (ends[0], level.difference, ends[1]))
        place = entry.figure.place
        label = joined((*place[2:7], None if entry.metric == "accuracy" else heading_of(entry.metric)))
        shown = joined((level.shown, level.shown_interval))
        lines.append([label, low, middle, high, level.word, shown])
    return {"delta": next(iter(same)) if in_points else 1.0, "points": in_points, "lines": lines}


def _scaled(value: float | None, level: Verdict, in_points: bool) -> float | None:
    if value is None or not level.tolerance:
        return None
    if level.is_ratio:
        return round(math.log(value) / math.log(level.tolerance), 3)
    return round(value if in_points else value / level.tolerance, 3)
