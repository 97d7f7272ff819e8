"""Protocols: the grid and the fixed settings of a published table, read from TOML.

A file has a `title`, a `[grid]` of axes that vary, and fixed `[settings]` (those of a `Cell`). `[[override]]`
blocks change grid or settings for some datasets, methods, backbones or clients; `chosen` says how a value was
chosen if it was chosen on the table itself. `[[published]]` blocks map the table's cells to printed figures.
A file that `extends` another states only what differs: its axes, settings and seeds replace the other's, its
overrides follow the other's.
"""

import re
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from fedsub.benchmark.spec.custom import by_name
from fedsub.benchmark.spec.schema import checked, fits
from fedsub.benchmark.spec.settings import AXES, SETTINGS, checked_setting, unknown_setting
from fedsub.datasets.catalogue import REGISTRY
from fedsub.datasets.errors import UserError, unknown
from fedsub.datasets.files import read_toml
from fedsub.datasets.options import OptionValue, Spec
from fedsub.datasets.paths import PLUGIN, is_path

FOLDER = Path(__file__).resolve().parents[1] / "protocols"
ARENA = Path(__file__).with_name("arena.toml")
"""The protocol of `fedsub arena`; outside `FOLDER`, so that --all does not run it."""
AT_ROUND = "@round"
"""Separates a score from the number of its round."""
AT_CLIENTS = "@clients"
"""Separates a score from the first and last client that it is averaged over, as `0-4`."""


@dataclass(frozen=True)
class Override:
    """Changes to the cells that match every condition; later overrides win."""

    when: Mapping[str, tuple[Any, ...]]
    """Axis → values that match; datasets and methods by bare name or as spelt in the grid."""
    grid: Mapping[str, tuple[Any, ...]]
    settings: Mapping[str, Any]
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    """Options of the method."""
    seeds: int | None = None
    """Number of seeds to run if a request names none; 0 runs none."""
    chosen: str = ""
    """How these settings, options or clients were chosen on this table itself because no paper states them;
    empty if a paper states them or no figure of the table depends on them."""

    @property
    def values(self) -> set[tuple[str, str]]:
        """The (part, name) pairs that the override sets; a setting and an option may share a name."""
        named = {"settings": self.settings, "options": self.options}
        return {(part, name) for part, given in named.items() for name in given}

    @cached_property
    def _when(self) -> dict[str, set[Any]]:
        """`when`, each path also by the name of its part."""
        return {axis: {*names, *(by_name(axis, name) for name in names)} for axis, names in self.when.items()}

    def matches(self, point: Mapping[str, Any]) -> bool:
        """Whether `point` satisfies every condition; an axis that it lacks satisfies none."""
        return all(
            axis in point and not names.isdisjoint(_names_of(axis, point[axis]))
            for axis, names in self._when.items()
        )


@dataclass(frozen=True)
class Published:
    """Printed figures that a protocol's cells reproduce: our names → the names in published.csv."""

    paper: str = ""
    table: str = ""
    metric: Mapping[str, str] = field(default_factory=lambda: {"accuracy": "accuracy"})
    dataset: Mapping[str, str] = field(default_factory=dict)
    partition: Mapping[str, str] = field(default_factory=dict)
    """A bare scheme stands for all its variants in the grid."""
    method: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Method as spelt in the grid → its `method`, and its `partition`, `clients`, `baseline` if different."""
    backbone: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    """Prefix of the figures' note, if nothing else distinguishes them."""
    scale: float = 1.0
    """Factor from the printed unit to ours."""
    runs: int = 1
    """Number of runs in the printed means; 1 if the paper does not state it."""
    drawn_once: bool = False
    """Whether the paper's runs share one partition and split, which may shift their mean."""
    baseline: str = ""
    """The method, as spelt in the grid, over which gains are judged; empty for none."""
    cannot: str = ""
    """Why no run can reproduce the figures, although cells report a score of that name; empty if runs can."""


