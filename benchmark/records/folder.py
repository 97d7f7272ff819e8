"""All records of a results folder; a table is a query over them.

One record holds one piece of work, whichever tables ask for it. It names the table for which it was run, so
that what lies beside that table's grid is shown there too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from fedsub.benchmark.records.record import OK, Record
from fedsub.benchmark.records.store import Store, explained_to_user, file_of, graph_of
from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.plan import grid_cells
from fedsub.benchmark.spec.protocol import load_protocol, names, table_name
from fedsub.benchmark.spec.schema import parse_line
from fedsub.datasets.errors import UserError, unknown
from fedsub.datasets.files import write_atomically
from fedsub.datasets.lock import locked
from fedsub.datasets.options import Spec

TRIALS = "trials"
"""Under which table's name the records of searches are kept."""
SEARCH_SEEDS = (1000, 1001)
"""Draws of the data for searches alone, the first rung on the first of them; of their records little is kept
(`search.kept`), so that no other table shows them."""
LEAST = 6
"""Letters of a key that name a record, if no other begins so."""


class Records:
    """The records of a results folder. A graph's file is read when it is first asked for; raises StoreError
    then if it cannot be."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stores: dict[str, Store] = {}
        self._peaks: dict[tuple[str, str], float] = {}

    def __bool__(self) -> bool:
        return any((self.folder / "runs").glob("*.jsonl"))

    def get(self, cell: Cell) -> Record | None:
        """The record of a cell, labelled as the cell is; see `Store.get`."""
        record = self._store(cell).get(cell.key, cell.further_metrics)
        return None if record is None else _labelled(record, cell)

    def done(self, cell: Cell) -> bool:
        """Whether a success answers the cell."""
        return self._store(cell).done(cell.key, cell.further_metrics)

    def runs(self, cell: Cell) -> int:
        """How many records there are of a cell, failures too."""
        return self._store(cell).runs(cell.key)

    def every(self) -> Iterator[Record]:
        """The record that counts of every key, graph after graph, also where a file was copied."""
        found: dict[str, Record] = {}
        for record in (record for store in self._all() for record in store.records()):
            if found.setdefault(record.key, record).status != OK == record.status:
                found[record.key] = record
        yield from found.values()

    def holds(self, graph: str) -> bool:
        """Whether there is a file of records of a graph, whatever its options."""
        return (self.folder / "runs" / f"{file_of(Spec(graph))}.jsonl").exists()

    def of_graph(self, cell: Cell) -> list[Record]:
        """Those in the file of a cell's graph."""
        return self._store(cell).records()

    def tables(self) -> list[str]:
        """The names of the tables for which anything was run."""
        return sorted({name for store in self._all() for name in store.tables()})

    def of_table(self, name: str, cells: Iterable[Cell] = ()) -> list[Record]:
        """The records of a table in any seed but those of searches: of its `cells`, and of what was run for
        it beside them."""
        groups = {cell.group: cell for cell in cells}
        for store in self._all():
            groups = {cell.group: cell for cell in store.run_for(name)} | groups
        hidden = () if name == TRIALS else SEARCH_SEEDS
        found = (
            self.get(cell.with_seed(seed))
            for cell in groups.values()
            for seed in self._seeds(cell)
            if seed not in hidden
        )
        return [*{record.key: record for record in found if record is not None}.values()]

    def of_tables(self, tables: Sequence[str]) -> list[Record]:
        """The records of these tables, names or .toml files; of all without any. Raises UserError for a table
        that there is not, and as `load_protocol` does."""
        if not tables:
            return [*self.every()]
        found: list[Record] = []
        for table in tables:
            # Of a table whose file is gone there is what was run for it.
            is_known = table in names() or Path(table).is_file()
            if not is_known and table_name(table) not in self.tables():
                raise unknown("table in the records", table, self.tables())
            cells = grid_cells(load_protocol(table)) if is_known else ()
            found += self.of_table(table_name(table), cells)
        return found

    def append(self, record: Record, replace: bool = False) -> bool:
        """See `Store.append`."""
        return self._store(record.cell).append(record, replace)

    def check_writable(self, cells: Iterable[Cell]) -> None:
        """Raises StoreError if the records of these cells could not be written."""
        for store in {graph_of(cell): self._store(cell) for cell in cells}.values():
            store.check_writable()

    def pack(self) -> None:
        """Move all curves into Parquet files; see `Store.pack`."""
        for store in self._all():
            store.pack()

    def warnings(self) -> list[str]:
        """A sentence on every file in which something could not be read so far."""
        return [warning for _, store in sorted(self._stores.items()) if (warning := store.warning)]

    def refresh(self) -> None:
        """Take in what was written meanwhile, here or by other processes."""
        for store in self._stores.values():
            store.refresh()
        self._peaks.clear()

    def peak_memory(self, cell: Cell) -> float:
        """The most MiB that a run of the cell's method on its graph has taken before; 0 if none has."""
        wanted = (cell.dataset.text, cell.method)
        if wanted not in self._peaks:
            same = (
                record.result.peak_memory_mb
                for record in self.of_graph(cell)
                if record.status == OK and (record.cell.dataset.text, record.cell.method) == wanted
            )
            self._peaks[wanted] = max(same, default=0.0)
        return self._peaks[wanted]

    def _seeds(self, cell: Cell) -> list[int]:
        """The seeds of which there are records of a cell."""
        store, drawn_once = self._store(cell), cell.data_seed
        found = store.seeds(cell.group)
        if drawn_once >= 0 and store.runs(cell.with_seed(drawn_once).key):
            # With the seed of its draw such a cell is one that draws with its own.
            found = found | {drawn_once}
        return sorted(found)

    def _store(self, cell: Cell) -> Store:
        return self._open(graph_of(cell))

    def _all(self) -> list[Store]:
        found = {path.stem for path in (self.folder / "runs").glob("*.jsonl")}
        return [self._open(name) for name in sorted(found | self._stores.keys())]

    def _open(self, graph: str) -> Store:
        if graph not in self._stores:
            self._stores[graph] = Store(self.folder, graph)
        return self._stores[graph]


