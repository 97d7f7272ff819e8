"""Facts about methods, graphs, partition schemes, splits and tasks, for plans and lists.

Asking for them imports all of them, with torch and DGL, which takes longer than planning. Inside
`remembering` they are one index, cached from command to command while no source file changes. Parts of a
user are asked every time.
"""

import ast
import hashlib
import inspect
import json
import textwrap
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar
from dataclasses import asdict, dataclass, field, fields
from functools import cache, wraps
from importlib.metadata import entry_points
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple

import msgspec

from fedsub.benchmark.machine import ROOT, digest_of_sources
from fedsub.datasets.errors import UserError, check_choice
from fedsub.datasets.files import user_cache, write_atomically
from fedsub.datasets.limits import Range, ranges_of
from fedsub.datasets.options import OptionValue, Spec, defaults_of, format_name, format_value, parse_name
from fedsub.datasets.paths import PLUGIN
from fedsub.datasets.plugins import has_user_objects

MESSAGES = Path(__file__).parent / "messages.toml"
"""Bytes that a client of a small graph sends, as the channel counts (`tests/methods/test_messages.py`)."""
LOCAL, FEDAVG = "local", "fedavg"
"""Methods against which all others are compared: clients alone, and the mean of whole models."""
UNKNOWN = "unknown"
"""What a plug-in exchanges that does not state it."""
MODEL_PARTS = frozenset({"model", "gradient", "control", "norm"})
"""Names of messages that hold a model, or what its parameters alone give."""
DEPARTURES = "Departures:"
"""Start of the paragraph that lists a method's departures from its paper."""
OptionItems = Iterable[tuple[str, OptionValue]]
"""A cell's options, as `Cell.options`."""
KINDS = ("dataset", "partition", "split", "backbone", "task", "metric")
Question = TypeVarTuple("Question")
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Method:
    """The fields of `MethodInfo`, and what the docstrings say."""

    name: str
    title: str
    paper: str
    tasks: Sequence[str]
    backbones: Sequence[str]
    lacks: Sequence[str]
    breaks_privacy: str
    exposes: Sequence[str]
    version: int
    leaves: str
    """Names and sizes of a client's messages, as the channel counts them; a plug-in's own statement."""
    options: Mapping[str, OptionValue]
    """Name → default."""
    tuned: Mapping[str, Range]
    """Option → range, of the tunable options."""
    meanings: Mapping[str, str]
    """Option → docstring."""
    docs: Sequence[str]
    """Docstrings of the module and of the class."""

    @property
    def summary(self) -> str:
        """The first paragraph of the module, one sentence."""
        return " ".join(self.docs[0].partition("\n\n")[0].split())

    @property
    def text(self) -> list[str]:
        """The other paragraphs of the module."""
        return self.docs[0].split("\n\n")[1:]

    @property
    def departures(self) -> str:
        """The paragraph on departures from the paper."""
        told = (each.removeprefix(DEPARTURES) for each in self.text if each.startswith(DEPARTURES))
        return " ".join(" ".join(told).split())

    @property
    def explained_options(self) -> list[tuple[str, str, str]]:
        """Name, default and meaning of each option."""
        return [(key, format_value(value), self.meanings.get(key, "")) for key, value in self.options.items()]


@dataclass(frozen=True)
class Part:
    """A graph, partition scheme, split, backbone, task or metric."""

    options: Mapping[str, OptionValue] = field(default_factory=dict)
    """Name → default, of a generated graph, scheme, split or backbone."""
    summary: str = ""
    """What a scheme, split or backbone does, or why it cannot be used."""
    version: int = 1
    score: str = ""
    """The score of a task whose curve and per-client test values a record keeps by default."""


@dataclass(frozen=True)
class Index:
    """The facts by name."""

    methods: Mapping[str, Method] = field(default_factory=dict)
    parts: Mapping[str, Mapping[str, Part]] = field(default_factory=dict)
    """Kind → name → facts."""
    answers: dict[str, Any] = field(default_factory=dict)
    """Question about options → answer (`_remembered`)."""


_INDEX: ContextVar[Index | None] = ContextVar("index", default=None)


@contextmanager
def remembering() -> Iterator[None]:
    """Cache the index within the block, unless plug-ins are installed: their changes cannot be detected."""
    if _INDEX.get() is not None or any(group.startswith("fedsub.") for group in entry_points().groups):
        yield
        return
    path = user_cache() / f"known-{hashlib.sha256(str(ROOT).encode()).hexdigest()[:16]}.json"
    found = None
    with suppress(OSError):
        seal, _, content = path.read_bytes().partition(b"\n")
        # A damaged file, or one of other sources, counts as missing.
        if seal == _seal(content):
            found = msgspec.json.decode(content, type=Index)
    # The empty context keeps a program's objects out of the index.
    token = _INDEX.set(index := found or Context().run(_asked))
    held = len(index.answers) if found else -1
    try:
        yield
    finally:
        _INDEX.reset(token)
        if len(index.answers) > held:
            content = msgspec.json.encode(index)
            # If the file cannot be written, the next command asks again.
            with suppress(OSError):
                write_atomically(path, _seal(content) + b"\n" + content)


