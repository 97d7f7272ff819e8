"""Checks for graphs before a run, and downloads of missing ones."""

from __future__ import annotations

from collections.abc import Sequence

from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.plan import Skip
from fedsub.datasets import registry as graphs
from fedsub.datasets.errors import UserError


def keep_available(cells: Sequence[Cell], download: bool) -> tuple[list[Cell], list[Skip]]:
    """The cells whose graph is available or, with `download`, can be fetched; and the missing graphs with
    reasons."""
    reasons: dict[str, str] = {}
    for dataset in dict.fromkeys(cell.dataset.text for cell in cells):
        if graphs.is_available(dataset):
            continue
        if not download:
            reasons[dataset] = f"its data is not here: {graphs.how_to_get(dataset)}"
            continue
        try:
            # Here, not in the workers, which would all fetch the same file.
            graphs.load(dataset)
        except UserError as error:
            reasons[dataset] = str(error)
    ready = [cell for cell in cells if cell.dataset.text not in reasons]
    return ready, [Skip(dataset, reason) for dataset, reason in reasons.items()]
