"""All records of a results folder, across its tables: equal work is run once and answers every table.

Tables share cells that differ in nothing but the table they belong to. A cell's own record counts first;
where it has no success, a success of equal work in another table's file does, as `Record.answering` the cell.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from fedsub.benchmark.records.record import OK, Record
from fedsub.benchmark.records.store import Store
from fedsub.benchmark.spec.cell import Cell, Work


class Records:
    """The stores of a results folder and an index over all of them by the work that was done."""

    def __init__(self, folder: Path) -> None:
        """Read every file of records in the results folder; raises StoreError if one cannot be read."""
        self._folder = folder
        self._stores: dict[str, Store] = {}
        self._seeds: dict[str, dict[int, list[tuple[Store, str]]]] | None = None
        self._peaks: dict[tuple[str, str], float] | None = None
        for path in sorted((folder / "runs").glob("*.jsonl")):
            self.store(path.stem)

    def store(self, protocol: str) -> Store:
        """The store of a table, read once; the table need not have records."""
        if protocol not in self._stores:
            self._stores[protocol] = Store(self._folder, protocol)
            self._seeds = self._peaks = None
        return self._stores[protocol]

    def every(self) -> Iterator[Record]:
        """The record that counts of every key, table after table."""
        for _, store in sorted(self._stores.items()):
            yield from store.records()

    def warnings(self, tables: Collection[str] | None = None) -> list[str]:
        """A sentence on every file, of all or of these tables, that has lines without a record."""
        stores = (store for name, store in sorted(self._stores.items()) if tables is None or name in tables)
        return [warning for store in stores if (warning := store.warning)]

    def refresh(self) -> None:
        """Take in what was written meanwhile, here or by other processes."""
        for store in self._stores.values():
            store.refresh()
        self._seeds = self._peaks = None

    def get(self, cell: Cell) -> Record | None:
        """The record that counts for a cell: its own success, one of equal work, its own failure.

        It is labelled as the cell is, whatever the method was called when it was run.
        """
        own = self.store(cell.protocol).get(cell.key)
        if own is not None and own.status == OK:
            return replace(own, cell=replace(own.cell, label=cell.label))
        return self._shared(cell) or own

    def done(self, cell: Cell) -> bool:
        """Whether a success answers the cell."""
        return self.store(cell.protocol).done(cell.key) or self._shared(cell) is not None

    def of_table(self, protocol: str, cells: Iterable[Cell] = ()) -> list[Record]:
        """The table's own records, then those of other tables that answer with any seed its `cells`, or what
        its own records are of beside them."""
        found = {record.key: record for record in self.store(protocol).records()}
        beside = (replace(record.cell, seed=0) for record in found.values() if record.status == OK)
        for cell in dict.fromkeys((*cells, *beside)):
            drawn_once = cell.data_seed >= 0
            # With the seed of its draw such a cell is one that draws with its own.
            group = (replace(cell, seed=cell.data_seed + 1) if drawn_once else cell).work[0]
            for seed in sorted({*self._by_seed(group), *([cell.data_seed] if drawn_once else [])}):
                record = self.get(replace(cell, seed=seed))
                if record is not None:
                    found[record.key] = record
        return list(found.values())

    def peak_memory(self, cell: Cell) -> float:
        """The most MiB that a run of the cell's method on its graph has taken before; 0 if none has."""
        if self._peaks is None:
            self._peaks = {}
            for store in self._stores.values():
                for dataset, method, peak in store.peaks():
                    self._peaks[dataset, method] = max(peak, self._peaks.get((dataset, method), 0.0))
        return self._peaks.get((cell.dataset.text, cell.method), 0.0)

    def _shared(self, cell: Cell) -> Record | None:
        group, seed = cell.work
        for store, key in self._by_seed(group).get(seed, ()):
            record = store.get(key)
            if record is not None and record.status == OK and answers(record.cell, cell):
                return record.answering(cell)
        return None

    def _by_seed(self, group: str) -> dict[int, list[tuple[Store, str]]]:
        if self._seeds is None:
            self._seeds = {}
            for _, store in sorted(self._stores.items()):
                for (found, seed), key in store.successes():
                    self._seeds.setdefault(found, {}).setdefault(seed, []).append((store, key))
        return self._seeds.get(group, {})


def answers(made: Cell, asked: Cell) -> bool:
    """Whether the result of one cell is that of another: equal work, and no score less."""
    return made.work == asked.work and {*asked.further_metrics} <= {*made.further_metrics}


def run_once(cells: Iterable[Cell]) -> list[Cell]:
    """The cells without those that another of them answers: of equal ones the first, in the order given."""
    chosen: dict[Work, list[Cell]] = {}
    cells = list(cells)
    # Whoever scores most answers most.
    for cell in sorted(cells, key=lambda cell: -len(cell.further_metrics)):
        rivals = chosen.setdefault(cell.work, [])
        if not any(answers(rival, cell) for rival in rivals):
            rivals.append(cell)
    kept = {id(cell) for rivals in chosen.values() for cell in rivals}
    return [cell for cell in cells if id(cell) in kept]
