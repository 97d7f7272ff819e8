"""Curves on disk, in files of their own: appended while cells run, packed into Parquet for storage.

    curves/GRAPH.jsonl      one line per curve: `{"id": …, "round": […], "test": […], …}`
    curves/GRAPH.parquet    one row per curve, the same in columns: `pandas.read_parquet` reads it

The id is the start of the SHA-256 of the content. A method's figures per round are in columns
`by_round.NAME`, the clients' scores in `by_client.test`. In Parquet, integer columns other than `round` are
in ten-thousandths: `pandas.read_parquet(path).test / 10_000` are scores in percent.
"""

import hashlib
import io
import re
from collections import UserDict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from fedsub.benchmark.records.jsonl import LARGEST, JsonLines, state_of
from fedsub.benchmark.records.record import SERIES, Series, check_curve, to_json
from fedsub.benchmark.spec.schema import checked, parse_line
from fedsub.datasets.errors import UserError
from fedsub.datasets.files import write_atomically

ID_LENGTH = 12
ID = re.compile(rb'\{"id":"([0-9a-f]{12})"')
"""Beginning of a line with an id."""
CURVE, ROUND = "curve", "round"
SCALE = 10_000.0
"""Factor from a score to its packed integer."""
LEVEL = 19
"""Compression level of zstd, high because files are written rarely and kept in git."""


class Lazy(UserDict[str, list[float | None]]):
    """A mapping that is read at its first use."""

    def __init__(self, read: Callable[[], Series]) -> None:
        self._read = read

    @cached_property
    def data(self) -> Series:  # type: ignore[override]
        """The mapping."""
        return self._read()

    def __reduce__(self) -> tuple[type, tuple[Series]]:
        return dict, (self.data,)


def content_id(values: Mapping[str, Any]) -> str:
    """Return the content hash by which a file refers to shared values."""
    return hashlib.sha256(to_json(dict(sorted(values.items()))).encode()).hexdigest()[:ID_LENGTH]


class Curves:
    """The curves of one graph; operations raise OSError as the file system does."""

    def __init__(self, results: Path, graph: str) -> None:
        self._lines: dict[str, bytes] = {}
        self._file = JsonLines(results / "curves" / f"{graph}.jsonl", self._take, self._lines.clear)
        self._path = self._file.path.with_suffix(".parquet")
        self._rows: dict[str, int] = {}
        """Id → row of the packed file, which was read as a whole."""
        self._columns: dict[str, Any] = {}
        self._state: tuple[int, ...] = ()

    def get(self, name: str) -> Series:
        """Return the series stored under an id, by column name: the curve and the columns described above.

        Raises UserError if they cannot be read or do not exist.
        """
        if name not in self._lines and name not in self._rows:
            self.refresh()
        if name in self._rows:
            lists = {column: values[self._rows[name]].values for column, values in self._columns.items()}
            series = {column: each.to_pylist() for column, each in lists.items() if each is not None}
        elif name in self._lines:
            if (found := parse_line(self._lines[name])) is None:
                raise UserError(
                    f"curve {name} in {self._file.path} is damaged: restore the file from a backup, or delete"
                    " its line"
                )
            series = checked(f"curve {name}", {key: found[key] for key in found if key != "id"}, SERIES)
        else:
            raise UserError(f"there is no curve {name} in {self._path.parent}")
        check_curve(part_of(series, CURVE))
        return series

    def refresh(self) -> None:
        """Read what other processes wrote."""
        self._file.refresh()
        state = state_of(self._path)
        if state != self._state:
            self._rows, self._columns = _packed(self._path) if state else ({}, {})
            self._state = state

    def add(self, name: str, series: Series) -> None:
        """Append a curve and sync it to disk, unless a line already holds it; packed ones are not checked."""
        with self._file.locked() as write:
            if name not in self._lines:
                write([to_json({"id": name, **series})])

    def pack(self, kept: Sequence[str]) -> None:
        """Write the curves of these ids into the Parquet file and remove all others. No process may append
        meanwhile."""
        self.refresh()
        found = {name: self.get(name) for name in kept if name in self._lines or name in self._rows}
        if self._lines or self._rows.keys() != found.keys():
            write_atomically(self._path, _parquet(found))
        self._file.path.unlink(missing_ok=True)

    def _take(self, line: bytes) -> bool:
        if (found := ID.match(line)) is not None:
            self._lines[found[1].decode()] = line
        return found is not None


