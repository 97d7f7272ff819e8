"""Planning: which cells a request runs, and which parts of it are skipped and why."""

import difflib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from fedsub.benchmark.machine import check_device
from fedsub.benchmark.spec import catalog
from fedsub.benchmark.spec.cell import NODE_CLASSIFICATION, Cell
from fedsub.benchmark.spec.custom import NamedFiles, by_name, paths_of, user_objects_of
from fedsub.benchmark.spec.protocol import AT_CLIENTS, AT_ROUND, Protocol, bare, load_protocol, names
from fedsub.benchmark.spec.request import SEARCH_SEEDS, Request
from fedsub.benchmark.spec.settings import AXES, setting_from_text
from fedsub.datasets.errors import UserError, unknown
from fedsub.datasets.files import expanded, locate
from fedsub.datasets.options import OptionValue, Spec, format_name, parse_name
from fedsub.datasets.paths import PLUGIN, is_path
from fedsub.datasets.plugins import NOT_RUN, may_run, user_objects
from fedsub.methods.stacked.architecture import OWN, runs_with

DEFAULT = "default"
QUICK = "quick"


def _network(*names: str) -> tuple[str, Callable[[Cell], bool]]:
    """The condition that a cell's backbone is one of `names` or a user's own: in words, and as a test."""
    return f"backbone {' or '.join(names)}", lambda cell: runs_with((*names, OWN), cell.architecture.backbone)


_READ_WITH: Mapping[str, tuple[str, Callable[[Cell], bool]]] = {
    "hops": _network("sgc"),
    "norm": ("hidden layers", lambda cell: cell.architecture.backbone != "sgc"),
    "residual": _network("gcn", "gat"),
    "heads": _network("gat"),
    "gpr_hops": _network("gprgnn"),
    "gpr_alpha": _network("gprgnn"),
    "gpr_dropout": _network("gprgnn"),
    "privacy_delta": ("privacy_noise", lambda cell: cell.schedule.privacy_noise > 0),
}
"""Setting → condition under which it has an effect: in words, and as a test of a cell."""


@dataclass(frozen=True)
class Skip:
    """A part of the request that will not run, with reason and fix."""

    what: str
    reason: str


@dataclass(frozen=True)
class Plan:
    """The cells to run, each once per table that requests it, and what is skipped."""

    cells: tuple[Cell, ...]
    skipped: tuple[Skip, ...]


def protocols_for(request: Request) -> list[Protocol]:
    """Return the protocols that a request names, each once. Raises UserError as `load_protocol`, and for two
    different ones of one name, whose records and pages would mix."""
    tables: Sequence[str] = request.table or (DEFAULT if request.dataset or request.method else QUICK,)
    if request.all:
        tables = [name for name in names() if name not in (DEFAULT, QUICK)]
    found: dict[str, Protocol] = {}
    for protocol in map(load_protocol, tables):
        if found.setdefault(protocol.name, protocol) != protocol:
            raise UserError(f"two tables are called {protocol.name}: rename the file of one")
    return [*found.values()]


def make_plan(request: Request, digests: Mapping[tuple[str, str], str] | None = None) -> Plan:
    """Plan every cell of a request; `digests`: see `NamedFiles`.

    Raises UserError for an unknown name, an invalid setting, and an empty plan.
    """
    request = replace(request, dataset=tuple(map(_located, request.dataset)))
    _check_names(request)
    grid = settings_grid(request.settings)
    if kept := sorted({*request.seeds} & {*SEARCH_SEEDS}):
        raise UserError(f"seeds {kept} belong to searches (`tune`): give other seeds")
    rows: list[Cell] = []
    cells: dict[tuple[str, str], Cell] = {}
    skipped: dict[Skip, None] = {}
    identify = _Identified(digests)
    protocols = protocols_for(request)
    metric_files: dict[str, Path] = {}
    for protocol in protocols:
        _check_metrics(protocol, metric_files)
        _check_overrides(protocol, request)
    for protocol, replaced in product(protocols, grid):
        unasked = 0
        if code := _not_run(*protocol.metric_files):
            skipped[code] = None
            continue
        for item in _expand(protocol, request, replaced):
            if isinstance(item, UserError):
                raise item
            if isinstance(item, Skip):
                skipped[item] = None
            elif seeds := request.seeds or range(protocol.seeds_for(**item.point)):
                rows.append(identify(item))
                for cell in map(rows[-1].with_seed, seeds):
                    cells.setdefault((cell.protocol, cell.key), cell)
            else:
                unasked += 1
        if unasked:
            skipped[Skip(f"{unasked} rows of {protocol.name}", "give --seeds to run them")] = None
    if not cells:
        raise UserError("nothing to run: " + "; ".join(f"{skip.what}: {skip.reason}" for skip in skipped))
    _check_effects(grid[0], rows)
    for cell in {_named(row): row for row in rows}.values():
        with user_objects(user_objects_of(cell)):
            _check_names_of(cell)
            check_device(cell.device, cell.kernel, request.is_elsewhere)
    return Plan(tuple(_in_shard(cells.values(), request.shard)), tuple(skipped))


