"""The papers' claims (claims.toml), and the contrasts of cells that test them.

A contrast names a table, a method in it, the sides to test it `against`, a metric, a direction and a margin.
Its columns are the method's cells in the table's grid, restricted by `only` and `without`. Each column is
compared with the same cell with another method, axis value, table or metric, or with a fixed value. The key
`columns` says whether the contrast must hold in `every` column or `on average`.

A claim with one contrast has the contrast's keys itself. A claim with several, which must all hold, has a
block `contrast` for each, and its own keys apply to all of them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

import msgspec

from fedsub.benchmark.analysis.agreement import bare_metric
from fedsub.benchmark.analysis.paired import DIRECTIONS, EQUAL
from fedsub.benchmark.analysis.published import grid_points
from fedsub.benchmark.spec.protocol import ARENA, AXES, Protocol, bare, load_protocol
from fedsub.datasets.errors import UserError, check_choice, unknown
from fedsub.datasets.files import read_toml

FILE = Path(__file__).parent / "claims.toml"
ADVICE = FILE.with_name("advice.toml")
"""Advice on which method to use when, as claims tested on the arena's blocks."""
ON_AVERAGE = "on average"
_SIDE = (*AXES, "table", "metric", "value")


@dataclass(frozen=True)
class Side:
    """One side of a comparison: a score of a cell, or a fixed value."""

    table: str = ""
    point: Mapping[str, Any] = field(default_factory=dict)
    """Its value on every axis."""
    metric: str = ""
    value: float | None = None
    """A fixed value instead of a cell."""


@dataclass(frozen=True)
class Column:
    """One side, and the sides it is compared with."""

    ours: Side
    theirs: tuple[Side, ...]


class Contrast(
    msgspec.Struct,
    frozen=True,
    dict=True,
    forbid_unknown_fields=True,
    rename={"direction": "is", "rule": "columns"},
):
    """A test of a claim, or of a part of it."""

    table: tuple[str, ...]
    method: tuple[str, ...]
    direction: str
    against: tuple[Mapping[str, Any], ...]
    metric: tuple[str, ...] = ("accuracy",)
    margin: float = 0.0
    """Bound that the difference must exceed; a negative one allows a shortfall. Half-width for `equal`."""
    rule: Literal["every", "on average"] = "every"
    only: Mapping[str, tuple[Any, ...]] = msgspec.field(default_factory=dict)
    without: tuple[Mapping[str, Any], ...] = ()
    """Exceptions that the paper names: axes with their values, all of which must match."""

    def __post_init__(self) -> None:
        """Raises UserError for a direction, table, metric or cell that does not exist."""
        check_choice("direction", self.direction, DIRECTIONS)
        for name in {name for side in self.against for name in side}:
            check_choice("key of a side", name, _SIDE)
        for axis in (*self.only, *(axis for place in self.without for axis in place)):
            check_choice("axis", axis, AXES)
        if self.direction == EQUAL and self.margin <= 0:
            raise UserError(f"direction {EQUAL} needs a margin above 0, not {self.margin}")
        if not self.columns:
            raise UserError("only and without leave no column")

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """Every column, in the order of the grid. Raises UserError for a side that is no cell of its table or
        whose metric the table lacks."""
        found = [
            Column(
                Side(table, point, metric),
                tuple(self._side(change, table, point, metric) for change in self.against),
            )
            for table in self.table
            for point in self._points(table)
            for metric in self.metric
        ]
        for column in found:
            for side in (column.ours, *column.theirs):
                known = {bare_metric(metric) for metric in load(side.table).scores} if side.table else set()
                if side.value is None and bare_metric(side.metric) not in known:
                    raise unknown(f"metric in {side.table}", side.metric, known)
        return tuple(found)

    def _points(self, table: str) -> Iterator[dict[str, Any]]:
        only, listed = self.only, _grid(table)
        for method in self.method:
            if not any(point["method"] == method for point in listed):
                raise unknown(f"method in {table}", method, {point["method"] for point in listed})
        for axis, values in only.items():
            present = {value for point in listed for value in (point[axis], bare(point[axis]))}
            for value in values:
                if value not in present:
                    raise unknown(f"{axis} in {table}", str(value), map(str, present))
        for place in self.without:
            if not any(_is_at(point, place) for point in listed):
                raise UserError(f"{dict(place)} matches no cell in the grid of {table}")
        for point in listed:
            wanted = point["method"] in self.method and all(
                point[axis] in values or bare(point[axis]) in values for axis, values in only.items()
            )
            if wanted and not any(_is_at(point, place) for place in self.without):
                yield point

    @staticmethod
    def _side(change: Mapping[str, Any], table: str, point: Mapping[str, Any], metric: str) -> Side:
        if "value" in change:
            return Side(value=float(change["value"]))
        other = str(change.get("table", table))
        wanted = {**point, **{axis: change[axis] for axis in AXES if axis in change}}
        # A bare scheme name matches the variant that the grid has for this graph.
        loose = change.keys() - {"method"}
        matching = [
            listed
            for listed in _grid(other)
            if all(
                listed[axis] == wanted[axis] or (axis in loose and bare(listed[axis]) == wanted[axis])
                for axis in AXES
            )
        ]
        if len(matching) != 1:
            raise UserError(f"{wanted} matches {len(matching)} cells in the grid of {other}, not one")
        return Side(other, matching[0], str(change.get("metric", metric)))


