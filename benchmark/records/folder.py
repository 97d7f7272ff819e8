"""All records of a results folder; a table is a query over them.

One record holds one run, however many tables request it. It names the table for which it was run, so that
runs outside that table's grid are shown there too.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from fedsub.benchmark.records.curves import Lazy
from fedsub.benchmark.records.jsonl import read_lines, write_lines
from fedsub.benchmark.records.record import OK, Record, cell_of
from fedsub.benchmark.records.store import Store, explained_to_user, file_of
from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.plan import grid_cells
from fedsub.benchmark.spec.protocol import load_protocol, names, table_name
from fedsub.benchmark.spec.request import SEARCH_SEEDS
from fedsub.benchmark.spec.schema import parse_line
from fedsub.datasets.errors import UserError, unknown
from fedsub.datasets.lock import locked
from fedsub.datasets.options import Spec

TRIALS = "trials"
"""Name of the table under which the records of searches are kept."""
LEAST = 6
"""Minimum length of a key's prefix that names a record."""


class Records:
    """The records of a results folder. A graph's file is read at its first use; this raises StoreError if the
    file cannot be read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stores: dict[str, Store] = {}
        self._peaks: dict[tuple[str, str], float] = {}

    def __bool__(self) -> bool:
        return bool(_graphs(self.folder))

    def get(self, cell: Cell) -> Record | None:
        """Return the record of a cell, with this cell's label; see `Store.get`."""
        record = self._store(cell).get(cell.key, cell.further_metrics)
        if record is None:
            return None
        ran = record.cell
        if (ran.further_metrics, ran.paths) != (cell.further_metrics, cell.paths):
            cell = replace(cell, further_metrics=ran.further_metrics, paths=ran.paths)
        return replace(record, cell=cell)

    def done(self, cell: Cell) -> bool:
        """Whether the cell has a successful record."""
        return self._store(cell).done(cell.key, cell.further_metrics)

    def runs(self, cell: Cell) -> int:
        """Return the number of records of a cell, failures included."""
        return self._store(cell).runs(cell.key)

    def every(self) -> Iterator[Record]:
        """Yield the valid record of every key, graph by graph, once even if a file was copied."""
        found: dict[str, Record] = {}
        for record in (record for store in self._all() for record in store.records()):
            if found.setdefault(record.key, record).status != OK == record.status:
                found[record.key] = record
        yield from found.values()

    def holds(self, graph: str) -> bool:
        """Whether there is a file of records of a graph, with any options."""
        return file_of(Spec(graph)) in _graphs(self.folder)

    def of_graph(self, cell: Cell) -> list[Record]:
        """Return the records in the file of a cell's graph."""
        return self._store(cell).records()

    def tables(self) -> list[str]:
        """Return the names of the tables for which a cell was run."""
        return sorted({name for store in self._all() for name in store.tables()})

    def of_table(self, name: str, cells: Iterable[Cell] = ()) -> list[Record]:
        """Return the records of a table: those of its `cells`, in their order, then those run for it beside
        them, in every seed. Seeds of searches are left out unless the table is TRIALS."""
        groups = {cell.group: cell for cell in cells}
        for store in self._all():
            for cell in store.run_for(name):
                groups.setdefault(cell.group, cell)
        hidden = () if name == TRIALS else SEARCH_SEEDS
        found = (
            self.get(cell.with_seed(seed))
            for cell in groups.values()
            for seed in self._seeds(cell)
            if seed not in hidden
        )
        return [*{record.key: record for record in found if record is not None}.values()]

    def of_tables(self, tables: Sequence[str]) -> list[Record]:
        """Return the records of these tables (names or .toml files), or all records if `tables` is empty.
        Raises UserError for an unknown table, without any record, and as `load_protocol` does."""
        found: list[Record] = [] if tables else [*self.every()]
        for table in tables:
            # A table whose file is gone still has the records that were run for it.
            is_known = table in names() or Path(table).is_file()
            if not is_known and table_name(table) not in self.tables():
                raise unknown("table in the records", table, self.tables())
            cells = grid_cells(load_protocol(table)) if is_known else ()
            found += self.of_table(table_name(table), cells)
        if not found:
            named = f"no records of {', '.join(tables) or 'any table'}"
            raise UserError(f"{self.folder} holds {named}: give another folder or --table")
        return found

    def append(self, record: Record, replace: bool = False) -> bool:
        """See `Store.append`."""
        return self._store(record.cell).append(record, replace)

    def check_writable(self, cells: Iterable[Cell]) -> None:
        """Raises StoreError if the records of these cells could not be written."""
        for store in dict.fromkeys(map(self._store, cells)):
            store.check_writable()

    def pack(self) -> None:
        """Move all records and curves into compressed files; see `Store.pack`."""
        for store in self._all():
            store.pack()

    def warnings(self) -> list[str]:
        """Return a sentence on every file that had unreadable content so far."""
        return [warning for _, store in sorted(self._stores.items()) if (warning := store.warning)]

    def refresh(self) -> None:
        """Read what was written meanwhile, by this or other processes."""
        for store in self._stores.values():
            store.refresh()
        self._peaks.clear()

    def peak_memory(self, cell: Cell) -> float:
        """Peak memory in MiB over the runs of the cell's method on its graph; 0 if there are none."""
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
        """Return the seeds for which a cell has records."""
        store, drawn_once = self._store(cell), cell.data_seed
        found = store.seeds(cell.group)
        if drawn_once >= 0 and store.runs(cell.with_seed(drawn_once).key):
            # A cell with seed = data_seed has the key of a cell without data_seed, which is in another group.
            found = found | {drawn_once}
        return sorted(found)

    def _store(self, cell: Cell) -> Store:
        return self._open(file_of(cell.dataset))

    def _all(self) -> list[Store]:
        return [self._open(name) for name in sorted(_graphs(self.folder) | self._stores.keys())]

    def _open(self, graph: str) -> Store:
        if graph not in self._stores:
            self._stores[graph] = Store(self.folder, graph)
        return self._stores[graph]


