"""Reading graphs from tables: CSV files of nodes and edges with a header row, and pandas frames of nodes."""

from __future__ import annotations

import csv
import re
import warnings
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsub.datasets.archive import ATTRIBUTE
from fedsub.datasets.errors import UserError
from fedsub.datasets.fields import FEATURES, LABELS, MASK, ROLES, build, only
from fedsub.datasets.graph import Dataset
from fedsub.datasets.loaders.raw import DAMAGE

if TYPE_CHECKING:
    # Slow to import, and needed only for tables.
    import pandas

NODES, EDGES = "nodes.csv", "edges.csv"
_LIKE_ID = re.compile(r"(?i)(^|[^a-z])id$|^node$")
"""Column names that probably mean `id`."""
_ASIDE = re.compile(r"node|vertex|id|tx|[^a-z0-9]")
"""Parts of column names to ignore when looking for ENDS: `src_id` is `src`, and `txId1` is `1`."""
ENDS = (
    ("source", "target"), ("src", "dst"), ("source", "destination"), ("src", "dest"), ("from", "to"),
    ("sender", "receiver"), ("head", "tail"), ("start", "end"), ("u", "v"), ("a", "b"), ("1", "2"),
)  # fmt: skip
"""Names of the two columns of an edge's ends."""
_SPELT = re.compile(r"\(?[-+]?[$€£¥]?\d[\d.,']*[%‰$€£¥]?\)?")
"""A number formatted for people, without its spaces: `1,234`, `12%`, `$5`."""
_GROUPED = re.compile(r"[-+]?\d+(,\d{3})+|[-+]?\d+,\d+")
"""Ambiguous text: one number with a comma, or a list of whole numbers."""
_WRAPPED = re.compile(r"(?:np\.|numpy\.)?(?:float|int)\d*\(([^()]*)\)|array|tensor")


def read_table(path: Path, as_written: bool = False) -> pandas.DataFrame:
    """Read a table of numbers and text, or all of it as text (`as_written`, after a first reading without).

    Fields are separated by commas, or by semicolons or tabs if the first row has no commas; spaces around
    names and texts are dropped.
    Raises UserError if the table cannot be read, if pandas would take its first column as row numbers, drop
    its last column or rename the second of two columns with one name, and if its first column has no name."""
    import pandas

    kind: dict[str, Any] = {"dtype": str, "keep_default_na": False} if as_written else {}
    try:
        with path.open(encoding="utf-8-sig") as stream:
            head = stream.readline()
        separator = next((each for each in ",;\t" if each in head), ",")
        names = next(csv.reader([head], delimiter=separator, skipinitialspace=True), [])
        with warnings.catch_warnings():
            # Read as text, an empty field after a trailing separator would raise the warning too.
            warnings.simplefilter("ignore" if as_written else "error", pandas.errors.ParserWarning)
            table = pandas.read_csv(
                path, sep=separator, index_col=False, low_memory=False, skipinitialspace=True, **kind
            )
    except pandas.errors.ParserWarning as error:
        raise UserError(f"a row of {path} has more fields than the first row: name every column") from error
    except (*DAMAGE, csv.Error, pandas.errors.ParserError) as error:
        raise UserError(f"cannot read {path} ({' '.join(str(error).split())}): write it again") from error
    if str(table.columns[0]).startswith("Unnamed: "):
        raise UserError(
            f"the first column of {path} has no name: name it or remove it (in pandas, to_csv(index=False))"
        )
    if twice := [key for key, count in Counter(map(str.strip, names)).items() if key and count > 1]:
        raise UserError(f"{path} names two columns {twice[0]!r} in its first row: rename or remove one")
    table.columns = table.columns.str.strip()
    return table.apply(lambda column: column.str.strip()) if as_written else table


