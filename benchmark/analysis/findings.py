"""Verdicts on the papers' claims, from the records."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedsub.benchmark.analysis import agreement, paired
from fedsub.benchmark.analysis.agreement import CANNOT, is_in_points
from fedsub.benchmark.analysis.claims import ON_AVERAGE, Claim, Column, Contrast, Side, load
from fedsub.benchmark.analysis.judged import is_drawn_once
from fedsub.benchmark.analysis.published import answered_figures
from fedsub.benchmark.analysis.scores import Row

Rows = Mapping[str, Sequence[Row]]
"""Table → its rows."""
Comparisons = tuple[paired.Comparison | None, ...]
"""One for each side of `Column.theirs`; None if one side has no records."""


@dataclass(frozen=True)
class Measured:
    """A column with its measured differences."""

    column: Column
    comparisons: Comparisons
    printed: tuple[float | None, ...]
    """Printed difference to each side of `Column.theirs`; None if not printed."""

    @property
    def word(self) -> str:
        """The verdict on the column."""
        return paired.word_of(paired.p_values([[self.comparisons]]))

    @property
    def difference(self) -> float | None:
        """Difference in the hardest comparison, that with the largest p-value of holding; None if none is
        measured."""
        # The last one of several that are equally hard.
        measured = [each for each in reversed(self.comparisons) if each]
        return max(measured, key=lambda each: (each.holds, -each.fails)).difference if measured else None


@dataclass(frozen=True)
class Part:
    """A contrast of a claim with its columns, measured or not."""

    contrast: Contrast
    columns: tuple[Measured, ...]
    average: Comparisons | None = None
    """Comparisons of the means over columns, for a contrast on average."""

    @property
    def judged_by(self) -> list[Comparisons]:
        """The comparisons of the deciding columns, of which a contrast on average has one."""
        return [each.comparisons for each in self.columns] if self.average is None else [self.average]

    @property
    def hardest_printed(self) -> list[float]:
        """For every column with printed figures, the printed difference that is hardest to hold."""
        printed = ([value for value in column.printed if value is not None] for column in self.columns)
        return [self._hardest(values) for values in printed if values]

    def _hardest(self, printed: Sequence[float]) -> float:
        if self.contrast.direction == paired.EQUAL:
            return max(printed, key=abs)
        return min(printed) if self.contrast.direction == paired.HIGHER else max(printed)


@dataclass(frozen=True)
class Finding:
    """A claim and its verdict."""

    claim: Claim
    parts: tuple[Part, ...]
    """One for each contrast."""

    @property
    def columns(self) -> tuple[Measured, ...]:
        """Columns of all contrasts (`Part.columns`)."""
        return tuple(column for part in self.parts for column in part.columns)

    @property
    def word(self) -> str:
        """The verdict."""
        return CANNOT if self.claim.cannot else paired.word_of(self.p_values)

    @property
    def words(self) -> Counter[str]:
        """Verdict → number of columns with it."""
        return Counter(column.word for column in self.columns)

    @property
    def differences(self) -> list[float]:
        """Difference in the hardest comparison of every measured column."""
        return [column.difference for column in self.columns if column.difference is not None]

    @property
    def printed(self) -> list[float]:
        """Hardest printed difference of every column with printed figures."""
        return [value for part in self.parts for value in part.hardest_printed]

    @property
    def seeds(self) -> list[int]:
        """Number of seeds of every measured comparison."""
        return [item.seeds for column in self.columns for item in column.comparisons if item]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values, with every column of every contrast."""
        return {
            "paper": self.claim.paper,
            "place": self.claim.place,
            "says": self.claim.says,
            "verdict": self.word,
            "columns": [
                {
                    **each.column.ours.point,
                    "table": each.column.ours.table,
                    "score": each.column.ours.metric,
                    "verdict": each.word,
                    "against": [
                        _compared(dict(side), printed, found)
                        for side, printed, found in zip(
                            part.contrast.against, each.printed, each.comparisons, strict=True
                        )
                    ],
                }
                for part in self.parts
                for each in part.columns
            ],
        }

    @property
    def p_values(self) -> paired.PValues | None:
        """p-values of holding and of failing; None if nothing is measured."""
        return paired.p_values([part.judged_by for part in self.parts if part.columns])