def _check_metrics(protocol: Protocol, files: dict[str, Path]) -> None:
    """Raises UserError for a metric whose name is close to a known one. Any other name passes: methods may
    report scores of their own. Raises UserError too for a file with the name of a metric or of one of
    `files`, to which it is added."""
    names = {metric.partition(AT_ROUND)[0].partition(AT_CLIENTS)[0] for metric in protocol.metrics}
    listed = catalog.parts("metric")
    for path in map(Path, protocol.metric_files):
        if path.stem in listed or files.setdefault(path.stem, path.resolve()) != path.resolve():
            raise UserError(
                f"{protocol.name}: there is another metric {path.stem}: rename {path} and its function"
            )
    for name in sorted(names - listed.keys()):
        if near := difflib.get_close_matches(name, listed, cutoff=0.85):
            raise UserError(f"{protocol.name}: unknown metric {name!r}: did you mean {', '.join(near)}?")


def _check_overrides(protocol: Protocol, request: Request) -> None:
    """Raises UserError for an override's condition that no cell can meet: a name that is not in the grid and
    that no request can give."""
    for axis in ("dataset", "method", "partition", "backbone"):
        grids = (protocol.grid, *(override.grid for override in protocol.overrides))
        listed = {text for grid in grids for text in grid.get(axis, ())} | {*getattr(request, axis)}
        in_files = {bare(name) for text in listed if (name := by_name(axis, text)) != text}
        wanted = {name for override in protocol.overrides for name in override.when.get(axis, ())}
        for name in sorted(wanted - listed):
            try:
                if bare(by_name(axis, name)) not in in_files:
                    catalog.checked(axis, name)
            except UserError as error:
                raise UserError(f"{protocol.name}: an override matches nothing: {error}") from error


def settings_grid(texts: Iterable[str]) -> list[dict[str, Any]]:
    """Return every combination of settings, each `name=value`; a setting given twice takes either value.

    Raises UserError for an unknown setting or task.
    """
    found: dict[str, dict[Any, Any]] = {}
    for name, value in map(setting_from_text, texts):
        found.setdefault(name, {})[repr(value)] = value
    for task in found.get("task", {}).values():
        catalog.checked("task", task)
    choices = [each.values() for each in found.values()]
    return [dict(zip(found, chosen, strict=True)) for chosen in product(*choices)]


def _check_effects(replaced: Iterable[str], cells: Collection[Cell]) -> None:
    """Raises UserError for a requested setting that no cell reads: its cells would have new keys and the same
    results."""
    for name, (needed, is_read) in _READ_WITH.items():
        if name in replaced and not any(map(is_read, cells)):
            raise UserError(f"{name} has no effect here: it needs {needed}; leave it out")


def _in_shard(cells: Iterable[Cell], shard: tuple[int, int] | None) -> Iterator[Cell]:
    """Yield the cells of the I-th of N shards; cells of one key fall into one shard."""
    for cell in cells:
        group, _, seed = cell.key.partition("-")
        if shard is None or (int(group, 16) + int(seed)) % shard[1] == shard[0] - 1:
            yield cell


def grid_cells(protocol: Protocol, datasets: tuple[str, ...] = ()) -> list[Cell]:
    """Return one cell, with seed 0, for every runnable point of a table's grid, or only those of some
    `datasets`. Raises UserError for an unknown one."""
    request, identify = Request(dataset=datasets), _Identified()
    _check_names(request)
    return [identify(item) for item in _expand(protocol, request, {}) if isinstance(item, Cell)]


class _Identified:
    """Adds the digests and versions of a cell's parts to it, computing each once."""

    def __init__(self, digests: Mapping[tuple[str, str], str] | None = None) -> None:
        self._files = NamedFiles(digests or {})
        self._versions: dict[tuple[str, ...], str] = {}

    def __call__(self, cell: Cell) -> Cell:
        parts = (cell.method, cell.partition.name, cell.split.name, cell.task.name)
        if parts not in self._versions:
            self._versions[parts] = versions_of(cell)
        named, versions = self._files.named(cell), self._versions[parts]
        return replace(named, versions=versions) if versions else named