@dataclass(frozen=True)
class Protocol:
    """One table: its grid, its fixed settings, and its published figures."""

    name: str
    title: str
    description: str
    grid: Mapping[str, tuple[Any, ...]]
    seeds: int
    metrics: tuple[str, ...]
    """Scores, `extras` and partition statistics shown, the main one first. `gain_over_NAME`: difference to
    method NAME. `change_from_NAME`: difference to the same method on partition NAME.
    `communication_pct_of_NAME`: bytes in both directions as a percentage of NAME's. `NAME@round5`: value in
    round 5. `accuracy@clients0-4`: value over clients 0 to 4."""
    settings: Mapping[str, Any]
    overrides: tuple[Override, ...] = field(default=())
    metric_files: tuple[str, ...] = ()
    """The .py files of users' metrics; each is named after its file."""
    published: tuple[Published, ...] = field(default=())

    @property
    def scores(self) -> tuple[str, ...]:
        """The metrics, then `roc_auc`, because a request can change the cells' task to link prediction."""
        return tuple(dict.fromkeys((*self.metrics, "roc_auc")))

    @property
    def own_table(self) -> str:
        """The printed table that the protocol reproduces, as named in the list of figures; empty for none."""
        return next((source_of(block.paper, block.table) for block in self.published), "")

    def grid_for(self, **point: Any) -> dict[str, tuple[Any, ...]]:
        """Return the grid, as overridden for the axes in `point`."""
        return self._overridden("grid", self.grid, point)

    def settings_for(self, **point: Any) -> dict[str, Any]:
        """Return the fixed settings at a point of the grid (all axes given). Unless the protocol names a
        selection metric, it is the graph's usual metric."""
        settings = self._overridden("settings", self.settings, point)
        graph = REGISTRY.get(bare(point["dataset"]))
        return {"selection_metric": graph.metric, **settings} if graph and graph.metric else settings

    def options_for(self, **point: Any) -> dict[str, OptionValue]:
        """Return the method's options from the overrides at a point of the grid (all axes given)."""
        return self._overridden("options", {}, point)

    def seeds_for(self, **point: Any) -> int:
        """Return the number of seeds at a point of the grid (all axes given) if a request names none."""
        said = [each.seeds for each in self._matching(point) if each.seeds is not None]
        return [self.seeds, *said][-1]

    def _overridden(self, part: str, base: Mapping[str, Any], point: Mapping[str, Any]) -> dict[str, Any]:
        values = dict(base)
        for override in self._matching(point):
            values |= getattr(override, part)
        return values

    def _matching(self, point: Mapping[str, Any]) -> list[Override]:
        """Return the overrides that match a point, in their order."""
        key = tuple(point.items())
        if key not in self._matched:
            self._matched[key] = [override for override in self.overrides if override.matches(point)]
        return self._matched[key]

    @cached_property
    def _matched(self) -> dict[tuple[tuple[str, Any], ...], list[Override]]:
        return {}

    def points(
        self,
        dataset: str,
        method: str,
        partitions: Iterable[str] = (),
        clients: Iterable[int] = (),
        backbones: Iterable[str] = (),
    ) -> Iterator[tuple[str, int, str]]:
        """Yield partition, clients and backbone of every cell of a dataset and method. A given argument
        replaces its axis of the grid."""
        for partition in partitions or self.grid_for(dataset=dataset, method=method)["partition"]:
            grid = self.grid_for(dataset=dataset, method=method, partition=partition)
            yield from product((partition,), clients or grid["clients"], backbones or grid["backbone"])

    def chosen_for(self, **point: Any) -> tuple[str, ...]:
        """Return one sentence per choice made on this table that holds at a point of the grid (all axes
        given), in the order of the overrides. A choice is left out if a later override, or the method's own
        brackets, sets one of its values again, even to the same value."""
        matching = self._matching(point)
        last: dict[tuple[str, str], Override | None] = {
            value: override for override in matching for value in override.values
        }
        last |= {("options", name): None for name in Spec(point["method"]).options}
        return tuple(
            override.chosen
            for override in matching
            if override.chosen and all(last[value] is override for value in override.values)
        )


def source_of(paper: str, table: str) -> str:
    """Return the name of a printed table."""
    return f"{paper}, {table}"


def _names_of(axis: str, value: Any) -> tuple[Any, ...]:
    """Return a value on an axis and its bare name; of a path, also those of its part."""
    if not is_path(str(bare(value))):
        return value, bare(value)
    named = by_name(axis, value)
    return value, bare(value), named, bare(named)


