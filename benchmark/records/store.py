"""Records on disk: one append-only file of JSON lines for each graph, `runs/GRAPH.jsonl`, and those packed
by `records pack`, `runs/GRAPH.jsonl.gz`.

    {"id": ID, "metrics": ["accuracy", …], "seconds": ["setup", …], "bytes": ["up", …], …}
    {"id": ID, "dataset": …, "method": …, "options": {…}, "defaults": ID, "names": ID, …}
    {"key": KEY, "status": "ok", "cell": ID, "machine": ID, "draw": ID, "curve": ID,
     "metrics": [79.79, …], "seconds": [0.03, …], "bytes": [0.0, …], …}

Values that many records share are stored once, in a line with an id before the first record that refers to
it: the names of the figures (`names`), the settings (`cell`), the method's options at their defaults
(`defaults`), the machine with its versions and the commit (`machine`), and the statistics of the clients
(`draw`). Values at their defaults are left out. Curves are in other files (`records.curves`).
"""

import re
import secrets
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import MISSING, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fedsub.benchmark.records.curves import ID, Curves, Lazy, content_id, part_of, series_of
from fedsub.benchmark.records.jsonl import JsonLines
from fedsub.benchmark.records.record import APART, OK, Record, Result, Series, cell_of, to_json
from fedsub.benchmark.spec.cell import FIELDS, Cell
from fedsub.benchmark.spec.schema import checked, parse_line
from fedsub.datasets.errors import UserError
from fedsub.datasets.files import explained, write_atomically
from fedsub.datasets.options import Spec

SHARED = {
    "cell": (*(name for name in FIELDS if name != "seed"), "chosen", "defaults", "privacy", "note", "names"),
    "machine": ("environment", "commit"),
    "draw": ("partition_statistics",),
}
"""Reference in a record → the fields in the line with that id."""
NAMED = ("metrics", "seconds", "bytes", "partition_statistics")
"""Fields stored as values in a record; the line of its `names` holds their names in the same order."""
_DEFAULTS = {
    **{name: item.default for name, item in FIELDS.items()},
    **vars(Result()),
    "chosen": [],
    "traceback": None,
}
_HEAD = re.compile(
    rb'\{"key":"([0-9a-f]{12}-\d{1,9})","status":"(ok|failed|stopped)","cell":"([0-9a-f]{12})"'
)
_CURVE = re.compile(rb'"curve":"([0-9a-f]{12})"')


class StoreError(UserError):
    """The results folder cannot be read or written."""


explained_to_user = partial(
    explained, fix="repair it or choose another folder with --results", error=StoreError
)
"""`explained` for files in the results folder."""


def file_of(graph: Spec) -> str:
    """Return the name of the files that hold a graph's records: its name without options and folders."""
    name = re.sub(r"[^\w+-]+", "_", Path(graph.name).stem, flags=re.ASCII)
    return name[:80] or "graph"


@dataclass(eq=False, slots=True)
class _Line:
    """A line that holds a record, which is parsed at its first use."""

    content: bytes
    number: int
    """Number of the line in its file, from 1."""
    ok: bool
    cell: str
    """Id of the line with the record's settings."""
    record: Record | None = None
    is_spoilt: bool = False
    """Whether parsing found no valid record."""


