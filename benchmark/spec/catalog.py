"""Cached facts about methods, graphs, partition schemes, splits and tasks, for plans and lists.

To answer, all of them are imported, with torch and DGL, which takes longer than a plan. Inside `remembering`
an answer is taken from the last command, as long as no source file has changed since and no plug-in can have.
"""

from __future__ import annotations

import hashlib
import json
import logging
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from functools import wraps
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from fedsub.benchmark.machine import ROOT, digest_of_sources
from fedsub.benchmark.spec.schema import parse_line
from fedsub.datasets.errors import UserError, check_choice
from fedsub.datasets.files import user_cache, write_atomically
from fedsub.datasets.options import OptionValue, Spec, defaults_in_words, defaults_of, format_name
from fedsub.datasets.paths import PLUGIN
from fedsub.datasets.plugins import has_user_objects

logger = logging.getLogger(__name__)
MESSAGES = Path(__file__).parent / "messages.toml"
"""What the channel sees leave a client of a small graph (`tests/methods/test_messages.py`)."""
Question = ParamSpec("Question")
Answer = TypeVar("Answer")


class _Memory:
    """Answers by question, in one cache file for each checkout."""

    def __init__(self) -> None:
        place = hashlib.sha256(str(ROOT).encode()).hexdigest()[:16]
        self._path = user_cache() / f"known-{place}.json"
        self._sources = digest_of_sources(PLUGIN, ".toml")
        self._answers: dict[str, Any] = {}
        with suppress(FileNotFoundError):
            self._answers = self._read()
        self._known_before = len(self._answers)

    def _read(self) -> dict[str, Any]:
        """The answers kept for the present sources; none, with a logged warning, from a damaged file."""
        try:
            kept = parse_line(self._path.read_bytes()) or {}
            if kept.get("checksum") != _checksum(kept["sources"], kept["answers"]):
                raise ValueError("its checksum is another")
        except FileNotFoundError:
            raise
        except (OSError, KeyError, ValueError, RecursionError) as error:
            logger.warning("cached file %s is unreadable (%s): asking again", self._path, error)
            return {}
        answers: dict[str, Any] = kept["answers"]
        return answers if kept["sources"] == self._sources else {}

    def ask(self, function: Callable[..., Answer], question: tuple[Any, ...]) -> Answer:
        text = json.dumps([function.__name__, *question], sort_keys=True)
        # A file of the user's own is no source of ours, under whichever name.
        if PLUGIN in text or has_user_objects():
            return function(*question)
        if text not in self._answers:
            self._answers[text] = function(*question)
        found: Answer = self._answers[text]
        return found

    def keep(self) -> None:
        if len(self._answers) > self._known_before:
            kept = {"sources": self._sources, "answers": self._answers}
            content = json.dumps({**kept, "checksum": _checksum(**kept)})
            # Where nothing can be kept the next command asks again.
            with suppress(OSError):
                write_atomically(self._path, content.encode())


def _checksum(sources: Any, answers: Any) -> str:
    """BLAKE2b over the canonical JSON of what a file holds."""
    return hashlib.blake2b(json.dumps([sources, answers], sort_keys=True).encode()).hexdigest()


_MEMORY: ContextVar[_Memory | None] = ContextVar("memory", default=None)


@contextmanager
def remembering() -> Iterator[None]:
    """Cache answers within the block; not with plug-ins installed, whose changes cannot be detected."""
    if any(group.startswith("fedsub.") for group in entry_points().groups):
        yield
        return
    memory = _Memory()
    token = _MEMORY.set(memory)
    try:
        yield
    finally:
        _MEMORY.reset(token)
        memory.keep()


def _remembered(function: Callable[Question, Answer]) -> Callable[Question, Answer]:
    """Decorator that caches a pure function of plain JSON types."""

    @wraps(function)
    def ask(*question: Question.args, **named: Question.kwargs) -> Answer:
        memory = _MEMORY.get()
        # Only what is asked by position is remembered.
        if memory is None or named:
            return function(*question, **named)
        return memory.ask(function, question)

    return ask