def _compared(side: dict[str, Any], printed: float | None, found: paired.Comparison | None) -> dict[str, Any]:
    """Return one comparison as JSON-ready values."""
    measured: dict[str, Any] = {}
    if found is not None:
        interval = None if found.interval is None else [round(end, 4) for end in found.interval]
        measured = {"measured": round(found.difference, 4), "interval": interval, "seeds": found.seeds}
    return {**side, "printed": None if printed is None else round(printed, 4), **measured}


def find(claims: Iterable[Claim], rows: Rows, measured: bool = False) -> list[Finding]:
    """Judge every claim by the rows of the tables it names; with `measured` only by columns that have
    records."""
    return [
        Finding(claim, tuple(_find(each, rows, measured) for each in claim.contrasts)) for claim in claims
    ]


def discoveries(findings: Iterable[Finding]) -> dict[str, tuple[int, int]]:
    """Verdict → number of claims with it, and number that keep it with the false discovery rate controlled
    over all measured claims."""
    listed = [(each.word, each.p_values) for each in findings if each.word != CANNOT]
    measured = [(word, values) for word, values in listed if values is not None]
    p_values = {
        paired.HOLDS: [holds for _, (holds, _) in measured],
        paired.FAILS: [fails for _, (_, fails) in measured],
    }
    return agreement.discoveries([word for word, _ in measured], p_values)


def _find(contrast: Contrast, rows: Rows, measured: bool) -> Part:
    kept: list[Measured] = []
    differences: list[list[tuple[dict[int, float], bool]]] = []
    for column in contrast.columns:
        pairs = [_differences(column.ours, side, rows) for side in column.theirs]
        comparisons = tuple(_compare(contrast, *pair) for pair in pairs)
        if measured and not any(comparisons):
            continue
        own, others = _printed(column.ours), map(_printed, column.theirs)
        printed = tuple(None if own is None or other is None else own - other for other in others)
        kept.append(Measured(column, comparisons, printed))
        differences.append(pairs)
    average = _average(contrast, differences) if contrast.rule == ON_AVERAGE and kept else None
    return Part(contrast, tuple(kept), average)


def _average(contrast: Contrast, columns: Sequence[Sequence[tuple[dict[int, float], bool]]]) -> Comparisons:
    """Compare the means over the columns; undecided until every column is measured."""
    found = []
    for sides in zip(*columns, strict=True):
        pairs = [side for side in sides if side[0]]
        sound = len(pairs) == len(columns) and all(sound for _, sound in pairs)
        means = paired.mean_over_columns([differences for differences, _ in pairs])
        found.append(_compare(contrast, means, sound))
    return tuple(found)


def _compare(contrast: Contrast, differences: Mapping[int, float], sound: bool) -> paired.Comparison | None:
    """Compare the differences; undecided if they are not `sound`."""
    found = paired.compare([*differences.values()], contrast.direction, contrast.margin)
    return found if found is None or sound else replace(found, holds=1.0, fails=1.0)


def _differences(ours: Side, theirs: Side, rows: Rows) -> tuple[dict[int, float], bool]:
    """Return seed → difference, and whether the seeds of both sides are independent repetitions."""
    found = [_row(side, rows) for side in (ours, theirs)]
    sides = [_by_seed(row, side.metric) for row, side in zip(found, (ours, theirs), strict=True)]
    own, other = sides
    if theirs.value is not None:
        sides, other = [own], dict.fromkeys(own, theirs.value)
    sound = not is_in_points(ours.metric) or all(map(paired.varies, sides))
    # Seeds that share one draw say nothing about other draws.
    drawn = not any(row is not None and is_drawn_once(row) for row in found)
    return paired.differences_of(own, other), sound and drawn


def _row(side: Side, rows: Rows) -> Row | None:
    """Return the side's row without deviations; None if its table fixes the draw."""
    alike = (row for row in rows.get(side.table, ()) if row.point == side.point and not row.deviations)
    return next((row for row in alike if row.cell.data_seed < 0), None)


def _by_seed(row: Row | None, metric: str) -> Mapping[int, float]:
    """Seed → score."""
    if row is None:
        return {}
    return row.scores[metric].by_seed if metric in row.scores else row.values_of(metric)


def _printed(side: Side) -> float | None:
    if side.value is not None:
        return side.value
    found = answered_figures(load(side.table), side.metric, **side.point)
    return next((figure.mean for figure in found), None)