class Store:
    """The records of one graph. Of several with one key the latest success is valid, else the latest."""

    def __init__(self, folder: Path, graph: str) -> None:
        """Read the file of `graph` in the results folder `folder`; a missing file is not created.

        Raises StoreError if it cannot be read.
        """
        self.path = folder / "runs" / f"{graph}.jsonl"
        self.curves = Curves(folder, graph)
        self._lines: dict[str, list[_Line]] = {}
        self._seeds: dict[str, set[int]] = {}
        self._shared: dict[str, dict[str, Any]] = {}
        """Id → the values that records share."""
        self._cells: dict[str, Cell] = {}
        self._lost: dict[str, str] = {}
        """Id of a curve that could not be read → the reason."""
        self._file = JsonLines(self.path, self._take, self._forget)
        self.refresh()

    @property
    def warning(self) -> str:
        """One sentence on the content that could not be read so far; empty if there is none."""
        said = []
        spoilt = (line.number for lines in self._lines.values() for line in lines if line.is_spoilt)
        if numbers := ", ".join(map(str, sorted({*self._file.unreadable, *spoilt}))):
            packed = self._file.packed
            where = f"{packed} followed by {self.path.name}" if packed.exists() else self.path
            said.append(
                f"{where}: skipped unreadable records in line {numbers}; restore the file from "
                "a backup, or delete the line and run its cell again"
            )
        if self._lost:
            said.append(f"lost curves: {len(self._lost)} ({next(iter(self._lost.values()))})")
        return "; ".join(said)

    def refresh(self) -> None:
        """Read what other processes wrote since this one last read or wrote the file.

        Raises StoreError if it cannot be read.
        """
        with explained_to_user("read", self.path):
            self._file.refresh()

    def records(self) -> list[Record]:
        """Return the valid record of every key, in order of first appearance."""
        return [*filter(None, map(self.get, [*self._lines]))]

    def get(self, key: str, metrics: Collection[str] = ()) -> Record | None:
        """Return the valid record of `key`, if any: the latest success that has all of `metrics`, else the
        latest success, else the latest record."""
        # A success stays valid when a later run of its cell fails.
        lines = sorted(self._lines.get(key, ()), key=lambda line: (line.ok, line.number), reverse=True)
        found = [record for line in lines if (record := self._record(key, line)) is not None]
        whole = (record for record in found if scores(record, metrics))
        return next(whole, found[0] if found else None)

    def done(self, key: str, metrics: Collection[str] = ()) -> bool:
        """Whether `key` has a success with these further metrics."""
        record = self.get(key, metrics)
        return record is not None and scores(record, metrics)

    def runs(self, key: str) -> int:
        """Return the number of records of `key`, failures included."""
        return len({line.number for line in self._lines.get(key, ())})

    def seeds(self, group: str) -> set[int]:
        """Return the seeds for which a group (`Cell.group`) has records."""
        return self._seeds.get(group, set())

    def run_for(self, table: str) -> Iterator[Cell]:
        """Yield one cell of each group that was run for a table."""
        ids = {name for name, values in self._shared.items() if values.get("protocol") == table}
        found = ((key, line) for key, lines in self._lines.items() for line in lines if line.cell in ids)
        last = {line.cell: (key, line) for key, line in found}
        for name in sorted(last):
            if (record := self._record(*last[name])) is not None:
                yield record.cell

    def tables(self) -> set[str]:
        """Return the names of the tables for which a cell was run."""
        return {name for each in self._shared.values() if isinstance(name := each.get("protocol"), str)}

    def check_writable(self) -> None:
        """Create the file, so that a run fails before its first cell, not after it; it does not stay empty.

        Raises StoreError if the file cannot be written.
        """
        with explained_to_user("write", self.path), self._file.locked():
            if not self.path.stat().st_size:
                self.path.unlink()

    def append(self, record: Record, replace: bool = False) -> bool:
        """Write one record and sync it to disk; returns whether it was written.

        Without `replace`, a cell that already has a success, for example from another process, is not
        written. Raises UserError for a record that could not be read again. Raises StoreError if the file
        cannot be written, and then leaves it unchanged.
        """
        values, shared, series = _parts(record)
        with explained_to_user("write", self.path), self._file.locked() as write:
            if not replace and self.done(record.key, record.cell.further_metrics):
                return False
            # The curve comes first: a process killed in between leaves an unused curve, which is harmless.
            if series:
                self.curves.add(values["curve"], series)
            lacks = [name for name, part in shared.items() if self._shared.get(name) != part]
            write([*(to_json({"id": name, **shared[name]}) for name in lacks), to_json(values)])
        return True

    def pack(self) -> None:
        """Move the graph's records into a gzip file and its curves into a Parquet file; drop curves that no
        record names. No process may append meanwhile.

        Raises StoreError if a file cannot be read or written.
        """
        with explained_to_user("write", self.path), self._file.locked():
            lines = (line for lines in self._lines.values() for line in lines)
            named = [found[1].decode() for line in lines if (found := _CURVE.search(line.content))]
            # The order of the records puts similar curves side by side.
            self.curves.pack([*dict.fromkeys(named)])
            self._file.pack()

    def _take(self, content: bytes) -> bool:
        if (found := _HEAD.match(content)) is not None:
            key = found[1].decode()
            line = _Line(content, self._file.line, found[2] == b"ok", found[3].decode())
            self._lines.setdefault(key, []).append(line)
            group, _, seed = key.partition("-")
            self._seeds.setdefault(group, set()).add(int(seed))
        elif (found := ID.match(content)) is not None and (values := parse_line(content)) is not None:
            # A damaged line is written again later, so the last line of an id is valid.
            name = found[1].decode()
            self._shared[name] = {part: value for part, value in values.items() if part != "id"}
            self._cells.pop(name, None)
        else:
            return False
        return True

    def _forget(self) -> None:
        for held in (self._lines, self._seeds, self._shared, self._cells):
            held.clear()

    def _record(self, key: str, line: _Line) -> Record | None:
        if line.record is None and not line.is_spoilt:
            try:
                line.record = self._made(key, line)
            # A faulty line must not make other lines unreadable.
            except Exception:
                line.is_spoilt = True
        return line.record

    def _made(self, key: str, line: _Line) -> Record:
        values = parse_line(line.content) or {}
        parts = [self._shared[values.pop(name)] for name in SHARED if name in values]
        values = {name: each for part in parts for name, each in part.items()} | values
        for name, keys in self._shared[values.pop("names")].items() if "names" in values else ():
            values[name] = dict(zip(keys, values[name], strict=True))
        if "defaults" in values:
            defaults = self._shared[values.pop("defaults")]["defaults"]
            values["options"] = defaults | values.get("options", {})
        if line.cell not in self._cells:
            self._cells[line.cell] = cell_of({**values, "seed": 0})
        cell = self._cells[line.cell].with_seed(int(key.partition("-")[2]))
        if "curve" not in values:
            return Record.of(cell, values)
        name = checked("curve", values.pop("curve"), str)
        series = Lazy(partial(self._series, name))
        apart = {part: Lazy(partial(part_of, series, part)) for part in APART}
        return Record.of(cell, values, **apart)

    def _series(self, name: str) -> Series:
        # A record without its curve is still valid.
        try:
            with explained_to_user("read", self.path):
                return self.curves.get(name)
        except UserError as error:
            self._lost[name] = str(error)
            return {}


