"""The campaign: cells that answer printed figures, ordered by figures per second.

Seeds are fixed before anything runs: those of the table, or `--seeds`. What has a record is not run again, so
that a campaign goes on where it was stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedsub.benchmark.analysis.published import answered_figures
from fedsub.benchmark.execution.estimate import Estimate, duration
from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.plan import is_chosen
from fedsub.benchmark.spec.protocol import Protocol
from fedsub.benchmark.spec.request import Request


def figures_of(cell: Cell, protocol: Protocol) -> int:
    """Number of printed figures that the cell's row answers."""
    place = (
        cell.dataset.text,
        cell.partition.text,
        cell.clients,
        cell.variant,
        cell.architecture.backbone,
    )
    return sum(len([*answered_figures(protocol, metric, *place)]) for metric in protocol.scores)


def by_worth(
    cells: Sequence[Cell], estimate: Estimate, protocols: Mapping[str, Protocol], asked: Request
) -> list[Cell]:
    """The cells asked for that answer a figure, most figures per second first; rows stay whole."""
    rows: dict[object, list[Cell]] = {}
    for cell in cells:
        if is_chosen(cell, asked):
            rows.setdefault((cell.protocol, cell.group), []).append(cell)
    worth = {}
    for name, row in rows.items():
        if count := figures_of(row[0], protocols[row[0].protocol]):
            worth[name] = count / max(sum(map(estimate.seconds, row)), 1e-9)
    return [cell for name in sorted(worth, key=lambda name: -worth[name]) for cell in rows[name]]


def in_words(cells: Sequence[Cell], estimate: Estimate, workers: int) -> str:
    """Number of cells and estimated time, as text."""
    seconds = sum(map(estimate.seconds, cells)) / workers
    return f"campaign: {len(cells)} cells to run, about {duration(seconds)} with {workers} worker(s)"
