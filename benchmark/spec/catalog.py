"""Cached facts about methods, graphs, partition schemes, splits and tasks, for plans and lists.

Answering imports all of them, with torch and DGL, which takes longer than planning. Inside `remembering`
answers are cached from command to command while no source file changes and no plug-in is installed.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import logging
import textwrap
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass, fields
from functools import cache, wraps
from importlib.metadata import entry_points
from itertools import pairwise
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from fedsub.benchmark.machine import ROOT, digest_of_sources
from fedsub.benchmark.spec.schema import parse_line
from fedsub.datasets.errors import UserError, check_choice
from fedsub.datasets.files import user_cache, write_atomically
from fedsub.datasets.options import (
    OptionValue,
    Spec,
    defaults_in_words,
    defaults_of,
    format_name,
    format_value,
)
from fedsub.datasets.paths import PLUGIN
from fedsub.datasets.plugins import has_user_objects

logger = logging.getLogger(__name__)
MESSAGES = Path(__file__).parent / "messages.toml"
"""Bytes that a client of a small graph sends, as the channel counts (`tests/methods/test_messages.py`)."""
DEPARTURES = "Departures:"
"""Start of the paragraph that lists a method's departures from its paper."""
Question = ParamSpec("Question")
Answer = TypeVar("Answer")


class _Memory:
    """Question → answer, in one cache file for each checkout."""

    def __init__(self) -> None:
        place = hashlib.sha256(str(ROOT).encode()).hexdigest()[:16]
        self._path = user_cache() / f"known-{place}.json"
        self._sources = digest_of_sources(PLUGIN, ".toml")
        self._answers: dict[str, Any] = {}
        with suppress(FileNotFoundError):
            self._answers = self._read()
        self._known_before = len(self._answers)

    def _read(self) -> dict[str, Any]:
        """Return the answers kept for the present sources; a damaged file gives none and a logged warning."""
        try:
            kept = parse_line(self._path.read_bytes()) or {}
            if kept.get("checksum") != _checksum(kept["sources"], kept["answers"]):
                raise ValueError("its checksum does not match")
        except FileNotFoundError:
            raise
        except (OSError, KeyError, ValueError, RecursionError) as error:
            logger.warning("cached file %s is unreadable (%s): computing it again", self._path, error)
            return {}
        answers: dict[str, Any] = kept["answers"]
        return answers if kept["sources"] == self._sources else {}

    def ask(self, function: Callable[..., Answer], question: tuple[Any, ...]) -> Answer:
        text = json.dumps([function.__name__, *question], sort_keys=True)
        # `self._sources` does not cover a user's file or object, so answers about them are not cached.
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
            # If the file cannot be written, the next command asks again.
            with suppress(OSError):
                write_atomically(self._path, content.encode())


def _checksum(sources: Any, answers: Any) -> str:
    """BLAKE2b over the canonical JSON of a cache file's content."""
    return hashlib.blake2b(json.dumps([sources, answers], sort_keys=True).encode()).hexdigest()


_MEMORY: ContextVar[_Memory | None] = ContextVar("memory", default=None)


@contextmanager
def remembering() -> Iterator[None]:
    """Cache answers within the block, unless plug-ins are installed: their changes cannot be detected."""
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
    """Cache a pure function of plain JSON types."""

    @wraps(function)
    def ask(*question: Question.args, **named: Question.kwargs) -> Answer:
        memory = _MEMORY.get()
        # Only calls with positional arguments are cached.
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
    """Names and sizes of a client's messages, as the channel counts them; `exchanges` for a plug-in."""
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
    sent = _messages().get(method)
    leaves = info.exchanges if sent is None else _in_words(sent)
    return {name: getattr(info, name, leaves) for name in MethodFacts.__dataclass_fields__}


@cache
def _messages() -> dict[str, dict[str, int]]:
    return tomllib.loads(MESSAGES.read_text("utf-8"))


def _in_words(sent: Mapping[str, int]) -> str:
    """Names and sizes of messages, the largest first."""
    rounds = sorted(((size, name) for name, size in sent.items() if name != "once"), reverse=True)
    parts = [", ".join(f"{name} {size:,} B" for size, name in rounds) + " a round"] if rounds else []
    if "once" in sent:
        parts.append(f"{sent['once']:,} B once")
    return "; ".join(parts) or "nothing"


@_remembered
def explain(method: str) -> dict[str, Any]:
    """Return what a method's docstrings say. `summary`: one sentence. `text`: the other paragraphs of its
    module. `departures`: the paragraph on departures from the paper. `options`: name, default and meaning of
    each option. Raises UserError for an unknown method."""
    from fedsub.methods.core import registry

    head, *paragraphs = (inspect.getdoc(inspect.getmodule(registry.find(method))) or "").split("\n\n")
    options = registry.describe(method).options
    docs = _field_docs(options)
    departures = (each.removeprefix(DEPARTURES) for each in paragraphs if each.startswith(DEPARTURES))
    return {
        "summary": " ".join(head.split()),
        "text": paragraphs,
        "departures": " ".join(" ".join(departures).split()),
        "options": [
            [item.name, format_value(getattr(item, "default", "")), " ".join(docs.get(item.name, "").split())]
            for item in fields(options)
        ],
    }


