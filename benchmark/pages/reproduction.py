"""Every printed figure with its verdict: `reproduction.json` and the page that counts them by table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmark.pages.comparison import REFERENCE, gain_of, level_of
from benchmark.pages.leaderboard import with_spread
from benchmark.pages.scores import Row, make_rows
from benchmark.pages.tables import escape, markdown_table
from benchmark.pages.writing import write_page
from benchmark.protocol import Protocol
from benchmark.published import Figure, Place, answered_figures, figures, grid_points
from benchmark.record import Record
from benchmark.verdict import (
    AGREES,
    CANNOT,
    DIFFERS,
    FACTOR,
    LEVEL,
    NOT_MEASURED,
    POINTS,
    SHARE,
    UNDECIDED,
    Verdict,
)

DECIMALS = 4
"""Of every number in `reproduction.json`."""
_NO_FILES = "its files could not be had where the records are made"
NOT_AT_HAND = {
    "ogbn-arxiv": _NO_FILES,
    "WikiCS": _NO_FILES,
    "Flickr-SAINT": _NO_FILES,
    "mean of 12 graphs": "a mean over graphs, which no one cell answers",
}
"""Printed graphs that are not at hand where the records in git are made, and why; records of them count."""
NO_CELL = "no cell of any protocol answers it"
Identity = tuple[Place, str]
"""Place and note of a printed figure."""


@dataclass(frozen=True)
class Entry:
    """One printed figure and what was measured for it."""

    figure: Figure
    """In our unit, as far as a protocol answers it."""
    protocol: str
    """The protocol that answers it; empty if none does."""
    metric: str
    """Our name of the score."""
    row: Row | None
    """Where it is measured, if it is."""
    level: Verdict
    gain: Verdict | None

    @property
    def table(self) -> str:
        """Paper and table."""
        return self.figure.source

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, flat but for the verdicts."""
        names = ("paper", "table", "dataset", "partition", "clients", "method", "backbone", "metric")
        score = None if self.row is None else self.row.scores[self.metric]
        return {
            **dict(zip(names, self.figure.place, strict=True)),
            "note": self.figure.note,
            "protocol": self.protocol,
            "score": self.metric,
            "printed": {
                "mean": _rounded(self.figure.mean),
                "std": _rounded(self.figure.std),
                "runs": self.figure.runs,
                "drawn_once": self.figure.drawn_once,
            },
            "measured": None
            if score is None
            else {"mean": _rounded(score.mean), "std": _rounded(score.std), "seeds": len(score.by_seed)},
            "level": _verdict(self.level),
            "gain": None if self.gain is None else {"over": self.figure.baseline, **_verdict(self.gain)},
            "cause": "",
            "records": [] if self.row is None else [record.key for record in self.row.records],
        }


def make_entries(tables: Sequence[tuple[Protocol, Sequence[Record]]]) -> list[Entry]:
    """One entry per printed figure, in the order of the list of figures.

    `tables` holds the protocols, those without records too. Where several rows answer a figure, the one
    whose data are drawn anew for every seed counts, then that of the figure's own table, then that of the
    most seeds.
    """
    measured: dict[Identity, list[Entry]] = {}
    planned: dict[Identity, Entry] = {}
    own_tables = {}
    for protocol, records in tables:
        own_tables[protocol.name] = {f"{block.paper}, {block.table}" for block in protocol.published[:1]}
        for entry in _planned(protocol):
            planned.setdefault(_identity(entry.figure), entry)
        for entry in _measured(protocol, make_rows(protocol, records)):
            measured.setdefault(_identity(entry.figure), []).append(entry)

    def rank(entry: Entry) -> tuple[bool, ...]:
        assert entry.row is not None
        cell = entry.row.cell
        several = len(entry.row.scores[entry.metric].by_seed) > 1
        return (
            several and cell.data_seed < 0,
            entry.table in own_tables[entry.protocol],
        )

    found = []
    for printed in (figure for group in figures().values() for figure in group):
        identity = _identity(printed)
        candidates = measured.get(identity, [])
        if candidates:
            found.append(max(candidates, key=lambda entry: (rank(entry), _seeds(entry))))
        elif identity in planned:
            found.append(planned[identity])
        else:
            reason = NOT_AT_HAND.get(str(printed.place[2]), NO_CELL)
            found.append(Entry(printed, "", "", None, Verdict(CANNOT, reason=reason), None))
    return found


def _identity(figure: Figure) -> Identity:
    return figure.place, figure.note


def _seeds(entry: Entry) -> int:
    return 0 if entry.row is None else len(entry.row.scores[entry.metric].by_seed)


def _planned(protocol: Protocol) -> Iterator[Entry]:
    for point in grid_points(protocol) if protocol.published else ():
        for metric in dict.fromkeys((*protocol.metrics, "roc_auc")):
            for figure in answered_figures(protocol, metric, *point):
                at_hand = NOT_AT_HAND.get(str(figure.place[2]))
                reason = REFERENCE if metric == figure.reference else at_hand
                level = Verdict(CANNOT, reason=reason) if reason else Verdict(NOT_MEASURED)
                yield Entry(figure, protocol.name, metric, None, level, None)