def _packed(path: Path) -> tuple[dict[str, int], dict[str, Any]]:
    """Read a Parquet file: id → row, and name → column of lists."""
    from pyarrow import ArrowException, parquet

    try:
        file = parquet.ParquetFile(path)
        held = file.metadata
        groups = (held.row_group(number).to_dict() for number in range(held.num_row_groups))
        values = sum(column["num_values"] for group in groups for column in group["columns"])
        if 8 * values > LARGEST:
            raise UserError(f"{path} unpacks to more than {LARGEST / 2**30:g} GiB: split it")
        table = file.read()
        columns = {name: table[name].combine_chunks() for name in table.column_names}
        rows = {name: row for row, name in enumerate(columns.pop("id").to_pylist())}
        if not all(isinstance(name, str) for name in rows):
            raise TypeError("ids are no text")
        columns = {name: _unscaled(name, column) for name, column in columns.items()}
    except (ArrowException, AttributeError, KeyError, TypeError) as error:
        raise UserError(f"{path} holds no curves: restore it from a backup ({error})") from error
    return rows, columns


def _unscaled(name: str, column: Any) -> Any:
    """Return a packed column, its scores unscaled. Raises TypeError if it holds no lists of numbers."""
    import pyarrow
    from pyarrow import compute, types

    kind = column.type.value_type if types.is_list(column.type) else None
    if kind is None or not (types.is_integer(kind) or types.is_floating(kind) or types.is_null(kind)):
        raise TypeError(f"no lists of numbers in {name}")
    if name == ROUND or not types.is_integer(kind):
        return column
    numbers = compute.divide(column.values.cast("double"), SCALE)
    return pyarrow.ListArray.from_arrays(column.offsets, numbers, mask=column.is_null())


def _parquet(curves: Mapping[str, Series]) -> bytes:
    """Return the content of a Parquet file."""
    import pyarrow
    from pyarrow import parquet

    columns = {"id": pyarrow.array([*curves])}
    for name in dict.fromkeys(name for series in curves.values() for name in series):
        values = [series.get(name) for series in curves.values()]
        columns[name] = pyarrow.array(values) if name == ROUND else _whole(values)
    content = io.BytesIO()
    parquet.write_table(
        pyarrow.table(columns),
        content,
        compression="zstd",
        compression_level=LEVEL,
        use_dictionary=False,
        # The upper bytes of small numbers are alike and compress best together.
        use_byte_stream_split=[
            f"{name}.list.element"
            for name, column in columns.items()
            if column.type == pyarrow.list_(pyarrow.int32())
        ],
        write_statistics=False,
        row_group_size=1 << 20,
    )
    return content.getvalue()


def _whole(values: Sequence[list[float | None] | None]) -> Any:
    """Column of lists in ten-thousandths, in 32 bits if they suffice; unscaled if scaling is inexact."""
    import pyarrow
    from pyarrow import compute

    column = pyarrow.array(values, pyarrow.list_(pyarrow.float64()))
    whole = compute.round(compute.multiply(column.values, SCALE))
    largest = compute.max(compute.abs(whole)).as_py() or 0.0
    if largest >= 2**53 or not compute.divide(whole, SCALE).equals(column.values):
        return column
    kind = pyarrow.int32() if largest < 2**31 else pyarrow.int64()
    return pyarrow.ListArray.from_arrays(column.offsets, whole.cast(kind), mask=column.is_null())


def series_of(**parts: Series) -> Series:
    """Return the fields of a result that are stored apart, by column name."""
    return {
        name if part == CURVE else f"{part}.{name}": values
        for part, series in parts.items()
        for name, values in series.items()
    }


def part_of(series: Series, part: str) -> Series:
    """Return one field of a result from the columns of `series_of`."""
    if part == CURVE:
        return {column: values for column, values in series.items() if "." not in column}
    start = f"{part}."
    return {column[len(start) :]: values for column, values in series.items() if column.startswith(start)}