def distinct(cells: Iterable[Cell]) -> list[Cell]:
    """The cells, each piece of work once, with what any of them scores besides."""
    found: dict[str, Cell] = {}
    for cell in cells:
        first = found.setdefault(cell.key, cell)
        if further := {*cell.further_metrics} - {*first.further_metrics}:
            every = tuple(sorted({*first.further_metrics, *further}))
            found[cell.key] = replace(first, further_metrics=every)
    return [*found.values()]


def _labelled(record: Record, cell: Cell) -> Record:
    """The record as one of an equal cell."""
    made = record.cell
    if made.further_metrics != cell.further_metrics or made.paths != cell.paths:
        cell = replace(cell, further_metrics=made.further_metrics, paths=made.paths)
    return replace(record, cell=cell)


def forget(results: Path, keys: Collection[str]) -> list[Record]:
    """Take every line of the records with these keys out of the folder; returns the records.

    A key may be cut short to its first six letters or more. Raises UserError if no record or several have it,
    and StoreError if a file cannot be read or written; nothing is taken out then.
    """
    held = {record.key: record for record in Records(results).every()}
    if not held:
        raise UserError(f"{results} holds no records: name another folder with --results")
    found: dict[str, Record] = {}
    for key in keys:
        same = [each for each in held if each.startswith(key)] if len(key) >= LEAST else []
        same = [key] if key in same else same
        if len(same) != 1:
            raise UserError(
                f"{len(same) or 'no'} records in {results} have a key that begins with {key!r}: give the"
                f" whole of one that a dry run shows, or the first {LEAST} letters at least"
            )
        found[same[0]] = held[same[0]]
    for graph in {graph_of(record.cell) for record in found.values()}:
        _remove(results / "runs" / f"{graph}.jsonl", found)
    return [*found.values()]


def _remove(path: Path, keys: Collection[str]) -> None:
    """Write the file anew without the lines of these keys; all others stay as they are."""
    if not keys:
        return
    with explained_to_user("write", path), locked(Path(f"{path}.lock")):
        lines = path.read_bytes().split(b"\n")
        kept = [line for line in lines if (parse_line(line) or {}).get("key") not in keys]
        if len(kept) < len(lines):
            write_atomically(path, b"\n".join(kept))
