"""Estimates of cells' seconds from earlier records."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedsub.benchmark.records.record import OK, Record
from fedsub.benchmark.spec.cell import Cell

UNKNOWN_SECONDS = 10.0
"""Estimate for a cell when there are no records at all."""
LEAST_SECONDS = 1e-9
"""Lower bound of seconds before their logarithm is taken."""
LATEST = 9
"""Number of latest records of similar cells that are used; earlier ones may be of slower code."""


class Estimate:
    """Estimate of a cell's seconds, from earlier cells' seconds of set-up and per local epoch.

    Options may change a method's costs, so records with the same options come first. If the variant has
    records on other graphs only, the logarithm of each time is modelled as a term of the graph plus a term of
    the variant, fitted to all pairs that have records. Set-up per node is taken to be no less than on any
    graph with fewer nodes and no more features: that of a few methods grows differently from the others'.
    """

    def __init__(
        self, records: Iterable[Record], of_graph: Callable[[Cell], Iterable[Record]] | None = None
    ) -> None:
        """Use the successes among `records`, which are read only if those `of_graph`, of a cell's own graph,
        do not suffice."""
        self._records, self._of_graph = records, of_graph
        self._near: dict[str, _Medians] = {}

    def seconds(self, cell: Cell) -> float:
        """Return the seconds of set-up, training and evaluation on a core of its own."""
        found, variant = self._medians_near(cell), (cell.method, cell.variant)
        near = next((like for like in _likes(cell) if like in found), None)
        if near is None:
            if not self._taken:
                return UNKNOWN_SECONDS
            if variant not in self._epochs_fitted.of_variants and _of_method(cell) in found:
                near = _of_method(cell)
        if near is not None:
            setup, an_epoch = found[near]
        else:
            fits = self._setups_fitted, self._epochs_fitted
            setup, an_epoch = (fit.seconds(cell.dataset.text, variant) for fit in fits)
            setup = max([setup, *self._setups_of_smaller(cell.dataset.text, variant)])
        return setup + an_epoch * _epochs(cell)

    def _medians_near(self, cell: Cell) -> _Medians:
        """Group of similar cells on the cell's graph → median seconds of set-up and of a local epoch."""
        graph = cell.dataset.text
        if graph not in self._near:
            taken = self._taken if self._of_graph is None else _seconds_of(self._of_graph(cell))
            found: dict[tuple[Hashable, ...], list[tuple[float, float]]] = defaultdict(list)
            for each, setup, an_epoch in taken:
                for like in (*_likes(each), _of_method(each)):
                    found[like].append((setup, an_epoch))
            pairs = ((like, zip(*seconds, strict=True)) for like, seconds in found.items())
            self._near[graph] = {like: (_recent(setups), _recent(epochs)) for like, (setups, epochs) in pairs}
        return self._near[graph]

    def _setups_of_smaller(self, graph: str, variant: _Variant) -> Iterator[float]:
        """Yield the variant's set-up seconds per node on each smaller graph, times the nodes of this one."""
        # The import is slow, and needed only for a graph that is new to the variant.
        from fedsub.datasets.catalogue import REGISTRY

        here = REGISTRY.get(graph)
        if here is None:
            return
        for other, setup in self._setups.get(variant, {}).items():
            there = REGISTRY.get(other)
            if there is not None and there.nodes < here.nodes and there.features <= here.features:
                yield setup * here.nodes / there.nodes

    @cached_property
    def _setups(self) -> Mapping[_Variant, Mapping[str, float]]:
        """Variant → graph → median seconds of the latest set-ups."""
        found: dict[_Variant, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for cell, setup, _ in self._taken:
            graph, variant = _pair(cell)
            found[variant][graph].append(setup)
        return {
            variant: {graph: _recent(setups) for graph, setups in graphs.items()}
            for variant, graphs in found.items()
        }

    @cached_property
    def _taken(self) -> list[tuple[Cell, float, float]]:
        return _seconds_of(self._records)

    @cached_property
    def _setups_fitted(self) -> _Fit:
        return _Fit.to((*_pair(cell), setup) for cell, setup, _ in self._taken)

    @cached_property
    def _epochs_fitted(self) -> _Fit:
        return _Fit.to((*_pair(cell), an_epoch) for cell, _, an_epoch in self._taken)


_Variant = tuple[str, ...]
"""A method, and its name with options."""
_Medians = Mapping[tuple[Hashable, ...], tuple[float, float]]


def _seconds_of(records: Iterable[Record]) -> list[tuple[Cell, float, float]]:
    """Return the cells of the successes with their core-seconds of set-up and per local epoch."""
    taken = []
    for record in records:
        if record.status == OK:
            setup = record.core_seconds.get("setup", 0.0)
            rest = sum(record.core_seconds.values()) - setup
            taken.append((record.cell, setup, rest / _epochs(record.cell)))
    return taken


@dataclass(frozen=True)
class _Fit:
    """Model of seconds: a factor of the graph times a factor of the variant."""

    of_graphs: Mapping[str, float]
    """Graph → logarithm of its factor; "" is for graphs without a record."""
    of_variants: Mapping[_Variant, float]
    """Variant → logarithm of its factor; (method,) is for its other variants, () for other methods."""

    @classmethod
    def to(cls, taken: Iterable[tuple[str, _Variant, float]]) -> _Fit:
        """Fit the logarithms by least squares; each pair of graph and variant has equal weight."""
        pairs: dict[tuple[str, _Variant], list[float]] = defaultdict(list)
        for graph, variant, seconds in taken:
            pairs[graph, variant].append(math.log(max(seconds, LEAST_SECONDS)))
        graphs = sorted({graph for graph, _ in pairs})
        variants = sorted({variant for _, variant in pairs})
        design = np.zeros((len(pairs), len(graphs) + len(variants)))
        for row, (graph, variant) in zip(design, pairs, strict=True):
            row[graphs.index(graph)] = row[len(graphs) + variants.index(variant)] = 1
        terms = np.linalg.lstsq(design, [_recent(logs) for logs in pairs.values()], rcond=None)[0].tolist()
        of_graphs, of_variants = terms[: len(graphs)], terms[len(graphs) :]
        wider: dict[_Variant, list[float]] = defaultdict(list)
        for (method, _), term in zip(variants, of_variants, strict=True):
            wider[method,].append(term)
            wider[()].append(term)
        return cls(
            dict(zip(graphs, of_graphs, strict=True)) | {"": statistics.median(of_graphs)},
            dict(zip(variants, of_variants, strict=True))
            | {name: statistics.median(terms) for name, terms in wider.items()},
        )

    def seconds(self, graph: str, variant: _Variant) -> float:
        """Return the estimate for a pair without a record."""
        names = (variant, variant[:1], ())
        of_variant = next(self.of_variants[name] for name in names if name in self.of_variants)
        return math.exp(self.of_graphs.get(graph, self.of_graphs[""]) + of_variant)


def _pair(cell: Cell) -> tuple[str, _Variant]:
    return cell.dataset.text, (cell.method, cell.variant)


def _recent(values: Sequence[float]) -> float:
    """Return the median of the LATEST last values."""
    return statistics.median(values[-LATEST:])


def _epochs(cell: Cell) -> int:
    """Return the total number of local epochs."""
    return cell.schedule.rounds * cell.schedule.local_epochs


def _likes(cell: Cell) -> list[tuple[Hashable, ...]]:
    """Return groups of similar cells, the most similar first."""
    same = (*_of_method(cell), cell.variant)
    # Tables differ in hidden widths, and local epochs share the time of a round's exchange.
    alike = (*same, cell.architecture.hidden, cell.schedule.local_epochs)
    with_backbone = (*alike, cell.architecture.backbone)
    return [(*with_backbone, cell.clients), with_backbone, alike, same]


def _of_method(cell: Cell) -> tuple[str, ...]:
    """Return the group of cells of this method on this graph, with any options."""
    return cell.dataset.text, cell.task.text, cell.method


def duration(seconds: float) -> str:
    """Return seconds as text in a readable unit: `45 s`, `12 min`, `3.2 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"