def _seal(content: bytes) -> bytes:
    """Digest of a cache file's content and of the present sources."""
    return hashlib.blake2b(digest_of_sources(PLUGIN, ".toml").encode() + content).hexdigest().encode()


def _asked() -> Index:
    return Index({name: describe(name) for name in methods()}, {kind: parts(kind) for kind in KINDS})


def _known() -> Index:
    """The index of the benchmark's own parts; empty outside `remembering` and where a program passes objects,
    whose names take precedence."""
    return (not has_user_objects() and _INDEX.get()) or Index()


def _remembered(function: Callable[[*Question], Answer]) -> Callable[[*Question], Answer]:
    """Cache a pure function of plain JSON types in the index."""

    @wraps(function)
    def ask(*question: *Question) -> Answer:
        answers, text = _known().answers, json.dumps([function.__name__, *question], sort_keys=True)
        # The digest of the sources does not cover a user's file.
        if PLUGIN in text:
            return function(*question)
        if text not in answers:
            answers[text] = function(*question)
        found: Answer = answers[text]
        return found

    return ask


def methods() -> list[str]:
    """Names of all methods."""
    if known := _known().methods:
        return [*known]
    from fedsub.methods.core import registry

    return registry.names()


def names(kind: str) -> list[str]:
    """Names of all methods (kind `method`), graphs, partition schemes, splits or backbones."""
    return methods() if kind == "method" else list(registries()[kind].names())


def describe(name: str) -> Method:
    """The facts about a method. Raises UserError with the nearest names."""
    if known := _known().methods.get(name):
        return known
    from fedsub.methods.core import registry

    method: Any = registry.find(name)
    return _facts(name, method)


@cache
def _facts(name: str, method: Any) -> Method:
    info = method.info
    bases = reversed(info.options.__mro__[:-1])
    found = {item.name: getattr(info, item.name, None) for item in fields(Method)} | {
        "leaves": info.exchanges or UNKNOWN if sent(name) is None else leaves(name),
        "options": defaults_of(info.options),
        "tuned": dict(ranges_of(info.options)),
        "meanings": {option: text for kind in bases for option, text in _meanings(kind)},
        "docs": [inspect.getdoc(each) or "" for each in (inspect.getmodule(method), method)],
    }
    return Method(**found)


def models_only(name: str, options: OptionItems = ()) -> bool:
    """Whether clients of a method of the benchmark send only models, or changes of them."""
    found = sent(name, options)
    return found is not None and found.keys() <= MODEL_PARTS


def every_epoch(name: str) -> bool:
    """Whether a method of the benchmark sends gradients in every local epoch, in place of a model a round."""
    found = sent(name) or {}
    return "gradient" in found and "model" not in found


def sent(name: str, options: OptionItems = ()) -> dict[str, Any] | None:
    """Names and bytes of what a client of a method of the benchmark sends: the entry of `MESSAGES` with the
    most of these options, among which may be `backbone`."""
    chosen = {*options}
    fitting = [(len(own), found) for each, own, found in _messages() if each == name and own <= chosen]
    return max(fitting, key=itemgetter(0))[1] if fitting else None


@cache
def _messages() -> list[tuple[str, set[tuple[str, OptionValue]], dict[str, Any]]]:
    """Method and options of each entry, and what is sent with them."""
    entries = tomllib.loads(MESSAGES.read_text("utf-8"))
    return [(spec.name, {*spec.options.items()}, entries[spec.text]) for spec in map(Spec, entries)]


def leaves(name: str, options: OptionItems = ()) -> str:
    """Names and sizes of the messages of a method's clients, the largest first; `UNKNOWN` for a plug-in.
    Methods whose data are in one place say it themselves."""
    found = sent(name, options)
    if found is None:
        return describe(name).leaves if name in methods() else UNKNOWN
    rounds = {name: size for name, size in found.items() if name != "once"}
    parts = []
    for sizes, when in ((rounds, "a round"), (found.get("once", {}), "once")):
        largest = sorted(sizes.items(), key=lambda each: -each[1])
        listed = ", ".join(f"{name.replace('_', ' ')} {size:,} B" for name, size in largest)
        parts += [f"{listed} {when}"] if listed else []
    return "; ".join(parts) or "nothing"