def scores(record: Record, metrics: Collection[str]) -> bool:
    """Whether the record is a success with these further metrics."""
    return record.status == OK and {*metrics} <= {*record.cell.further_metrics}


def _parts(record: Record) -> tuple[dict[str, Any], dict[str, dict[str, Any]], Series]:
    """Return the line of a record, id → line that it shares with other records, and its curves.

    Raises UserError if they could not be read again.
    """
    values = record.reread().to_dict()
    series = series_of(**{part: values.pop(part, {}) for part in APART})
    options = values["options"]
    values["options"] = {name: options[name] for name in values["chosen"]}
    values = {name: each for name, each in values.items() if each != _DEFAULTS.get(name, MISSING)}
    head = {"key": values.pop("key"), "status": values.pop("status")}
    shared: dict[str, dict[str, Any]] = {}
    if defaults := {name: options[name] for name in options if name not in values.get("chosen", ())}:
        values["defaults"] = content_id(defaults)
        shared[values["defaults"]] = {"defaults": defaults}
    if figures := {name: [*values[name]] for name in NAMED if name in values}:
        values["names"] = content_id(figures)
        shared[values["names"]] = figures
        values |= {name: [*values[name].values()] for name in figures}
    for reference, names in SHARED.items():
        if part := {name: values.pop(name) for name in names if name in values}:
            head[reference] = content_id(part)
            shared[head[reference]] = part
    if series:
        head["curve"] = content_id(series)
    del values["seed"]
    return {**head, **values}, shared, series


def keep_elsewhere(folder: Path, record: Record) -> Path:
    """Write a record that its store could not write to a new file in `folder`, else in the temporary folder.

    Raises OSError if neither can be written.
    """
    content = record.to_json().encode() + b"\n"
    name = f"unsaved-{Path(record.cell.protocol).stem}-{secrets.token_hex(4)}.jsonl"
    try:
        write_atomically(folder / name, content)
    except OSError:
        folder = Path(tempfile.gettempdir())
        write_atomically(folder / name, content)
    return folder / name
