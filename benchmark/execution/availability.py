"""Checks that a run's graphs are available, and downloads of missing ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from operator import attrgetter

from fedsub.benchmark.execution.runner import is_own, prepare
from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.custom import paths_of, user_objects_of
from fedsub.benchmark.spec.plan import Skip
from fedsub.datasets import registry as graphs
from fedsub.datasets.errors import UserError
from fedsub.datasets.plugins import user_objects


def keep_available(cells: Sequence[Cell], download: bool) -> tuple[list[Cell], list[Skip]]:
    """Return the cells whose graph is available or, with `download`, was fetched, and the missing graphs with
    reasons."""
    reasons: dict[str, str] = {}
    for dataset in dict.fromkeys(cell.dataset.text for cell in cells):
        if graphs.is_available(dataset):
            continue
        if not download:
            reasons[dataset] = f"its data is missing: {graphs.how_to_get(dataset)}"
            continue
        try:
            # Fetched before workers start: they would all fetch the same file.
            graphs.load(dataset)
        except UserError as error:
            reasons[dataset] = str(error)
    ready = [cell for cell in cells if cell.dataset.text not in reasons]
    return ready, [Skip(dataset, reason) for dataset, reason in reasons.items()]


def users_graphs(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield a line on each user's graph among the cells: what was read, and how it is prepared."""
    prepared = attrgetter("dataset", "largest_component", "binarise", "feature_transform")
    own = {(prepared(cell), paths_of(cell).get("dataset")): cell for cell in cells if is_own(cell)}
    for cell in own.values():
        # A graph that cannot be read is reported by its failing cells.
        with suppress(UserError), user_objects(user_objects_of(cell)):
            yield f"{cell.dataset}: {prepare(cell).note}"