def _graphs(folder: Path) -> set[str]:
    """Return the names of the files of records in a folder."""
    ends = (".jsonl", ".jsonl.gz")
    return {path.name.removesuffix(end) for end in ends for path in (folder / "runs").glob(f"*{end}")}


def distinct(cells: Iterable[Cell]) -> list[Cell]:
    """Return the cells, each key once, with the further metrics of all cells of that key."""
    found: dict[str, Cell] = {}
    for cell in cells:
        first = found.setdefault(cell.key, cell)
        if further := {*cell.further_metrics} - {*first.further_metrics}:
            every = tuple(sorted({*first.further_metrics, *further}))
            found[cell.key] = replace(first, further_metrics=every)
    return [*found.values()]


def add(results: Path, source: Path) -> tuple[int, list[str]]:
    """Append the successes of another folder, or of a file of `keep_elsewhere`, that this one lacks; return
    how many, and sentences on what could not be read. A record whose curves are lost is left out. Files and
    logs of cells are not copied.

    Raises UserError if the source has no records, and StoreError if it cannot be read, or written here.
    """
    stored = Records(source)
    if source.is_dir():
        found = [*stored.every()]
    else:
        with explained_to_user("read", source):
            lines = source.read_bytes().splitlines()
        found = [Record.of(cell_of(values), values) for values in map(parse_line, lines) if values]
    if not found:
        raise UserError(f"{source} holds no records: give a results folder or a file unsaved-….jsonl")
    whole = (each for each in found if each.status == OK and (each.curve or not isinstance(each.curve, Lazy)))
    return sum(map(Records(results).append, whole)), stored.warnings()


def forget(stored: Records, keys: Collection[str]) -> list[Record]:
    """Remove every line of the records with these keys from their files; returns the records.

    A key may be shortened to its first six letters or more. Raises UserError, before it removes anything, if
    not exactly one record has a key. Raises StoreError if a file cannot be read or written.
    """
    held, results = {record.key: record for record in stored.every()}, stored.folder
    found: dict[str, Record] = {}
    for key in keys:
        same = [each for each in held if each.startswith(key)] if len(key) >= LEAST else []
        same = [key] if key in same else same
        if len(same) != 1:
            raise UserError(
                f"{len(same) or 'no'} records in {results} have a key that begins with {key!r}: give a"
                f" whole key from a dry run, or at least {LEAST} letters that no other key begins with"
            )
        found[same[0]] = held[same[0]]
    for graph in {file_of(record.cell.dataset) for record in found.values()}:
        _remove(results / "runs" / f"{graph}.jsonl", found)
    return [*found.values()]


def _remove(path: Path, keys: Collection[str]) -> None:
    """Rewrite the file and its packed one without the lines of these keys; other lines stay unchanged."""
    with explained_to_user("write", path), locked(Path(f"{path}.lock")):
        for each in (path, Path(f"{path}.gz")):
            lines = read_lines(each)
            kept = [line for line in lines if (parse_line(line) or {}).get("key") not in keys]
            if len(kept) < len(lines):
                write_lines(each, kept)