def _measured(protocol: Protocol, rows: Sequence[Row]) -> Iterator[Entry]:
    for row in rows:
        if row.deviations:
            continue
        for metric in row.scores:
            for figure in answered_figures(protocol, metric, **row.point):
                level = level_of(protocol, row, metric, figure)
                gain = gain_of(protocol, row, rows, metric, figure)
                yield Entry(figure, protocol.name, metric, row, level, gain)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, DECIMALS)


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "verdict": verdict.word,
        "difference": _rounded(verdict.difference),
        "interval": None if verdict.interval is None else [_rounded(end) for end in verdict.interval],
        "tolerance": _rounded(verdict.tolerance),
        "seeds_to_decide": verdict.seeds,
        "reason": verdict.reason,
    }


HEAD = (
    "table", "printed", "measurable", "measured", "agree", "differ", "undecided", "more seeds decide",
    "gains judged", "agree", "differ", "undecided", "hours",
)  # fmt: skip
RULE = (
    f"A figure **agrees** where the {LEVEL:.0%} Welch interval of measured − printed lies inside ± δ, "
    "**differs** where the interval leaves out 0 and the difference exceeds δ, and is **undecided** "
    "otherwise: an interval as wide as noise makes it cannot agree. δ was fixed before anything was "
    f"measured: {POINTS:g} points for accuracies, areas under the curve and gains, {SHARE:.0%} of the "
    f"printed figure for bytes, sizes and the rest, a factor of {FACTOR:g} for seconds, which are "
    "compared as ratios to a reference of the same table. Where a paper prints no spread, ours stands "
    "in for it. Where it drew its clients once, its mean carries what that draw is off, and our spread "
    "between draws is added once: what that leaves open is called one draw in print. A **gain** is what "
    "a method has over the table's baseline (both named in the protocol), paired by seed and judged "
    "alike."
)


def markdown(entries: Sequence[Entry]) -> str:
    """The page: a line per table, then what differs, and what is not measured."""
    tables = [(table, [*group]) for table, group in groupby(sorted(entries, key=_table), key=_table)]
    lines = [[table, *_counts(group)] for table, group in tables]
    parts = [
        "# What the papers print, and what is measured here",
        RULE,
        markdown_table(HEAD, [*lines, ["all", *_counts(entries)]]),
        "More seeds decide: those of the undecided which some number of seeds would decide if difference "
        "and spreads stay what they are. Hours are those of the records, one thread each; a record that "
        "answers several tables counts in each. Every figure with its interval: "
        "[reproduction.json](reproduction.json).",
        "## Levels that differ",
        _differing([(entry, entry.level) for entry in entries], "difference"),
        "## Gains that differ",
        _differing([(entry, entry.gain) for entry in entries if entry.gain], "gain − printed gain"),
        "## Undecided, and why no number of seeds would do",
        _reasons(entries, UNDECIDED),
        "## Cannot be measured here",
        _reasons(entries, CANNOT),
    ]
    return "\n\n".join(parts) + "\n"


def _table(entry: Entry) -> str:
    return entry.table


def _counts(entries: Sequence[Entry]) -> list[str]:
    levels = Counter(entry.level.word for entry in entries)
    gains = Counter(entry.gain.word for entry in entries if entry.gain is not None)
    measured = sum(levels[word] for word in (AGREES, DIFFERS, UNDECIDED))
    open_ = sum(entry.level.word == UNDECIDED and entry.level.seeds is not None for entry in entries)
    numbers = [len(entries), len(entries) - levels[CANNOT], measured]
    numbers += [levels[AGREES], levels[DIFFERS], levels[UNDECIDED], open_]
    numbers += [sum(gains[word] for word in (AGREES, DIFFERS, UNDECIDED))]
    numbers += [gains[AGREES], gains[DIFFERS], gains[UNDECIDED]]
    records = {record.key: record for entry in entries if entry.row for record in entry.row.records}
    hours = sum(sum(record.seconds.values()) for record in records.values()) / 3600
    return [*map(str, numbers), f"{hours:.2f}"]


def _differing(judged: Iterable[tuple[Entry, Verdict | None]], heading: str) -> str:
    lines = []
    for entry, verdict in judged:
        if verdict is None or verdict.word != DIFFERS or entry.row is None or verdict.interval is None:
            continue
        paper, table, dataset, partition, clients, method, backbone, metric = entry.figure.place
        score = entry.row.scores[entry.metric]
        low, high = verdict.interval
        lines.append(
            [
                " · ".join(
                    filter(None, (paper, table, dataset, partition, clients, method, backbone, metric))
                ),
                with_spread(entry.figure.mean, entry.figure.std),
                with_spread(score.mean, score.std),
                str(len(score.by_seed)),
                verdict.shown,
                f"{low:.2f} to {high:.2f}",
                "",
            ]
        )
    return (
        markdown_table(
            ["figure", "printed", "measured", "seeds", heading, f"{LEVEL:.0%} interval", "cause"], lines
        )
        if lines
        else "None."
    )


def _reasons(entries: Sequence[Entry], word: str) -> str:
    reasons = Counter(
        (entry.table, entry.level.reason)
        for entry in entries
        if entry.level.word == word and entry.level.reason
    )
    lines = [[table, str(count), escape(reason)] for (table, reason), count in sorted(reasons.items())]
    return markdown_table(["table", "figures", "reason"], lines) if lines else "None."


def write_reproduction(results: Path, entries: Sequence[Entry]) -> list[Path]:
    """Write `reproduction.json` and `reproduction.md` into the results folder; returns their paths."""
    listed = ",\n".join(json.dumps(entry.to_dict(), ensure_ascii=False) for entry in entries)
    data, page = results / "reproduction.json", results / "reproduction.md"
    write_page(data, f"[\n{listed}\n]\n".encode())
    write_page(page, markdown(entries).encode())
    return [data, page]
