"""`claims.md`: the papers' own claims, each with the contrast that tests it, and whether it holds here."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from fedsub.benchmark.analysis.agreement import CANNOT, LEAST, NEEDS_RUNS, NOT_MEASURED, is_in_points
from fedsub.benchmark.analysis.claims import (
    ALL_BUT,
    EVERY,
    ON_AVERAGE,
    Claim,
    Column,
    Contrast,
    Side,
    load,
    load_claims,
)
from fedsub.benchmark.analysis.figures import NOT_AT_HAND
from fedsub.benchmark.analysis.judged import is_drawn_once
from fedsub.benchmark.analysis.metrics import value_of
from fedsub.benchmark.analysis.paired import (
    EQUAL,
    FAILS,
    HIGHER,
    HOLDS,
    Comparison,
    compare,
    differences_of,
    judge,
    mean_over_columns,
    repeats,
    word_of_column,
)
from fedsub.benchmark.analysis.published import published_figure
from fedsub.benchmark.analysis.scores import Leaderboard, Row
from fedsub.benchmark.analysis.sequential import LEVEL
from fedsub.benchmark.report.tables import markdown_table
from fedsub.benchmark.report.wording import partition_title
from fedsub.benchmark.report.writing import write_page
from fedsub.benchmark.spec.protocol import AXES, names

RULE = (
    "Claims that the papers make in words or in bold type, restated in our words, and whether they hold "
    "here. Each names a contrast: a score of one side against that of others in the same place, paired by "
    "seed (where the place is another, seeds are paired by their number alone). A comparison **holds** "
    f"where the {LEVEL:.0%} interval of the paired difference lies on the claimed side of the margin, "
    "**fails** where it lies on the other, and is **undecided** otherwise. A column holds if all its "
    "comparisons do, and fails where one does, at a level that allows for how many there were. A claim on "
    "n columns says in how many, k, it must hold: it holds where k columns do "
    "and fails where n − k + 1 fail, each at a level that allows for how many columns there were to "
    "choose from (partial conjunction, Benjamini and Heller 2008; `benchmark/contrast.py`). A claim of "
    "several contrasts holds where all do, and fails where one does, at a level that allows for how many "
    "there were. On average "
    "means one comparison of the mean over all columns. Columns that are not measured can neither carry a "
    "claim nor refute it; those on graphs that are not at hand where the records are made are left out "
    "and counted apart. Three seeds come first. Where a claim is then undecided, all ten are run at once "
    "(`--campaign`) of each comparison that ten would decide, and of as many of the others as it takes to "
    "decide the claim. What three decide stays decided: at the "
    "margin itself both looks together decide wrongly, either way, in 7 of 100 rather than in 5 "
    "(`tests/benchmark/test_contrast.py`). Margins, columns and sides: `benchmark/claims.toml`. Differences "
    "are ours minus theirs, in the unit of the score; of a column, that to the rival that is hardest to hold "
    "against here, whose spread counts too: it need not be the closest by its mean. The printed span of a "
    "claim is over the rivals that were closest in print, which may be others than those of its columns."
)
_WORDS = (HOLDS, FAILS, NEEDS_RUNS, NOT_MEASURED)
_HEAD = (
    "claim", "place", "tested by", "printed", "measured", *(f"columns: {word}" for word in _WORDS),
    "not at hand", "seeds", "verdict",
)  # fmt: skip
_COLUMN_HEAD = (
    "column", "against", "printed difference", "measured difference", f"{LEVEL:.0%} interval", "seeds",
    "verdict",
)  # fmt: skip

Rows = Mapping[str, Sequence[Row]]
"""Table → its rows."""


@dataclass(frozen=True)
class Measured:
    """A column, or the mean of several, and what the records give for it."""

    columns: tuple[Column, ...]
    comparisons: tuple[Comparison | None, ...]
    """One for each of `theirs`; None where one side has no records."""
    printed: tuple[float | None, ...]
    """The printed difference to each of `theirs`."""
    lacking: tuple[int, ...] = ()
    """Of an average: how many columns have no record of each comparison; empty of a column."""

    @property
    def word(self) -> str:
        """The verdict on the column."""
        return word_of_column(self.comparisons)

    @property
    def hardest(self) -> int | None:
        """Which comparison is hardest to hold; None if none is measured."""
        found = [(item.holds, -item.fails, place) for place, item in enumerate(self.comparisons) if item]
        return max(found)[2] if found else None


@dataclass(frozen=True)
class Part:
    """A contrast of a claim and what the records give for it."""

    contrast: Contrast
    columns: tuple[Measured, ...]
    """Those on graphs at hand."""
    away: int
    """How many are on graphs that are not at hand, without records."""
    average: Measured | None = None
    """The comparison of the means, where the contrast is one on average."""

    @property
    def judged_by(self) -> tuple[Measured, ...]:
        """What decides: the average where the contrast is one on average, else every column."""
        return self.columns if self.average is None else (self.average,)

    @property
    def needed(self) -> int:
        """How many of those must hold."""
        return 1 if self.average is not None else max(self.contrast.needed(len(self.columns)), 1)


@dataclass(frozen=True)
class Finding:
    """A claim and its verdict."""

    claim: Claim
    parts: tuple[Part, ...]
    """One for each contrast."""

    @property
    def columns(self) -> tuple[Measured, ...]:
        """Those of all contrasts, on graphs at hand."""
        return tuple(column for part in self.parts for column in part.columns)

    @property
    def judged_by(self) -> tuple[Measured, ...]:
        """What decides, of all contrasts."""
        return tuple(measured for part in self.parts for measured in part.judged_by)

    @property
    def word(self) -> str:
        """The verdict."""
        return self.judged([measured.comparisons for measured in self.judged_by]) if self.columns else CANNOT

    def judged(self, comparisons: Sequence[Sequence[Comparison | None]]) -> str:
        """The verdict that these would give, in the order of `judged_by`."""
        left = iter(comparisons)
        shown = [part for part in self.parts if part.columns]
        return judge([([*islice(left, len(part.judged_by))], part.needed) for part in shown])


def find(claims: Iterable[Claim], rows: Rows) -> list[Finding]:
    """Every claim with its verdict from the rows of the tables it names."""
    return [Finding(claim, tuple(_find(each, rows) for each in claim.contrasts)) for claim in claims]


def _find(contrast: Contrast, rows: Rows) -> Part:
    kept: list[Measured] = []
    differences: list[list[tuple[dict[int, float], bool]]] = []
    away = 0
    for column in contrast.columns:
        pairs = [_differences(column.ours, side, rows) for side in column.theirs]
        comparisons = tuple(_compare(contrast, *pair) for pair in pairs)
        if not any(comparisons) and _is_away(column.ours):
            away += 1
            continue
        printed = tuple(_printed(column.ours, side) for side in column.theirs)
        kept.append(Measured((column,), comparisons, printed))
        differences.append(pairs)
    average = _average(contrast, kept, differences) if contrast.rule == ON_AVERAGE and kept else None
    return Part(contrast, tuple(kept), away, average)


def _average(
    contrast: Contrast,
    columns: Sequence[Measured],
    differences: Sequence[Sequence[tuple[dict[int, float], bool]]],
) -> Measured:
    """The comparisons of the means over the columns; undecided while one of them is not measured."""
    places = range(len(contrast.against))
    comparisons: list[Comparison | None] = []
    lacking: list[int] = []
    for place in places:
        pairs = [column[place] for column in differences if column[place][0]]
        lacking.append(len(columns) - len(pairs))
        sound = not lacking[place] and all(sound for _, sound in pairs)
        comparisons.append(_compare(contrast, mean_over_columns([found for found, _ in pairs]), sound))
    printed = tuple(_mean([column.printed[place] for column in columns]) for place in places)
    stands_on = tuple(column for measured in columns for column in measured.columns)
    return Measured(stands_on, tuple(comparisons), printed, tuple(lacking))


def _mean(values: Sequence[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return sum(found) / len(found) if found and len(found) == len(values) else None


def _compare(contrast: Contrast, differences: Mapping[int, float], sound: bool) -> Comparison | None:
    """The comparison; undecided where the differences are not `sound`."""
    found = compare([*differences.values()], contrast.direction, contrast.margin)
    return found if found is None or sound else replace(found, holds=1.0, fails=1.0, spread=math.inf)


def _differences(ours: Side, theirs: Side, rows: Rows) -> tuple[dict[int, float], bool]:
    """Seed → difference, and whether the seeds of both sides repeat the run."""
    found = [_row(side, rows) for side in (ours, theirs)]
    own, other = (_by_seed(row, side.metric) for row, side in zip(found, (ours, theirs), strict=True))
    if theirs.value is not None:
        other = dict.fromkeys(own, theirs.value)
    sides = [own] if theirs.value is not None else [own, other]
    sound = not is_in_points(ours.metric) or all(map(repeats, sides))
    # Seeds that share one draw tell nothing of another.
    drawn = not any(row is not None and is_drawn_once(row) for row in found)
    return differences_of(own, other), sound and drawn


def _row(side: Side, rows: Rows) -> Row | None:
    """The row that keeps to its protocol; none of one whose draw its table fixes."""
    return next(
        (
            row
            for row in rows.get(side.table, ())
            if not row.deviations and row.cell.data_seed < 0 and row.point == dict(side.point)
        ),
        None,
    )


def _by_seed(row: Row | None, metric: str) -> dict[int, float]:
    """Seed → score."""
    if row is None:
        return {}
    if metric in row.scores:
        return dict(row.scores[metric].by_seed)
    values = {record.cell.seed: value_of(record, metric) for record in row.records}
    return {seed: value for seed, value in values.items() if value is not None}


def _printed(ours: Side, theirs: Side) -> float | None:
    own, other = _printed_value(ours), _printed_value(theirs)
    return None if own is None or other is None else own - other


def _printed_value(side: Side) -> float | None:
    if side.value is not None:
        return side.value
    figure = published_figure(load(side.table), side.metric, **dict(side.point))
    return None if figure is None else figure.mean


def _is_away(side: Side) -> bool:
    """Whether the graph is one that is not at hand where the records are made."""
    return not NOT_AT_HAND.keys().isdisjoint(_printed_names(str(dict(side.point)["dataset"])))


@cache
def _printed_names(graph: str) -> frozenset[str]:
    """What the papers call a graph: a table that prints no figure does not say."""
    blocks = (block for name in names() for block in load(name).published)
    return frozenset(block.dataset[graph] for block in blocks if graph in block.dataset)


def markdown(findings: Sequence[Finding]) -> str:
    """The page: the rule, the claims of each paper, and their columns."""
    counts = Counter(finding.word for finding in findings)
    counted = ", ".join(f"{word} {counts[word]}" for word in (*_WORDS, CANNOT) if counts[word])
    parts = [
        "# What the papers claim, and whether it holds here",
        RULE,
        f"{len(findings)} claims: {counted}.",
    ]
    for paper, group in groupby(findings, key=lambda finding: finding.claim.paper):
        listed = [*enumerate(group, start=1)]
        parts += [
            f"## {paper}",
            markdown_table(_HEAD, [_line(number, finding) for number, finding in listed]),
        ]
        for number, finding in listed:
            lines, note = [*_column_lines(finding)], finding.claim.note
            if lines or note:
                parts.append(f"### {paper} {number}")
            parts += [note] if note else []
            parts += [markdown_table(_COLUMN_HEAD, lines)] if lines else []
    return "\n\n".join(parts) + "\n"


def _line(number: int, finding: Finding) -> list[str]:
    claim, columns = finding.claim, finding.columns
    words = Counter(column.word for column in columns)
    shown = [column for column in columns if column.hardest is not None]
    measured = [_difference(column) for column in shown]
    hardest = (_hardest_printed(part.contrast, column) for part in finding.parts for column in part.columns)
    printed = [value for value in hardest if value is not None]
    seeds = [item.seeds for column in shown for item in column.comparisons if item]
    return [
        f"{number}. {claim.says}",
        claim.place,
        "; and ".join(map(_test, claim.contrasts)),
        _span(printed),
        _span(measured),
        *(str(words[word]) for word in _WORDS),
        str(sum(part.away for part in finding.parts)),
        " to ".join(map(str, dict.fromkeys((min(seeds), max(seeds))))) if seeds else "–",
        f"**{finding.word}**",
    ]


def _test(contrast: Contrast) -> str:
    """The contrast in words."""
    sides = ", ".join(map(_side, contrast.against))
    margin = f"{abs(contrast.margin):g}"
    above, below = ("above", "below") if contrast.direction == HIGHER else ("below", "above")
    if contrast.direction == EQUAL:
        relation = f"within {margin} of"
    elif contrast.margin < 0:
        relation = f"no more than {margin} {below}"
    else:
        relation = f"more than {margin} {above}" if contrast.margin else above
    rule = {EVERY: "in every column", ON_AVERAGE: "on average"}
    columns = rule.get(contrast.rule, f"in all but {contrast.rule.removeprefix(ALL_BUT)} columns")
    for axis, values in (contrast.only or {}).items():
        columns += f"; {axis} {', '.join(map(str, values))}"
    return f"{', '.join(contrast.metric)}: {', '.join(contrast.method)} {relation} {sides}, {columns}"


def _side(change: Mapping[str, Any]) -> str:
    if "value" in change:
        return f"{change['value']:g}"
    own = str(change.get("method", ""))
    rest = ", ".join(f"{key} {value}" for key, value in change.items() if key != "method")
    return f"{own} ({rest})" if own and rest else own or f"the same with {rest}"


def _column_lines(finding: Finding) -> Iterator[list[str]]:
    for part in finding.parts:
        columns = [(_place(finding.claim, column.columns[0]), column) for column in part.columns]
        if part.average is not None:
            columns.append(("mean", part.average))
        for name, column in columns:
            yield from _column_line(part.contrast, name, column)


def _column_line(contrast: Contrast, name: str, column: Measured) -> Iterator[list[str]]:
    place = column.hardest
    comparison = None if place is None else column.comparisons[place]
    if place is None or comparison is None:
        return
    printed, interval = column.printed[place], comparison.interval
    yield [
        name,
        _side(contrast.against[place]),
        "–" if printed is None else f"{printed:+.2f}",
        f"{comparison.difference:+.2f}",
        "–" if interval is None else f"{interval[0]:+.2f} to {interval[1]:+.2f}",
        str(comparison.seeds),
        f"{column.word}{_why_open(contrast, column, place, comparison)}",
    ]


def _why_open(contrast: Contrast, column: Measured, place: int, comparison: Comparison) -> str:
    """What leaves a column undecided whatever its interval, in brackets; empty if nothing does. `place` is
    that of the comparison in it."""
    if column.word != NEEDS_RUNS:
        return ""
    sides = zip(contrast.against, column.comparisons, strict=True)
    missing = [_side(side) for side, found in sides if found is None]
    if missing:
        return f" ({', '.join(missing)} not measured)"
    if column.lacking and (count := column.lacking[place]):
        return f" ({count} columns are not measured)" if count > 1 else " (1 column is not measured)"
    if comparison.seeds < LEAST:
        return " (too few seeds)"
    return " (all seeds share one draw of the clients, or give one value)" * math.isinf(comparison.spread)


def _place(claim: Claim, column: Column) -> str:
    """Where a column stands, and whatever else tells it from the claim's others."""
    point = dict(column.ours.point)
    point["partition"] = partition_title(str(point["partition"]))
    parts = [str(point[axis]) for axis in AXES if axis != "method"]
    parts += [column.ours.table] if len(_all(claim, "table")) > 1 else []
    parts += [str(point["method"])] if len(_all(claim, "method")) > 1 else []
    parts += [column.ours.metric] if len(_all(claim, "metric")) > 1 else []
    return " · ".join(parts)


def _all(claim: Claim, what: str) -> set[str]:
    """The tables, methods or metrics of all its contrasts."""
    return {name for contrast in claim.contrasts for name in getattr(contrast, what)}


def _difference(column: Measured) -> float:
    assert column.hardest is not None
    comparison = column.comparisons[column.hardest]
    assert comparison is not None
    return comparison.difference


def _hardest_printed(contrast: Contrast, column: Measured) -> float | None:
    found = [value for value in column.printed if value is not None]
    if not found:
        return None
    if contrast.direction == EQUAL:
        return max(found, key=abs)
    return min(found) if contrast.direction == HIGHER else max(found)


def _span(values: Sequence[float]) -> str:
    if not values:
        return "–"
    ends = dict.fromkeys((f"{min(values):+.2f}", f"{max(values):+.2f}"))
    return " to ".join(ends)


def write_claims(results: Path, leaderboards: Iterable[Leaderboard]) -> Path:
    """Write `claims.md` into the results folder; returns its path."""
    claims = load_claims()
    named = {table for claim in claims for table in claim.tables}
    rows = {each.protocol.name: each.rows for each in leaderboards if each.protocol.name in named}
    path = results / "claims.md"
    write_page(path, markdown(find(claims, rows)).encode())
    return path
