"""Requests from Python: objects that a program passes, registered under names."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from numbers import Integral, Real
from operator import index
from pathlib import Path
from typing import Any

import networkx
import numpy as np

from fedsub.benchmark.spec import catalog, digests
from fedsub.benchmark.spec.custom import NOUNS, written
from fedsub.benchmark.spec.request import MOST_SEEDS, Request
from fedsub.benchmark.spec.settings import setting_from_text, takes_list
from fedsub.datasets.errors import UserError
from fedsub.datasets.graph import Dataset
from fedsub.datasets.options import Spec, format_value
from fedsub.datasets.own import as_own
from fedsub.datasets.partition import Partition
from fedsub.datasets.partition.base import Drawn, clients_from, is_grouped, of_component
from fedsub.datasets.paths import is_path
from fedsub.methods.core import registry
from fedsub.methods.core.base import FederatedMethod


@dataclass
class Given:
    """Objects passed to `run`, by kind and name, with digests of their content."""

    objects: dict[tuple[str, str], Any] = field(default_factory=dict)
    digests: dict[tuple[str, str], str] = field(default_factory=dict)
    _counted: tuple[int, ...] = ()
    """Number of clients of a partition given as an array or list; else empty."""

    def request(self, results: Path, settings: Mapping[str, Any], **given: Any) -> Request:
        """Return the request for the arguments of `run` and `tune`."""
        seeds, save = given.pop("seeds", ()), given.pop("save", ())
        graph, counts = given.pop("dataset"), listed(_plain(given.pop("clients")))
        parts: dict[str, Iterable[Any]] = {
            "dataset": map(self.dataset, listed(graph)),
            "partition": (self.partition(each, graph) for each in _partitions(given.pop("partition"))),
            "method": map(self.method, listed(given.pop("method"))),
            "backbone": map(self.backbone, listed(given.pop("backbone"))),
            "table": map(str, listed(given.pop("table"))),
            "clients": (int(n) if isinstance(n, Integral) else n for n in counts),
            "settings": _settings(settings),
            "save": listed(save) if save else (),
        }
        values: dict[str, Any] = {name: tuple(found) for name, found in parts.items()}
        values["clients"] = values["clients"] or self._counted
        given = {name: int(n) if isinstance(n, np.integer) else n for name, n in given.items()}
        engine = "in-process" if given["workers"] == 1 else "process"
        return Request(**values, seeds=_seeds(seeds), results=results, engine=engine, **given)

    def dataset(self, given: Any) -> str:
        """Register a graph; returns its name."""
        if isinstance(given, Path):
            return written(given)
        if isinstance(given, (str, Spec)):
            return str(given)
        found: Dataset = as_own(given)
        return self._add("dataset", found.name, found, digests.of_dataset(found))

    def partition(self, given: Any, graph: Any) -> str:
        """Register a partition of a graph; returns its name."""
        if isinstance(given, (str, Spec, Path)):
            return str(given)
        if callable(given):
            name, digest = getattr(given, "__name__", "own").replace("_", "-"), digests.of_object(given)
            return self._add("partition", name.strip("<>"), given, digest)
        nodes = list(graph.nodes) if isinstance(graph, networkx.Graph) else None
        fixed: Any
        if isinstance(given, Partition):
            fixed = Drawn(given.nodes, given.added, given.names)
            further = [given.added, np.array(given.names, dtype=str)]
            parts, count = [*given.nodes, *filter(np.size, further)], given.clients
        else:
            fixed = clients_from(given, nodes)
            parts, count = [fixed], int(fixed.max(initial=0)) + 1
        self._counted = (count,)
        return self._add("partition", "own", partial(_fixed, clients_of=fixed), digests.of_arrays(parts))

    def method(self, given: Any) -> str:
        """Register a method; returns its name."""
        if isinstance(given, (str, Spec, Path)):
            return str(given)
        if not (isinstance(given, type) and issubclass(given, FederatedMethod)):
            raise UserError(
                f"a method cannot be {given!r}: give a name, a path or a subclass of FederatedMethod"
            )
        if "info" not in vars(given):
            raise UserError(
                f"{given.__name__} has no name: put @register({given.__name__.lower()!r}, title=…, paper=…) "
                "above the class"
            )
        name = given.info.name
        if name in registry.names() and registry.find(name) is given:
            return name
        return self._add("method", name, given, digests.of_object(given))

    def backbone(self, given: Any) -> str:
        """Register a backbone; returns its name."""
        if isinstance(given, (str, Path)):
            return str(given)
        if not callable(given):
            raise UserError(f"a backbone cannot be {given!r}: give a name, a path, a function or a class")
        name = getattr(given, "__name__", "own").strip("<>")
        return self._add("backbone", name, given, digests.of_object(given))

    def _add(self, part: str, name: str, found: Any, digest: str) -> str:
        # Brackets would be read as options, and a graph's slash or ending as a path.
        name = name.replace("[", "(").replace("]", ")")
        if part == "dataset" and is_path(name):
            name = name.replace("/", "_").replace(".", "_")
        key = (NOUNS[part], f"{name} (own)" if name in catalog.names(part) else name)
        if self.digests.get(key, digest) != digest:
            how = f"rename one, as graph.name = '{name}-2'" if part == "dataset" else "rename one"
            how = "give them to two calls" if part == "partition" and name == "own" else how
            raise UserError(f"two different {key[0]}s are called {name!r}: {how}")
        self.objects[key], self.digests[key] = found, digest
        return key[1]


def _fixed(dataset: Dataset, clients: int, seed: int, *, clients_of: Any = None) -> Any:
    if isinstance(clients_of, np.ndarray):
        return of_component(dataset, clients_of, "the array that was given")
    if dataset.component is not None and max(int(part[-1]) for part in clients_of.clients) >= dataset.nodes:
        raise UserError(
            "the partition is of the whole graph, of which only the largest component is used: set"
            " largest_component=false, or divide the component"
        )
    return clients_of


def _partitions(given: Any) -> list[Any]:
    """Return one partition or several as a list; a list of clients, or of sets of nodes, is one partition."""
    several = listed(given)
    # A tuple may be a node, as in a grid of networkx.
    if all(is_grouped(each) and each and not isinstance(each[0], tuple) for each in several):
        return several
    numbers = all(isinstance(each, (bool, Real, np.bool_)) for each in several)
    # A scheme is not given twice, so repeated names are the clients of the nodes.
    named = all(isinstance(each, str) for each in several) and len({*several}) < len(several)
    return [given] if several and (numbers or named or is_grouped(given)) else several


def listed(given: Any) -> list[Any]:
    """Return one value or several as a list; an array is one value, but a range several. Raises UserError
    for an empty list."""
    if isinstance(given, list) and not given:
        raise UserError("an empty list selects nothing: leave the argument out to use the table's values")
    return list(given) if isinstance(given, (list, tuple, range)) else [given]


def _seeds(given: int | Sequence[int]) -> tuple[int, ...]:
    wrong = UserError(f"seeds must be a count of at least 1 or a list of whole numbers, not {given!r}")
    try:
        counted = given if isinstance(given, Iterable) else range(min(index(given), MOST_SEEDS + 1))
        seeds = tuple(map(index, counted))
    except TypeError:
        raise wrong from None
    if not (seeds or isinstance(given, tuple)):
        raise wrong
    return seeds


def _settings(given: Mapping[str, Any]) -> Iterator[str]:
    """Yield settings in the form `name=value`; a list of values makes a grid."""
    for name, value in zip(given, map(_plain, given.values()), strict=True):
        if name in Request.__dataclass_fields__:
            raise UserError(f"this function has no argument {name}: see its help, or `fedsub run --help`")
        several = isinstance(value, list) and (not takes_list(name) or any(map(_is_list, value)))
        for each in listed(value) if several else [value]:
            setting = f"{name}={'+'.join(map(str, each)) if _is_list(each) else format_value(each)}"
            setting_from_text(setting, "run")
            yield setting


def _plain(value: Any) -> Any:
    """Return a range or an array, as of `np.logspace`, as a list."""
    return np.asarray(value).tolist() if isinstance(value, (np.ndarray, range)) else value


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))