@dataclass(frozen=True)
class MethodFacts:
    """The fields of `MethodInfo`, without the class of the options."""

    name: str
    title: str
    paper: str
    tasks: Sequence[str]
    backbones: Sequence[str]
    lacks: Sequence[str]
    exchanges: str
    leaves: str
    """What leaves a client by name and size, as the channel sees it; of a plug-in what it says itself."""
    breaks_privacy: str
    exposes: Sequence[str]
    version: int


@_remembered
def methods() -> list[str]:
    """Names of all methods."""
    from fedsub.methods.core import registry

    return registry.names()


def describe(method: str) -> MethodFacts:
    """The facts about a method. Raises UserError with the nearest names."""
    return MethodFacts(**_describe(method))


@_remembered
def _describe(method: str) -> dict[str, Any]:
    from fedsub.methods.core import registry

    info = registry.describe(method)
    sent = tomllib.loads(MESSAGES.read_text("utf-8")).get(method)
    leaves = info.exchanges if sent is None else _in_words(sent)
    return {name: getattr(info, name, leaves) for name in MethodFacts.__dataclass_fields__}


def _in_words(sent: Mapping[str, int]) -> str:
    """Names and sizes of messages, the largest first."""
    rounds = sorted(((size, name) for name, size in sent.items() if name != "once"), reverse=True)
    parts = [", ".join(f"{name} {size:,} B" for size, name in rounds) + " a round"] if rounds else []
    if "once" in sent:
        parts.append(f"{sent['once']:,} B once")
    return "; ".join(parts) or "nothing"


@_remembered
def explain(method: str) -> dict[str, Any]:
    """See `documented.explain`."""
    from fedsub.benchmark.spec import documented

    return documented.explain(method)