def _field_docs(options: type) -> dict[str, str]:
    """Field → docstring below it, of a dataclass and its bases."""
    found: dict[str, str] = {}
    for kind in reversed(options.__mro__[:-1]):
        body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0].body  # type: ignore[attr-defined]
        for item, after in pairwise(body):
            if isinstance(item, ast.AnnAssign) and isinstance(after, ast.Expr):
                found[ast.unparse(item.target)] = str(getattr(after.value, "value", ""))
    return found


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


def _kinds() -> dict[str, Any]:
    """Field of a cell → registry of its functions."""
    from fedsub.datasets import partition, splits
    from fedsub.methods.stacked import backbones

    return {"partition": partition.SCHEMES, "split": splits.SCHEMES, "backbone": backbones.BACKBONES}


@_remembered
def check(part: str, text: str) -> None:
    """Check a `dataset`, `partition`, `split`, `backbone`, `task` or `kernel`. Raises UserError for an
    unknown name and for options that it cannot take."""
    if part == "dataset":
        from fedsub.datasets import registry

        registry.check(text)
    elif part == "task":
        from fedsub.methods import tasks

        tasks.check(text)
    elif part == "kernel":
        from fedsub.methods.stacked.propagation import KERNELS

        check_choice("kernel", text, KERNELS)
    else:
        _kinds()[part].check(text)


@_remembered
def check_metric(task: str, metric: str) -> None:
    """Raises UserError for a metric that does not exist or scores another task."""
    from fedsub.methods import tasks

    tasks.check_metric(task, metric)


@_remembered
def plain(part: str, text: str) -> str:
    """Return the name of a generated graph or partition scheme with only its non-default options, in
    alphabetical order. Other graphs' names stay as they are. Raises UserError as `check` does."""
    from fedsub.datasets import registry
    from fedsub.datasets.synthetic import GENERATORS

    name = Spec(text).name
    if part == "partition":
        schemes = _kinds()[part]
        options, defaults = schemes.check(text), schemes.options_of(name)
    else:
        options = registry.check(text)
        if name not in GENERATORS:
            return text
        defaults = defaults_of(GENERATORS[name].options)
    return format_name(name, {key: value for key, value in options.items() if value != defaults.get(key)})


@_remembered
def version(part: str, name: str) -> int:
    """Return the version of a `partition` scheme, `split` or `task`. Raises UserError for an unknown one."""
    from fedsub.methods import tasks

    found: int = tasks.find(name).version if part == "task" else _kinds()[part].version(name)
    return found


@_remembered
def graph_names() -> list[str]:
    """Names of the graphs that need no path: published, generated, from plug-ins, and passed as objects."""
    from fedsub.datasets import plugins, registry

    return [*registry.names(), *plugins.user_object_names(registry.PLUGINS.noun)]


def clients_in(graph: str, scheme: str, largest: bool) -> int | None:
    """Return the number of clients of a graph, or of its largest component, under a scheme that takes its
    clients from the data; None for other schemes."""
    from fedsub.datasets import partition, registry
    from fedsub.datasets.graph import largest_component

    if not partition.takes_clients_from_data(scheme):
        return None
    dataset = registry.load(graph)
    return partition.clients_in(largest_component(dataset) if largest else dataset, scheme)


@_remembered
def metric_of(graph: str) -> str:
    """Return the usual metric of a published graph if it is not accuracy, else an empty string."""
    from fedsub.datasets.catalogue import REGISTRY

    return REGISTRY[graph].metric if graph in REGISTRY else ""


@_remembered
def metrics() -> list[str]:
    """Names of all metrics."""
    from fedsub.methods.tasks import metrics

    return metrics.names()


@_remembered
def further_metrics(task: str, wanted: Sequence[str]) -> list[str]:
    """See `methods.tasks.further_metrics`."""
    from fedsub.methods import tasks

    return list(tasks.further_metrics(task, wanted))


@_remembered
def score_of_task(task: str) -> str:
    """The score whose curve and per-client test values a record keeps, unless its cell names another."""
    from fedsub.methods import tasks

    return tasks.find(task).default[0]


@_remembered
def listed(part: str) -> list[list[str]]:
    """Name, options with defaults, and description (or why it cannot be used) of every `partition` scheme,
    `split` or `backbone`; name and options of every `method` or generated `dataset` that has options."""
    from fedsub.datasets.synthetic import GENERATORS
    from fedsub.methods.core import registry

    if part == "dataset":
        options = {name: defaults_of(generator.options) for name, generator in GENERATORS.items()}
    elif part == "method":
        options = {}
        for name in registry.names():
            # A method that cannot be used has no options; the list of methods gives the reason.
            with suppress(UserError):
                options[name] = defaults_of(registry.describe(name).options)
    else:
        found, schemes = [], _kinds()[part]
        for name in schemes.names():
            try:
                found.append([name, defaults_in_words(schemes.options_of(name)), schemes.summary(name)])
            except UserError as error:
                found.append([name, "", str(error)])
        return found
    return [[name, defaults_in_words(each)] for name, each in options.items() if each]


@_remembered
def graphs() -> list[list[Any]]:
    """Return the name of every graph; for published graphs also nodes, edges, features and classes."""
    from fedsub.datasets import registry

    published = {
        name: (info.nodes, info.undirected_edges, info.features, info.classes)
        for name, info in registry.REGISTRY.items()
    }
    return [[name, *published.get(name, ())] for name in registry.names()]