def from_tables(name: str, nodes: Path, edges: Path) -> Dataset:
    """Read the graph in a table of nodes and a table of edges. Raises UserError if they do not fit."""
    import pandas

    for path in (nodes, edges):
        if not path.is_file():
            raise UserError(
                f"there is no {path}: a graph in tables is {NODES} (id, label, features) and {EDGES}"
            )
    table, pairs = read_table(nodes), read_table(edges)
    named = "id" in table
    if not named and (meant := [column for column in table if _LIKE_ID.search(str(column))]):
        raise _no_id(nodes, str(meant[0]))
    known = table["id"] if named else pandas.RangeIndex(len(table)).to_series()
    if pairs.shape[1] > 1 and set(pairs.columns[:2]) <= set(known.astype(str)):
        raise UserError(f"{edges} begins with an edge: add a first row with the names of the columns")
    ends = _end_columns(edges, list(pairs))
    if not named:
        _refuse_hidden_id(nodes, table, pairs[ends])
    elif not all(map(pandas.api.types.is_numeric_dtype, (table["id"], *pairs[ends].dtypes))):
        # If one column holds names, read all as text: in another column all names may look like numbers.
        known = table["id"] = read_table(nodes, as_written=True)["id"]
        pairs = read_table(edges, as_written=True)
    row = pandas.Index(known)
    if not row.is_unique:
        raise UserError(f"{nodes} has an id twice: write one row per node")
    source, target = (row.get_indexer(pairs[column]) for column in ends)
    for column, end in zip(ends, (source, target), strict=True):
        if (end < 0).any():
            lost = pairs[column].to_numpy()[end < 0][0]
            fix = "write a row for every node" if named else "call the column of node ids id"
            raise UserError(f"{edges} names the node {lost}, which is not in {nodes}: {fix}")
    table = table.drop(columns="id", errors="ignore")
    texts = list(table.select_dtypes(exclude=["number", "bool"]))
    if texts:
        # Read as text: NA is a country, not a missing value.
        table[texts] = read_table(nodes, as_written=True)[texts]
    others = [f"{column} of {EDGES}" for column in pairs if column not in ends]
    return from_table(name, source, target, table, others)


def _no_id(nodes: Path, column: str) -> UserError:
    return UserError(f"{nodes} has a column {column!r} and none called id: call the column of node ids id")


def _end_columns(edges: Path, columns: list[str]) -> list[str]:
    """Return the names of the two columns with an edge's ends: `source` and `target`, another known pair if
    there is only one, or the only two columns.

    Raises UserError if these columns cannot be told from others."""
    plain = [_ASIDE.sub("", str(column).lower()) for column in columns]
    found = [pair for pair in ENDS if all(plain.count(end) == 1 for end in pair)]
    if len(found) == 1 or ENDS[0] in found:
        return [columns[plain.index(end)] for end in found[0]]
    ends = {end for pair in ENDS for end in pair}
    if len(columns) == 2 and len(ends.intersection(plain)) != 1:
        return columns
    raise UserError(
        f"{edges} has {'the column' if len(columns) == 1 else 'the columns'} {', '.join(map(str, columns))}: "
        "call the two columns of an edge's ends source and target"
    )


def _refuse_hidden_id(nodes: Path, table: pandas.DataFrame, ends: pandas.DataFrame) -> None:
    """Raises UserError if a column that is not called `id` holds the ids that the edges use."""
    named = set(np.unique(ends.astype(str).to_numpy()))
    for column in table:
        if column not in LABELS and not str(column).startswith(ATTRIBUTE):
            values = table[column].astype(str)
            if values.is_unique and set() < named <= set(values):
                raise _no_id(nodes, str(column))


def from_table(
    name: str, source: np.ndarray, target: np.ndarray, table: pandas.DataFrame, unused: Iterable[str] = ()
) -> Dataset:
    """Make the graph whose nodes are the rows of a table.

    Its features are a column of lists, or else its columns of numbers in alphabetical order, except masks and
    attributes. Raises UserError if features or labels are missing or ambiguous."""
    labels = [key for key in LABELS if key in table]
    if not labels:
        raise UserError(
            f"{name} has no {' or '.join(LABELS)} among {', '.join(map(str, table))}: every node needs a "
            "label, -1 if it has none"
        )
    label = only(name, labels)
    further = table.drop(columns=label)
    _refuse_roles(name, further)
    named = [key for key in FEATURES if key in further]
    if not all(_is_plain(further[key]) for key in named):
        listed = only(name, named)
        features = _lists(name, listed, further.pop(listed))
    else:
        aside = [key for key in further if str(key).endswith(MASK) or str(key).startswith(ATTRIBUTE)]
        rest = further.drop(columns=aside)
        _refuse_spelt_numbers(name, rest.select_dtypes(exclude=["number", "bool"]))
        if gaps := [str(key) for key in rest if _has_gaps(rest[key])]:
            raise UserError(
                f"{name} has nodes without {gaps[0]}: fill it in, remove the column, or call it"
                f" {ATTRIBUTE}{gaps[0]} if it is not a feature"
            )
        numbers = rest.select_dtypes(["number", "bool"])
        if not numbers.shape[1]:
            raise UserError(f"{name} has no features: give every node at least one number beside its label")
        features = numbers[sorted(numbers.columns, key=str)].to_numpy(dtype=np.float32)
        further = further.drop(columns=numbers.columns)
    held = {key: further[key].to_numpy() for key in further}
    return build(name, source, target, features, table[label].to_numpy(), held, unused)


