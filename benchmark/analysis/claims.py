"""The papers' own claims (claims.toml): what each says, and the contrasts of cells that test it.

A contrast names a table, a method in it and what that is `against`, a metric, a direction and a margin. Its
columns are all cells of the method in the table's grid, less those that `only` leaves out; against each
stands the same cell with a method, or another axis, table or metric, replaced, or a fixed value. In how many
columns it must hold is said by `columns`: `every`, `all but N`, or `on average`.

A claim of one contrast gives its keys itself; one of several, which must all hold, has a block `contrast` for
each, on top of the keys that they share.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from fedsub.benchmark.analysis.paired import DIRECTIONS, EQUAL
from fedsub.benchmark.analysis.published import grid_points
from fedsub.benchmark.spec.protocol import AT_CLIENTS, AT_ROUND, AXES, Protocol, bare, load_protocol
from fedsub.benchmark.spec.schema import checked
from fedsub.datasets.errors import UserError, check_choice, unknown
from fedsub.datasets.files import read_toml

FILE = Path(__file__).parent / "claims.toml"
EVERY, ON_AVERAGE, ALL_BUT = "every", "on average", "all but "
_OF_CLAIM: Mapping[str, Any] = {"paper": str, "place": str, "says": str, "note": str}
_OF_CONTRAST: Mapping[str, Any] = {
    "table": list[str],
    "method": list[str],
    "metric": list[str],
    "is": str,
    "against": list[str | dict[str, Any]],
    "margin": float,
    "columns": str,
    "only": dict[str, list[Any]],
    "without": list[dict[str, Any]],
}
_SIDE = (*AXES, "table", "metric", "value")
_DEFAULTS: Mapping[str, Any] = {
    "metric": ["accuracy"],
    "margin": 0.0,
    "columns": EVERY,
    "only": {},
    "without": [],
}


@dataclass(frozen=True)
class Side:
    """One side of a comparison: a score of a cell, or a fixed value."""

    table: str = ""
    point: tuple[tuple[str, Any], ...] = ()
    """Axis and value, of every axis."""
    metric: str = ""
    value: float | None = None
    """Given in place of a cell."""


@dataclass(frozen=True)
class Column:
    """One side, and all that it is compared with."""

    ours: Side
    theirs: tuple[Side, ...]


@dataclass(frozen=True)
class Contrast:
    """What tests a claim, or a part of it."""

    table: tuple[str, ...]
    method: tuple[str, ...]
    metric: tuple[str, ...]
    direction: str
    against: tuple[Mapping[str, Any], ...]
    margin: float = 0.0
    """What the difference must exceed; below 0 it may fall short by as much. Of `equal` the half-width."""
    rule: str = EVERY
    only: Mapping[str, tuple[Any, ...]] | None = None
    without: tuple[Mapping[str, Any], ...] = ()
    """Places that the paper itself names as exceptions: axes with their values, all of which must be met."""

    def __post_init__(self) -> None:
        """Raises UserError for a direction, rule, table, metric or cell that does not exist."""
        check_choice("direction", self.direction, DIRECTIONS)
        if not re.fullmatch(rf"{EVERY}|{ON_AVERAGE}|{ALL_BUT}[1-9]\d*", self.rule):
            raise UserError(f"columns must be {EVERY}, {ON_AVERAGE} or {ALL_BUT}N, not {self.rule!r}")
        if self.direction == EQUAL and self.margin <= 0:
            raise UserError(f"what is {EQUAL} needs a margin above 0, not {self.margin}")
        if self.needed(len(self.columns)) < 1:
            raise UserError(f"{self.rule} leaves none of {len(self.columns)} columns")

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """Every column, in the order of the grid. Raises UserError if one side is no cell of its table."""
        found = [
            Column(Side(table, tuple(point.items()), metric), self._against(table, point, metric))
            for table in self.table
            for point in self._points(table)
            for metric in self.metric
        ]
        for column in found:
            for side in (column.ours, *column.theirs):
                _check_side(side)
        return tuple(found)

    @cached_property
    def tables(self) -> frozenset[str]:
        """Those that have a side of it."""
        sides = (side for column in self.columns for side in (column.ours, *column.theirs))
        return frozenset(side.table for side in sides if side.value is None)

    def needed(self, columns: int) -> int:
        """In how many of so many columns it must hold."""
        return columns - int(self.rule.removeprefix(ALL_BUT)) if self.rule.startswith(ALL_BUT) else columns

    def _points(self, table: str) -> Iterator[dict[str, Any]]:
        only, listed = self.only or {}, _grid(table)
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
                raise UserError(f"{dict(place)} is no place in the grid of {table}")
        for point in listed:
            wanted = point["method"] in self.method and all(
                point[axis] in values or bare(point[axis]) in values for axis, values in only.items()
            )
            if wanted and not any(_is_at(point, place) for place in self.without):
                yield point

    def _against(self, table: str, point: Mapping[str, Any], metric: str) -> tuple[Side, ...]:
        return tuple(self._side(change, table, point, metric) for change in self.against)

    @staticmethod
    def _side(change: Mapping[str, Any], table: str, point: Mapping[str, Any], metric: str) -> Side:
        if "value" in change:
            return Side(value=float(change["value"]))
        other = str(change.get("table", table))
        wanted = {**point, **{axis: change[axis] for axis in AXES if axis in change}}
        # A scheme by its bare name is the variant that the grid has for this graph.
        matching = [
            listed
            for listed in _grid(other)
            if all(
                listed[axis] == wanted[axis] or (axis in change and bare(listed[axis]) == wanted[axis])
                for axis in AXES
                if axis != "method"
            )
            and listed["method"] == wanted["method"]
        ]
        if len(matching) != 1:
            raise UserError(f"{wanted} stands for {len(matching)} cells of the grid of {other}, not for one")
        return Side(other, tuple(matching[0].items()), str(change.get("metric", metric)))


@dataclass(frozen=True)
class Claim:
    """What a paper says, in our words, and what tests it."""

    paper: str
    place: str
    """Where the paper says it: section, table or figure."""
    says: str
    contrasts: tuple[Contrast, ...]
    """All of which must hold."""
    note: str = ""
    """What a reader of the verdict must know: why columns are left out, what the runs cannot tell."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """Those of all its contrasts."""
        return tuple(column for contrast in self.contrasts for column in contrast.columns)

    @cached_property
    def tables(self) -> frozenset[str]:
        """Those that have a side of it."""
        return frozenset().union(*(contrast.tables for contrast in self.contrasts))


def _is_at(point: Mapping[str, Any], place: Mapping[str, Any]) -> bool:
    return all(value in (point[axis], bare(point[axis])) for axis, value in place.items())


def _check_side(side: Side) -> None:
    """Raises UserError if the table does not have the metric."""
    if side.value is None:
        metrics = {_bare_metric(metric) for metric in load(side.table).scores}
        if _bare_metric(side.metric) not in metrics:
            raise unknown(f"metric in {side.table}", side.metric, metrics)


def _bare_metric(metric: str) -> str:
    """The score without the round or the clients at which it is read."""
    return re.split(f"{AT_ROUND}|{AT_CLIENTS}", metric)[0]


@cache
def load(table: str) -> Protocol:
    """The protocol of a table. Raises UserError for an unknown one."""
    return load_protocol(table)


@cache
def _grid(table: str) -> tuple[dict[str, Any], ...]:
    return tuple(dict(zip(AXES, point, strict=True)) for point in grid_points(load(table)))


def load_claims(path: Path = FILE) -> tuple[Claim, ...]:
    """All claims of a file, checked. Raises UserError naming the claim at fault."""
    content = read_toml(path)
    found = []
    for number, block in enumerate(checked("claim", content.get("claim"), list[dict[str, Any]]), start=1):
        try:
            found.append(_claim(block))
        except UserError as error:
            raise UserError(f"{path}, claim {number} ({block.get('says', '?')}): {error}") from error
    return tuple(found)


def _claim(block: Mapping[str, Any]) -> Claim:
    known = (*_OF_CLAIM, *_OF_CONTRAST, "contrast")
    for key in block:
        if key not in known:
            raise unknown("key", key, known)
    own = {key: checked(key, value, _OF_CLAIM[key]) for key, value in block.items() if key in _OF_CLAIM}
    for key in ("paper", "place", "says"):
        if key not in own:
            raise UserError(f"a claim must have {key}")
    shared = {key: value for key, value in block.items() if key not in (*_OF_CLAIM, "contrast")}
    parts = checked("contrast", block.get("contrast", [{}]), list[dict[str, Any]])
    if not parts:
        raise UserError("contrast is empty: leave it out or give a block for each contrast")
    return Claim(**own, contrasts=tuple(_contrast({**shared, **part}) for part in parts))


def _contrast(block: Mapping[str, Any]) -> Contrast:
    for key in block:
        if key not in _OF_CONTRAST:
            raise unknown("key of a contrast", key, _OF_CONTRAST)
    lists = {key: [block[key]] for key in ("table", "method", "metric") if isinstance(block.get(key), str)}
    values = {**_DEFAULTS, **block, **lists}
    for key, hint in _OF_CONTRAST.items():
        if key not in values:
            raise UserError(f"a claim must have {key}")
        if key not in ("against", "only"):
            checked(key, values[key], hint)
    sides = [{"method": side} if isinstance(side, str) else dict(side) for side in values["against"]]
    for name in {name for side in sides for name in side}:
        if name not in _SIDE:
            raise unknown("key of a side", name, _SIDE)
    for axis in (*values["only"], *(axis for place in values["without"] for axis in place)):
        if axis not in AXES:
            raise unknown("axis", axis, AXES)
    return Contrast(
        table=tuple(values["table"]),
        method=tuple(values["method"]),
        metric=tuple(values["metric"]),
        direction=values["is"],
        against=tuple(sides),
        margin=float(values["margin"]),
        rule=values["columns"],
        only={axis: tuple(listed) for axis, listed in values["only"].items()},
        without=tuple(dict(place) for place in values["without"]),
    )