def _check_names(request: Request) -> None:
    for text in request.dataset:
        _check_graph(text)
    for text in request.partition:
        if not text.endswith(PLUGIN) and expanded(text).is_file():
            raise UserError(f"{text} is no partition scheme: write file[path={text}]")
    for axis in ("partition", "method", "backbone"):
        for text in getattr(request, axis):
            catalog.checked(axis, text)


def _located(text: str) -> str:
    """Return a graph's name, or its archive's path if it is no known graph and the folder of archives holds
    it."""
    name, options = parse_name(text)
    if is_path(name) or name in catalog.parts("dataset") or (path := locate(name)) is None:
        return text
    return format_name(str(path), options)


def _check_graph(text: str) -> None:
    name, _ = parse_name(text)
    if is_path(name) and not expanded(name).exists():
        raise UserError(f"there is no graph at {name}: check the path")
    catalog.checked("dataset", text)


def _named(cell: Cell) -> tuple[str, ...]:
    named = cell.dataset, cell.partition, cell.split, cell.task, cell.architecture.backbone
    return *map(str, named), cell.schedule.selection_metric, cell.kernel, cell.device


def _check_names_of(cell: Cell) -> None:
    """Check names and values that would make every run fail."""
    if "dataset" not in paths_of(cell):
        _check_graph(cell.dataset.text)
    for part in ("dataset", "partition", "split", "task"):
        catalog.checked(part, getattr(cell, part).text)
    catalog.checked("backbone", cell.architecture.backbone)
    catalog.checked("kernel", cell.kernel)
    if cell.schedule.selection_metric:
        catalog.check_metric(cell.task.text, cell.schedule.selection_metric)


def versions_of(cell: Cell) -> str:
    """Return `Cell.versions`; user-supplied files have digests instead of versions."""
    found = {known_as: _version(part, name) for part, (known_as, name) in _versioned(cell).items()}
    return ",".join(f"{name}={version}" for name, version in found.items() if version != 1)


def outdated_parts(cell: Cell) -> tuple[str, ...]:
    """Return the cell's parts (method, partition scheme, split, task) whose version is not the present one.

    A plug-in that is no longer installed counts as unchanged. So does a file: its digest identifies its
    state, and no page runs it.
    """
    recorded = dict(item.rpartition("=")[::2] for item in cell.versions.split(",") if item)
    found = []
    for part, (known_as, name) in _versioned(cell).items():
        with suppress(UserError):
            if str(_version(part, name)) != recorded.get(known_as, "1"):
                found.append(known_as)
    return tuple(found)


def _versioned(cell: Cell) -> dict[str, tuple[str, str]]:
    """Part that is no user's file → its name in `Cell.versions`, and its own."""
    scheme = cell.partition.name
    found = {"method": (cell.method, cell.method), "partition": (scheme, scheme)}
    found |= {"split": ("split", cell.split.name), "task": ("task", cell.task.name)}
    own = paths_of(cell)
    return {part: each for part, each in found.items() if part not in own and not each[1].endswith(PLUGIN)}


def _version(part: str, name: str) -> int:
    return (catalog.describe(name) if part == "method" else catalog.part(part, name)).version


def _expand(
    protocol: Protocol, request: Request, replaced: Mapping[str, Any]
) -> Iterator[Cell | Skip | UserError]:
    """Yield the cells of a table, what is skipped, and an error for each unknown method, which stops a run
    but no page of the table. Raises UserError as `_cells` for methods that are not the table's."""
    for dataset in _spelt("dataset", request.dataset, protocol.grid["dataset"]):
        for variant in _variants(protocol, dataset, request.method):
            if variant.name.endswith(PLUGIN) or variant.name in catalog.methods():
                yield from _cells(protocol, dataset, variant, request, replaced)
            else:
                error = unknown("method", variant.name, catalog.methods(), f" in table {protocol.name}")
                yield UserError(f"{variant.name}: {error}")


def _spelt(part: str, asked: Sequence[str], listed: Sequence[str]) -> Sequence[str]:
    """Return the requested names as the grid spells them, or else without options at their defaults: two
    spellings of one thing would make two cells. Without a request: all listed names."""
    if not asked:
        return listed
    by_meaning = {catalog.checked(part, text): text for text in listed if "[" in text}
    plain = {text: catalog.checked(part, text) for text in asked}
    return [text if text in listed else by_meaning.get(plain[text], plain[text]) for text in asked]