@cache
def _meanings(options: type) -> list[tuple[str, str]]:
    """Field and docstring below it, of a dataclass without its bases; none without its source."""
    try:
        (defined,) = ast.parse(textwrap.dedent(inspect.getsource(options))).body
    except (OSError, TypeError, SyntaxError):
        return []
    return [
        (ast.unparse(item.target), " ".join(str(getattr(after.value, "value", "")).split()))
        for item, after in pairwise(defined.body)  # type: ignore[attr-defined]
        if isinstance(item, ast.AnnAssign) and isinstance(after, ast.Expr)
    ]


@_remembered
def differing_options(method: str, options: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
    """Return the options whose value is not the method's default, in alphabetical order.

    Raises UserError for an option that the method does not have or a value it cannot take.
    """
    from fedsub.methods.core import registry

    chosen = asdict(registry.make_options(method, options))
    defaults = asdict(registry.make_options(method, {}))
    return {name: chosen[name] for name in sorted(chosen) if chosen[name] != defaults[name]}


@_remembered
def unused_options(method: str, options: Mapping[str, OptionValue], backbone: str) -> dict[str, str]:
    """See `Options.unused`. Raises UserError as `differing_options` does."""
    from fedsub.methods.core import registry

    return dict(registry.make_options(method, options).unused(backbone))


def registries() -> dict[str, Any]:
    """Kind → the module or object that finds its names."""
    from fedsub.datasets import partition, registry, splits
    from fedsub.methods import tasks
    from fedsub.methods.stacked import backbones
    from fedsub.methods.tasks import metrics

    found = (registry, partition.SCHEMES, splits.SCHEMES, backbones.BACKBONES, tasks, metrics)
    return dict(zip(KINDS, found, strict=True))


def parts(kind: str) -> Mapping[str, Part]:
    """Name → facts of all parts of a kind; of the graphs, those that need no path."""
    if known := _known().parts.get(kind):
        return known
    registry = registries()[kind]
    found = {}
    for name in registry.TASKS if kind == "task" else registry.names():
        try:
            found[name] = part(kind, name)
        except UserError as error:
            found[name] = Part(summary=str(error))
    return found


def part(kind: str, name: str) -> Part:
    """The facts about a part. Raises UserError for an unknown one that is no graph or metric."""
    if known := _known().parts.get(kind, {}).get(name):
        return known
    from fedsub.datasets.synthetic import GENERATORS

    registry = registries()[kind]
    if kind in ("dataset", "metric"):
        return Part(defaults_of(GENERATORS[name].options) if name in GENERATORS else {})
    if kind == "task":
        return Part(version=registry.find(name).version, score=registry.find(name).default[0])
    return Part(registry.options_of(name), registry.summary(name), registry.version(name))


@_remembered
def checked(kind: str, text: str) -> str:
    """Return the text of a method, part or `kernel`; of a method, generated graph or partition scheme, with
    only its non-default options, in alphabetical order.

    Raises UserError for an unknown name and for options that it cannot take.
    """
    if kind == "kernel":
        from fedsub.methods.stacked.propagation import KERNELS

        check_choice("kernel", text, KERNELS)
        return text
    if kind == "method":
        name, given = parse_name(text)
        return format_name(name, differing_options(name, given))
    options, name = registries()[kind].check(text), Spec(text).name
    usual = part(kind, name).options
    if kind != "partition" and not (kind == "dataset" and usual):
        return text
    return format_name(name, {key: value for key, value in options.items() if value != usual.get(key)})


@_remembered
def check_metric(task: str, metric: str) -> None:
    """Raises UserError for a metric that does not exist or scores another task."""
    registries()["task"].check_metric(task, metric)


@_remembered
def further_metrics(task: str, wanted: Sequence[str]) -> list[str]:
    """See `methods.tasks.further_metrics`."""
    return list(registries()["task"].further_metrics(task, wanted))


def clients_in(graph: str, scheme: str, largest: bool) -> int | None:
    """Return the number of clients of a graph, or of its largest component, under a scheme that takes its
    clients from the data or a file; None for other schemes. Raises UserError if the largest component lacks
    a client."""
    from fedsub.datasets import partition, registry
    from fedsub.datasets.graph import largest_component
    from fedsub.datasets.partition import attribute, file

    name = Spec(scheme).name
    if name not in ("file", "attribute"):
        return None
    options = partition.SCHEMES.check(scheme)
    if name == "file":
        return file.clients_in(**options)
    dataset = registry.load(graph)
    count = attribute.clients_in(dataset, **options)
    if largest and (held := attribute.clients_in(largest_component(dataset), **options)) < count:
        raise UserError(
            f"{count - held} of {count} clients of {scheme} have no node in the largest component of {graph}:"
            f" set largest_component=false, or give --clients {held} to leave them out"
        )
    return count