def _is_plain(column: pandas.Series) -> bool:
    import pandas

    return bool(pandas.api.types.is_numeric_dtype(column))


def _has_gaps(column: pandas.Series) -> bool:
    """Whether a column of numbers, or of true and false, has empty fields."""
    if _is_plain(column):
        return bool(column.isna().any())
    given = column.dropna().astype(str).str.lower()
    given = given[given != ""]
    return len(given) < len(column) and set() < set(given) <= {"true", "false"}


def _refuse_roles(name: str, table: pandas.DataFrame) -> None:
    """Raises UserError for numbers in a column `split` and for two or more numeric columns named like roles,
    which would become features."""
    if "split" in table and _is_plain(table["split"]):
        raise UserError(
            f"{name} has numbers in its column split: write train, validation, test or nothing, or call it "
            f"{ATTRIBUTE}split"
        )
    roles = [role for role in ROLES if role]
    spelt = {f"{prefix}{role}" for role in roles for prefix in ("", "is_", "in_")}
    if len(found := [str(key) for key in table if str(key).lower() in spelt and _is_plain(table[key])]) > 1:
        raise UserError(
            f"{name} has the columns {' and '.join(found)}: call columns of a split train_mask, val_mask "
            f"and test_mask, and others {ATTRIBUTE}NAME, such as {ATTRIBUTE}{found[0]}"
        )


def _refuse_spelt_numbers(name: str, texts: pandas.DataFrame) -> None:
    """Raises UserError for a text column with mostly numbers, which would not become a feature."""
    import pandas

    for key in texts:
        given = texts[key].dropna().astype(str)
        given = given[given != ""]
        is_number = pandas.to_numeric(given, errors="coerce").notna()
        spelt = given.str.replace(r"\s", "", regex=True).str.fullmatch(_SPELT)
        if (is_number | spelt).sum() > len(given) / 2:
            # The first text that is no plain number; the first of all if numbers are stored as text.
            row = is_number.idxmin()
            raise UserError(
                f"{key} of {name} holds numbers, but the text {given[row]!r:.80} in row {row} (from 0): write"
                f" plain numbers, or call it {ATTRIBUTE}{key} if it is not a feature"
            )


def _lists(name: str, key: str, column: pandas.Series) -> np.ndarray:
    """Return a column of lists of numbers, which may be written as text, as (n, d) float32.

    Raises UserError for a field that is no list, and for lists of different lengths."""
    rows = [_list(field) for field in column.tolist()]
    place = next((place for place, row in enumerate(rows) if row is None), None)
    if place is not None:
        raise UserError(
            f"{key} of {name} is not a list of numbers in row {place} (from 0), {column.iloc[place]!r}: give "
            "every node one"
        )
    try:
        return np.array(rows, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise UserError(f"{name}: {key} must be numbers, the same number for every node") from error


def _list(field: Any) -> Any:
    """Return a list or array, or the numbers in a text such as `[0.1, 0.2]`; None for anything else."""
    if isinstance(field, (list, tuple, np.ndarray)):
        return field
    if hasattr(field, "detach"):
        return field.tolist()
    if not isinstance(field, str) or _GROUPED.fullmatch(field.strip()):
        return None
    plain = re.sub(r"[\[\]()]", " ", _WRAPPED.sub(r"\1", field))
    try:
        return [float(each) for each in re.split(r"[\s,;]+", plain.strip(" ,;\n"))]
    except ValueError:
        return None