def _variants(protocol: Protocol, dataset: str, asked: Iterable[str]) -> list[Spec]:
    """Return the grid's methods, or the requested ones. A bare name that the grid does not list stands for
    all its variants in the grid."""
    listed = [*map(Spec, protocol.grid_for(dataset=dataset)["method"])]
    chosen: list[Spec] = []
    for spec in map(Spec, asked):
        of_name = [each for each in listed if each.name == spec.name]
        same = [each for each in of_name if each.options == spec.options]
        plain = Spec(format_name(spec.name, spec.options))
        chosen += same or ([] if spec.options else of_name) or [plain]
    return chosen if asked else listed


def _cells(
    protocol: Protocol, dataset: str, variant: Spec, request: Request, replaced: Mapping[str, Any]
) -> Iterator[Cell | Skip]:
    """Yield the cells of a method, and what is skipped. Raises UserError for an option without effect."""
    in_grid, given = variant.text in protocol.grid_for(dataset=dataset)["method"], variant.options
    if code := _not_run(dataset, variant.name):
        yield code
        return
    info = catalog.describe(variant.name)
    grid = protocol.grid_for(dataset=dataset, method=variant.text)
    # A table's networks are for most methods: one that runs with none of them takes its own.
    own = () if any(runs_with(info.backbones, name) for name in grid["backbone"]) else info.backbones[:1]
    schemes = _spelt("partition", request.partition, grid["partition"])
    axes = (schemes, request.clients, request.backbone or own)
    for scheme, clients, backbone in protocol.points(dataset, variant.text, *axes):
        values = (dataset, scheme, clients, variant.text, backbone)
        point: dict[str, Any] = dict(zip(AXES, values, strict=True))
        if request.partition and not request.clients:
            largest = {**protocol.settings_for(**point), **replaced}.get("largest_component", False)
            point["clients"] = catalog.clients_in(dataset, scheme, largest) or clients
        settings = {**protocol.settings_for(**point), **replaced}
        others = (settings.get(name, "") for name in ("split", "selection_metric"))
        if code := _not_run(scheme, backbone, *others):
            yield code
            continue
        task, _ = parse_name(settings.get("task", NODE_CLASSIFICATION.text))
        if not runs_with(info.backbones, backbone):
            yield Skip(f"{variant.name} with {backbone}", f"it runs with {', '.join(info.backbones)}")
        elif task not in info.tasks:
            yield Skip(f"{variant.name} on {task}", f"it supports {', '.join(info.tasks)}")
        else:
            options = catalog.differing_options(variant.name, {**protocol.options_for(**point), **given})
            idle = catalog.unused_options(variant.name, options, backbone)
            able = [name for name in request.backbone if runs_with(info.backbones, name)]
            if "backbone" in idle and able and backbone != able[0]:
                yield Skip(f"{variant.text} with {backbone}", "it has its own network and runs once")
                continue
            if not in_grid and (vain := [name for name in given if name in options and name in idle]):
                why = f"{vain[0]} has no effect here: it needs {idle[vain[0]]}; leave it out"
                raise UserError(f"{variant.text}: {why}")
            label = variant.text if in_grid else _label(protocol, variant, options, point)
            further = catalog.further_metrics(task, [*protocol.metrics, *protocol.metric_files])
            named = {"protocol": protocol.name, "label": label, "method": variant.name, "options": options}
            yield _cell({**settings, **point, **named, "further_metrics": further, "seed": 0})


def _not_run(*parts: str) -> Skip | None:
    """Return the first of these parts whose code may not run, as left out."""
    code = (name for name in map(bare, parts) if name.endswith(PLUGIN) and not may_run(name))
    return next((Skip(name, f"its code {NOT_RUN}") for name in code), None)


def _cell(settings: Mapping[str, Any]) -> Cell:
    try:
        return Cell.from_dict(settings)
    except UserError as error:
        raise UserError(f"{settings['protocol']}: {error}") from error


def _label(
    protocol: Protocol, variant: Spec, options: Mapping[str, OptionValue], point: Mapping[str, Any]
) -> str:
    """The method's name in the grid if its options equal an entry's, else its name with its own options."""
    for listed in protocol.grid_for(dataset=point["dataset"])["method"]:
        name, given = parse_name(listed)
        if name == variant.name:
            table_options = {**protocol.options_for(**{**point, "method": listed}), **given}
            if catalog.differing_options(name, table_options) == options:
                return str(listed)
    usual = catalog.differing_options(variant.name, protocol.options_for(**point))
    own = {key: value for key, value in variant.options.items() if usual.get(key) != value}
    return format_name(variant.name, {key: own[key] for key in own if key in options or key in usual})
