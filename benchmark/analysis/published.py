"""Printed figures (published.csv), and which of them a measured cell answers."""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType

from fedsub.benchmark.spec.protocol import Protocol, bare, source_of
from fedsub.datasets.catalogue import REGISTRY

FILE = Path(__file__).parent / "published.csv"

Place = tuple[str | None, ...]
"""Values of the columns in `PLACE`."""
PLACE = ("paper", "table", "dataset", "partition", "clients", "method", "backbone", "metric")


@dataclass(frozen=True)
class Figure:
    """One printed figure."""

    mean: float
    std: float | None = None
    """Printed standard deviation over runs; None if none is printed."""
    source: str = ""
    """Paper and table."""
    note: str = ""
    """Note in the list of figures."""
    place: Place = ("",) * 8
    runs: int = 1
    """Number of runs in the mean. The protocol that answers the figure states this field and those below."""
    drawn_once: bool = False
    """Whether the runs share one partition and split."""
    baseline: str = ""
    cannot: str = ""
    """Why no run here answers it."""
    scale: float = 1.0
    """Factor from the printed unit to ours."""

    @property
    def paper(self) -> str:
        """The paper's name."""
        return self.place[0] or ""


@cache
def figures() -> Mapping[Place, tuple[Figure, ...]]:
    """Return place → printed figures; figures at one place differ in their notes."""
    found: dict[Place, tuple[Figure, ...]] = {}
    with FILE.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            place = tuple(row[name] for name in PLACE)
            std = float(row["std"]) if row["std"] else None
            source = source_of(row["paper"], row["table"])
            figure = Figure(float(row["mean"]), std, source, row["note"], place)
            found[place] = (*found.get(place, ()), figure)
    return MappingProxyType(found)


def answered_figures(
    protocol: Protocol, metric: str, dataset: str, partition: str, clients: int, method: str, backbone: str
) -> Iterator[Figure]:
    """Yield the printed figures that a cell of `protocol` answers, in our unit, its own table's first."""
    listed = partition in protocol.grid_for(dataset=dataset, method=method)["partition"]
    graph = REGISTRY.get(dataset)
    for block in protocol.published:
        scheme = block.partition.get(partition)
        if scheme is None and listed:
            scheme = block.partition.get(str(bare(partition)))
        entry = block.method.get(method, {})
        place = (
            block.paper,
            block.table,
            # A block lists only graphs whose printed name is not the registry's title.
            block.dataset.get(dataset, graph.title if graph else None),
            entry.get("partition", scheme) if scheme is not None else None,
            entry.get("clients", str(clients)),
            entry.get("method"),
            block.backbone.get(backbone),
            block.metric.get(metric),
        )
        # A None in the place is a name that the paper does not print: there is no figure.
        for figure in figures().get(place, ()):
            if figure.note.startswith(block.note):
                yield replace(
                    figure,
                    mean=block.scale * figure.mean,
                    std=figure.std and block.scale * figure.std,
                    scale=block.scale,
                    runs=block.runs,
                    drawn_once=block.drawn_once,
                    baseline=block.method[method].get("baseline", block.baseline),
                    cannot=block.cannot,
                )
                break


def answerable(protocol: Protocol) -> int:
    """Number of printed figures that the grid of `protocol` answers."""
    return sum(
        any(answered_figures(protocol, metric, *point))
        for point in grid_points(protocol)
        for metric in protocol.metrics
    )


def grid_points(protocol: Protocol) -> Iterator[tuple[str, str, int, str, str]]:
    """Yield the values on `AXES` of every cell of the grid."""
    for dataset in protocol.grid["dataset"]:
        for method in protocol.grid_for(dataset=dataset)["method"]:
            for partition, clients, backbone in protocol.points(dataset, method):
                yield dataset, partition, clients, method, backbone