def bare(value: Any) -> Any:
    """Return a name without its options, any other value unchanged."""
    return value.partition("[")[0] if isinstance(value, str) else value


def names() -> list[str]:
    """Return the names of the benchmark's own protocols, `quick` first."""
    found = (path.stem for path in FOLDER.glob("*.toml"))
    return sorted(found, key=lambda name: (name != "quick", name))


def table_name(asked: str) -> str:
    """Return the name under which a table's records are kept, from its name or file."""
    return Path(asked).stem if asked.endswith(".toml") else asked


def load_protocol(name: str) -> Protocol:
    """Load the protocol called `name`, or from the file `name` if that ends in `.toml`.

    Raises UserError for an unknown name, a faulty file, and a user's file with the name of a table of the
    benchmark: both would keep their records in one place.
    """
    path = Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"
    if path.stem in names():
        if path.resolve().parent != FOLDER.resolve():
            raise UserError(f"{name}: the benchmark already has a table {path.stem}: rename the file")
    elif not name.endswith(".toml"):
        raise unknown("table", name, names())
    return parse_protocol(path.stem, _with_base(read_toml(path), {path.stem}))


def _with_base(content: dict[str, Any], seen: set[str]) -> dict[str, Any]:
    """Return a file's content merged into the protocol that it extends."""
    if "extends" not in content:
        return content
    name = content["extends"]
    if not isinstance(name, str) or name not in names():
        raise unknown("table in 'extends'", str(name), names())
    if name in seen:
        raise UserError(f"protocol {name} extends itself: extend another one")
    base = _with_base(read_toml(FOLDER / f"{name}.toml"), seen | {name})
    inherited = {key: value for key, value in base.items() if key != "published"}
    merged = {**inherited, **{key: value for key, value in content.items() if key != "extends"}}
    # The file's own values replace those of the base's overrides too: as an override for all cells.
    own = {key: content[key] for key in ("grid", "settings", "seeds") if key in content}
    for key in ("grid", "settings"):
        if isinstance(given := own.get(key, {}), dict):
            merged[key] = {**base.get(key, {}), **given}
            own[key] = {name: value for name, value in given.items() if name != "dataset"}
    if isinstance(overrides := content.get("override", []), list):
        merged["override"] = [*base.get("override", []), own, *overrides]
    return merged


def parse_protocol(name: str, content: Mapping[str, Any]) -> Protocol:
    """Return the protocol that a parsed TOML file describes.

    Raises UserError naming the faulty key and the nearest valid ones.
    """
    try:
        given = _table(content, _TOP, "")
        grid = _grid(given.get("grid", {}), "grid")
        if missing := [axis for axis in AXES if axis not in grid]:
            raise UserError(f"[grid] lacks {', '.join(missing)}")
        metrics = _metrics(given.get("metrics", "accuracy"))
        return Protocol(
            name=name,
            title=given.get("title", name),
            description=given.get("description", ""),
            grid=grid,
            seeds=given.get("seeds", 1),
            metrics=tuple(Path(each).stem if each.endswith(PLUGIN) else each for each in metrics),
            metric_files=tuple(each for each in metrics if each.endswith(PLUGIN)),
            settings=_settings(given.get("settings", {}), "settings"),
            overrides=tuple(map(_override, given.get("override", []))),
            published=tuple(map(_published, given.get("published", []))),
        )
    except UserError as error:
        raise UserError(f"protocol {name}: {error}") from error


def _toml_type(hint: Any) -> Any:
    """Return the TOML type of a field: a table for a mapping."""
    if typing.get_origin(hint) is not Mapping:
        return hint
    return dict[str, str] if hint == Mapping[str, str] else dict


_OVERRIDE = {name: _toml_type(hint) for name, hint in typing.get_type_hints(Override).items()}
_PUBLISHED = {name: _toml_type(hint) for name, hint in typing.get_type_hints(Published).items()}
_TOP = {
    **dict.fromkeys(("title", "description"), str),
    **dict.fromkeys(("grid", "settings"), dict),
    **dict.fromkeys(("override", "published"), list[dict]),
    "seeds": int,
    "metrics": Any,
}