class Claim(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A claim of a paper in our words, and its tests."""

    paper: str
    place: str
    """Where the paper says it: section, table or figure."""
    says: str
    contrasts: tuple[Contrast, ...]
    """Its tests, which must all hold."""
    note: str = ""
    """Remarks on the verdict: columns left out, limits of the runs."""
    cannot: str = ""
    """Why no run here can test it; empty if runs can."""


def _is_at(point: Mapping[str, Any], place: Mapping[str, Any]) -> bool:
    return all(value in (point[axis], bare(point[axis])) for axis, value in place.items())


@cache
def load(table: str) -> Protocol:
    """The protocol of a table, or of the arena. Raises UserError for an unknown one."""
    return load_protocol(str(ARENA) if table == ARENA.stem else table)


@cache
def _grid(table: str) -> tuple[dict[str, Any], ...]:
    return tuple(dict(zip(AXES, point, strict=True)) for point in grid_points(load(table)))


def load_claims(path: Path = FILE) -> tuple[Claim, ...]:
    """All claims of a file, checked. Raises UserError naming the claim at fault."""
    found = []
    for number, block in enumerate(read_toml(path).get("claim", []), start=1):
        try:
            found.append(msgspec.convert(_whole(block), Claim))
        except (UserError, msgspec.ValidationError) as error:
            raise UserError(f"{path}, claim {number} ({block.get('says', '?')}): {error}") from error
    return tuple(found)


def _whole(block: Mapping[str, Any]) -> dict[str, Any]:
    """Return the block with all its contrasts, each completed by the claim's shared keys."""
    own = {key: value for key, value in block.items() if key in Claim.__struct_fields__}
    shared = {key: value for key, value in block.items() if key not in (*own, "contrast")}
    parts = block.get("contrast", [{}])
    if not parts:
        raise UserError("contrast is empty: leave it out or give a block for each contrast")
    return {**own, "contrasts": [_contrast({**shared, **part}) for part in parts]}


def _contrast(block: Mapping[str, Any]) -> dict[str, Any]:
    """Return the block with single texts as lists, and each side as a mapping."""
    found = dict(block)
    for key in ("table", "method", "metric"):
        if isinstance(found.get(key), str):
            found[key] = [found[key]]
    sides = found.get("against", [])
    return {**found, "against": [{"method": side} if isinstance(side, str) else side for side in sides]}
