"""Drawings of the clients that a partition makes: discs, and lines for the edges it cuts between them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

import networkx as nx
import numpy as np

from fedsub.benchmark.records.record import Record
from fedsub.benchmark.report.leaderboard import block_title
from fedsub.benchmark.spec.cell import Cell
from fedsub.datasets import registry
from fedsub.datasets.errors import UserError
from fedsub.datasets.graph import largest_component
from fedsub.datasets.partition import partition
from fedsub.datasets.partition.statistics import client_edges
from fedsub.datasets.paths import is_path

MOST_NODES = 20_000
"""Larger graphs take too long to read for a page."""
MOST_CLIENTS = 20
"""More would be a ball of wool."""
MOST = 6
"""Drawings on a page."""
USUAL_CLIENTS = 10
SIDE = 400
MARGIN = 40


@dataclass(frozen=True)
class Disc:
    """A client: its place, its radius, and how many nodes it holds."""

    x: float
    y: float
    radius: float
    nodes: int


@dataclass(frozen=True)
class Line:
    """Two clients with edges between them."""

    start: Disc
    end: Disc
    width: float
    edges: int
    ends: tuple[int, int]


@dataclass(frozen=True)
class Drawing:
    """The client graph of one partition, in a square of `SIDE`."""

    title: str
    discs: tuple[Disc, ...]
    lines: tuple[Line, ...]
    alone: int
    """Edges of the graph inside clients."""

    @property
    def cut(self) -> int:
        """Edges between clients."""
        return sum(line.edges for line in self.lines)

    @property
    def words(self) -> str:
        """What the picture shows."""
        sizes = [disc.nodes for disc in self.discs]
        text = (
            f"{self.title} of {min(sizes)} to {max(sizes)} nodes; "
            f"{self.cut} of {self.cut + self.alone} edges lie between two clients"
        )
        if self.lines:
            widest = max(self.lines, key=lambda line: line.edges)
            text += f", most ({widest.edges}) between clients {widest.ends[0]} and {widest.ends[1]}"
        return f"{text}."


def draw_clients(records: Iterable[Record]) -> list[Drawing]:
    """Partitions of the records whose graph is at hand and small, as they are drawn today with the
    records' seed: one of each graph and scheme, those with the most records, with about ten clients."""
    found: dict[tuple[str, str], Drawing] = {}
    small = [record.cell for record in records if _nodes(record) <= MOST_NODES]
    cells = {(cell.dataset, cell.partition, cell.clients): cell for cell in small}
    often = Counter((cell.dataset, cell.partition) for cell in small)

    def preference(cell: Cell) -> tuple[int, int, str, str]:
        place = cell.dataset, cell.partition
        return -often[place], abs(cell.clients - USUAL_CLIENTS), str(cell.dataset), str(cell.partition)

    for cell in sorted(cells.values(), key=preference):
        place = str(cell.dataset), str(cell.partition)
        if place in found or not 2 <= cell.clients <= MOST_CLIENTS or len(found) == MOST:
            continue
        if any(is_path(part.name) for part in (cell.dataset, cell.partition)):
            # A page runs nobody's files.
            continue
        # A page is made from records: what a drawing needs besides may be gone, or never was here.
        with suppress(UserError):
            dataset = registry.load(cell.dataset, download=False)
            if cell.largest_component:
                dataset = largest_component(dataset)
            made = partition(dataset, cell.partition, cell.clients, cell.drawn_with)
            if not made.overlapping:
                title = block_title((*place, cell.clients))
                found[place] = _draw(title, client_edges(dataset, made), made.sizes)
    return [*found.values()]


def _nodes(record: Record) -> float:
    """How many its clients hold; more than any where it does not say."""
    return float(record.result.partition_statistics.get("nodes_held") or math.inf)


def _draw(title: str, between: np.ndarray, sizes: np.ndarray) -> Drawing:
    between = between.copy()
    inside = int(np.trace(between))
    np.fill_diagonal(between, 0)
    # A little for every pair: without it what has no edge to the rest drives it into a corner.
    graph = nx.from_numpy_array(np.sqrt(between) + 0.2 * np.sqrt(between.max()))
    places = nx.spring_layout(graph, weight="weight", seed=0, iterations=200)
    spots = np.array([places[client] for client in range(len(sizes))])
    low, span = spots.min(axis=0), np.ptp(spots, axis=0)
    spots = MARGIN + (SIDE - 2 * MARGIN) * (spots - low) / np.where(span > 0, span, 1.0)
    largest = 22 * min(1.0, np.sqrt(12 / len(sizes)))
    discs = tuple(
        Disc(
            round(float(x), 1),
            round(float(y), 1),
            round(largest * float(np.sqrt(size / sizes.max())), 1),
            int(size),
        )
        for (x, y), size in zip(spots, sizes, strict=True)
    )
    most = max(int(between.max()), 1)
    lines = tuple(
        Line(discs[i], discs[j], round(0.5 + 8 * int(between[i, j]) / most, 2), int(between[i, j]), (i, j))
        for i, j in zip(*np.nonzero(np.triu(between)), strict=True)
    )
    return Drawing(title, discs, lines, inside)