_DEPENDS_ON: Mapping[str, tuple[str, ...]] = {
    "method": ("dataset",),
    "partition": ("dataset", "method"),
    **dict.fromkeys(("clients", "backbone"), ("dataset", "method", "partition")),
}
"""Axis → axes by which an override may change its values (`Protocol.points`)."""


def _check_keys(content: Iterable[str], valid: Iterable[str], where: str) -> None:
    for key in content:
        if key not in valid:
            raise unknown("key", key, valid, f" in [{where}]" if where else "")


def _checked(key: str, value: Any, hint: Any) -> Any:
    """Return the value, text stripped. Raises UserError if its type is not `hint`."""
    if hint == dict[str, str] and isinstance(value, dict):
        return {name: _checked(f"{key}.{name}", text, str) for name, text in value.items()}
    checked(f"key {key!r}", value, hint)
    return value.strip() if isinstance(value, str) else value


def _table(content: Mapping[str, Any], hints: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return a table after checking its keys and types against `hints`; counts must be at least 1."""
    _check_keys(content, hints, where)
    given = {key: _checked(key, value, hints[key]) for key, value in content.items()}
    for key, value in given.items():
        if hints[key] is int and value < 1:
            raise UserError(f"key {key!r} must be at least 1, not {value}")
    return given


def _grid(content: Mapping[str, Any], where: str) -> dict[str, tuple[Any, ...]]:
    _check_keys(content, AXES, where)
    return {axis: _values(axis, values) for axis, values in content.items()}


def _metrics(values: Any) -> tuple[str, ...]:
    listed = _values("metrics", values)
    for metric in listed:
        _, at, number = metric.partition(AT_ROUND)
        if at and not number.isdecimal():
            raise UserError(f"key 'metrics' must name a round by its number, not {metric!r}")
        _, at, span = metric.partition(AT_CLIENTS)
        if at and not re.fullmatch(r"\d+-\d+", span):
            raise UserError(f"key 'metrics' must name clients as first-last, not {metric!r}")
    return listed


def _values(axis: str, values: Any) -> tuple[Any, ...]:
    listed = tuple(values) if isinstance(values, list) else (values,)
    if not listed:
        raise UserError(f"key {axis!r} must list at least one value")
    kind, wanted = (int, "whole numbers") if axis == "clients" else (str, "names")
    if not all(fits(value, kind) for value in listed):
        raise UserError(f"key {axis!r} must be {wanted}, not {values!r}")
    return listed


def _settings(content: Mapping[str, Any], where: str) -> dict[str, Any]:
    for key in content:
        if key not in SETTINGS:
            raise unknown_setting(key, "key", f" in [{where}]")
    return {key: checked_setting(key, value) for key, value in content.items()}


def _override(content: Mapping[str, Any]) -> Override:
    given = _table(content, _OVERRIDE, "override")
    if (given.get("seeds") or 0) < 0:
        raise UserError(f"key 'seeds' must be at least 0, not {given['seeds']}")
    readers = {"when": _grid, "grid": _grid, "settings": _settings}
    read = {key: read(given.get(key, {}), f"override.{key}") for key, read in readers.items()}
    for axis in read["grid"]:
        if axis not in _DEPENDS_ON or not read["when"].keys() <= {*_DEPENDS_ON[axis]}:
            allowed = "; ".join(f"{name} by {', '.join(by)}" for name, by in _DEPENDS_ON.items())
            raise UserError(f"an override cannot change {axis} so: its grid may change {allowed}")
    return Override(**{**given, **read})


def _published(content: Mapping[str, Any]) -> Published:
    given = _table(content, _PUBLISHED, "published")
    methods = {name: _printed(name, entry) for name, entry in given.get("method", {}).items()}
    return Published(**{**given, "method": methods})


def _printed(name: str, entry: Any) -> dict[str, str]:
    """Return the printed names of a method; a text stands for a table with only the key `method`."""
    if isinstance(entry, str):
        return {"method": entry}
    if not isinstance(entry, dict):
        raise UserError(f"key {name!r} must be text or a table with a key 'method', not {entry!r}")
    where = f"published.method.{name}"
    if "method" not in entry:
        raise UserError(f"[{where}] lacks method, the printed name")
    return _table(entry, dict.fromkeys(("method", "partition", "clients", "baseline"), str), where)