@_remembered
def differing_options(method: str, options: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
    """The options whose value is not the method's default, in alphabetical order.

    Raises UserError for an option that the method lacks or a value it cannot take.
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


@_remembered
def check_dataset(graph: str) -> None:
    """Raises UserError for an unknown graph and options that it cannot take."""
    from fedsub.datasets import registry

    registry.check(graph)


@_remembered
def graph_names() -> list[str]:
    """Names of graphs that need no path: published, generated, of plug-ins and passed as objects."""
    from fedsub.datasets import plugins, registry

    return [*registry.names(), *plugins.user_object_names(registry.PLUGINS.noun)]


def clients_in(graph: str, scheme: str, largest: bool) -> int | None:
    """How many clients a graph, or its largest component, has by a scheme that takes them from its data; None
    for other schemes."""
    from fedsub.datasets import partition, registry
    from fedsub.datasets.graph import largest_component

    if not partition.takes_clients_from_data(scheme):
        return None
    dataset = registry.load(graph)
    return partition.clients_in(largest_component(dataset) if largest else dataset, scheme)


@_remembered
def metric_of(graph: str) -> str:
    """By which the field scores a published graph, where that is not the accuracy; else empty."""
    from fedsub.datasets.catalogue import REGISTRY

    return REGISTRY[graph].metric if graph in REGISTRY else ""


@_remembered
def check_partition(scheme: str) -> None:
    """Raises UserError for an unknown partition scheme and options that it cannot take."""
    from fedsub.datasets.partition import SCHEMES

    SCHEMES.check(scheme)


@_remembered
def plain_dataset(graph: str) -> str:
    """A generated graph's name with the options that differ from its defaults, in alphabetical order; the
    name of any other as it is. Raises UserError as `check_dataset` does."""
    from fedsub.datasets import registry
    from fedsub.datasets.synthetic import GENERATORS

    checked = registry.check(graph)
    name = Spec(graph).name
    return _plain(name, checked, defaults_of(GENERATORS[name].options)) if name in GENERATORS else graph


@_remembered
def plain_partition(scheme: str) -> str:
    """A partition scheme's name with the options that differ from its defaults, in alphabetical order.

    Raises UserError as `check_partition` does."""
    from fedsub.datasets.partition import SCHEMES

    name = Spec(scheme).name
    return _plain(name, SCHEMES.check(scheme), SCHEMES.options_of(name))


def _plain(name: str, options: Mapping[str, OptionValue], defaults: Mapping[str, OptionValue]) -> str:
    return format_name(name, {key: value for key, value in options.items() if value != defaults.get(key)})


@_remembered
def check_task(task: str) -> None:
    """Raises UserError for an unknown task and options that it cannot take."""
    from fedsub.methods.core import tasks

    tasks.check(Spec(task))


@_remembered
def check_backbone(name: str) -> None:
    """Raises UserError with the nearest names if there is no backbone of this name."""
    from fedsub.methods.stacked.backbones import BACKBONES

    BACKBONES.find(name)


@_remembered
def check_names(split: str, kernel: str, task: str, selection_metric: str) -> None:
    """Raises UserError for a split, kernel, task or metric to select by that is not, and options that it
    cannot take."""
    from fedsub.datasets.splits import SCHEMES
    from fedsub.methods.core import tasks
    from fedsub.methods.stacked.propagation import KERNELS

    SCHEMES.check(Spec(split))
    check_choice("kernel", kernel, KERNELS)
    tasks.check(Spec(task))
    if selection_metric:
        tasks.check_metric(Spec(task), selection_metric)


@_remembered
def metrics() -> list[str]:
    """Names of all metrics."""
    from fedsub.methods.core import metrics

    return metrics.names()


@_remembered
def further_metrics(task: str, wanted: Sequence[str]) -> list[str]:
    """See `methods.core.tasks.further_metrics`."""
    from fedsub.methods.core import tasks

    return list(tasks.further_metrics(task, wanted))


@_remembered
def version_of_partition(scheme: str) -> int:
    """The version of a partition scheme. Raises UserError if there is none of this name."""
    from fedsub.datasets.partition import SCHEMES

    return SCHEMES.version(scheme)


@_remembered
def version_of_split(split: str) -> int:
    """The version of a split. Raises UserError if there is none of this name."""
    from fedsub.datasets.splits import SCHEMES

    return SCHEMES.version(split)


@_remembered
def score_of_task(task: str) -> str:
    """The score whose curve and clients' test scores a record keeps, unless its cell names another."""
    from fedsub.methods.core import tasks

    return tasks.find(task).default[0]


@_remembered
def version_of_task(task: str) -> int:
    """The version of a task. Raises UserError if there is none of this name."""
    from fedsub.methods.core import tasks

    return tasks.find(task).version


@_remembered
def listed(kind: str) -> list[list[str]]:
    """Name, options and one line on every `partition` scheme, `split` or `backbone`; of one that cannot be
    used, why."""
    from fedsub.datasets.partition import SCHEMES as PARTITIONS
    from fedsub.datasets.splits import SCHEMES as SPLITS
    from fedsub.methods.stacked.backbones import BACKBONES

    schemes = {"backbone": BACKBONES, "partition": PARTITIONS, "split": SPLITS}[kind]
    found = []
    for name in schemes.names():
        try:
            found.append([name, defaults_in_words(schemes.options_of(name)), schemes.summary(name)])
        except UserError as error:
            found.append([name, "", str(error)])
    return found


@_remembered
def options_of_methods() -> list[list[str]]:
    """Name and options, with their defaults, of every method that has any."""
    from fedsub.methods.core import registry

    usable = {}
    for name in registry.names():
        # One that cannot be used has no options; the list of methods says why.
        with suppress(UserError):
            usable[name] = registry.describe(name).options
    return _with_options(usable)


@_remembered
def options_of_graphs() -> list[list[str]]:
    """Name and options, with their defaults, of every generated graph."""
    from fedsub.datasets.synthetic import GENERATORS

    return _with_options({name: generator.options for name, generator in GENERATORS.items()})


def _with_options(classes: Mapping[str, Callable[..., Any]]) -> list[list[str]]:
    found = {name: defaults_in_words(defaults_of(options)) for name, options in classes.items()}
    return [[name, options] for name, options in found.items() if options]


@_remembered
def graphs() -> list[list[Any]]:
    """Name and, of published ones, nodes, edges, features and classes of every graph."""
    from fedsub.datasets import registry

    published = {
        name: (info.nodes, info.undirected_edges, info.features, info.classes)
        for name, info in registry.REGISTRY.items()
    }
    return [[name, *published.get(name, ())] for name in registry.names()]
