"""A user's graph from a PyG, DGL or networkx object, or from a `.pt`, `.graphml` or CSV file.

Labels are whole numbers from 0 or names, which are numbered in alphabetical order; -1, none and an empty
field mean a node without a label, which is never trained, validated or tested on.

What else is one whole number or one short text a node is an attribute of the nodes, for natural clients; -1
and an empty text mean none. `train_mask`, `val_mask` and `test_mask`, each (n,) or for S splits (n, S), are
the official splits; so is an attribute `split` whose values are train, validation and test, or empty.
"""

from __future__ import annotations

import contextlib
import pickle
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import networkx
import numpy as np
import torch

from fedsub.datasets.archive import ATTRIBUTE, as_dataset
from fedsub.datasets.errors import UserError
from fedsub.datasets.files import explained
from fedsub.datasets.graph import Dataset, check_dataset
from fedsub.datasets.loaders.raw import DAMAGE, MalformedFileError, RawGraph, checked, masks_of
from fedsub.datasets.paths import ARCHIVE, GRAPHML, PLUGIN, TABLE, TENSORS
from fedsub.datasets.tables import read_table

if TYPE_CHECKING:
    # Slow to import, and needed for tables alone.
    import pandas

NODES, EDGES = "nodes.csv", "edges.csv"
_LIKE_ID = re.compile(r"(?i)(^|[^a-z])id$|^node$")
"""Column names that probably mean `id`."""
FEATURES = ("x", "feat", "feature", "features", "attr")
"""Names of the features; the first one present counts."""
LABELS = ("y", "label", "labels", "class")
"""Names of the labels; the first one present counts."""
MASKS = ("train_mask", "val_mask", "test_mask")
"""Names of the official splits in PyG and DGL; the second may be missing."""
ROLES = {"train": 0, "val": 1, "valid": 1, "validation": 1, "test": 2, "": 3}
"""The values of an attribute `split`, and their places in `RawGraph.official`; the last has none."""
LONGEST_TEXT = 200
"""Characters; a longer text is no attribute: arrays of text take the room of the longest for every node."""


def name_of(path: Path) -> str:
    """The name of the graph at a path: that of its file or folder."""
    path = path.expanduser()
    if path.is_dir():
        return path.resolve().name
    return path.resolve().parent.name if path.name == EDGES else path.stem


def files_of(path: Path) -> list[Path]:
    """The files that `read` takes from a path."""
    path = path.expanduser()
    if path.is_dir():
        return [path / NODES, path / EDGES]
    return [path.parent / NODES, path] if path.suffix == TABLE else [path]


def read(path: Path) -> Dataset:
    """Read a graph from a user's file, or from a folder with `nodes.csv` and `edges.csv`.

    `.pt`: a PyG `Data`, or a dict of tensors named alike, `edge_index` (2, m), `x` (n, d), `y` (n,).
    `.graphml`: an attribute `label` (or another of LABELS) of every node, its numbers are features.
    `nodes.csv`: a row a node with `id`, `label`, a column for every feature, columns of text, which are
    attributes, and columns `attribute_NAME`, which are attributes even where they are numbers; `edges.csv`,
    which may be named in place of the folder: a row an edge, its two ends first. Both begin with a row of
    names.
    Raises UserError if it is not there or cannot be read so; nothing in a file is executed.
    """
    path = path.expanduser()
    if not path.exists():
        raise UserError(f"there is no graph at {path}: check the path")
    if not path.is_dir() and path.suffix not in (TENSORS, GRAPHML, TABLE):
        raise UserError(
            f"no graph is read from {path}: name a folder of tables, or a file that ends in {ARCHIVE}, "
            f"{TENSORS}, {GRAPHML}, {TABLE} or {PLUGIN}"
        )
    if path.suffix == TENSORS:
        return from_pyg(_load_tensors(path), path.stem)
    if path.suffix == GRAPHML:
        try:
            graph = networkx.read_graphml(path)
        except (*DAMAGE, networkx.NetworkXException, LookupError) as error:
            raise UserError(f"cannot read {path} ({' '.join(str(error).split())}): write it anew") from error
        return from_networkx(graph, path.stem)
    if path.name == NODES and not path.is_dir():
        # Its first two columns would be read as edges from nodes to their labels.
        raise UserError(f"{path} holds the nodes alone: name its folder, or the table of the edges")
    folder = path if path.is_dir() else path.parent
    return _from_tables(folder / NODES, folder / EDGES if path.is_dir() else path)


def from_pyg(data: Any, name: str = "graph") -> Dataset:
    """The graph in a PyG `Data`, or in a dict of arrays with its names: `edge_index` (2, m), `x` (n, d), `y`
    (n,). Masks and further fields of one value a node are kept.

    Raises UserError if one is missing or they do not fit together."""
    ends = _array(_field(data, ("edge_index",), name), "edge_index")
    if ends.ndim != 2 or len(ends) != 2:
        raise UserError(f"{name}: edge_index has the shape {ends.shape}: give (2, edges)")
    features, labels = _field(data, FEATURES, name), _array(_field(data, LABELS, name), "labels")
    fields = data if isinstance(data, Mapping) else data.to_dict() if hasattr(data, "to_dict") else vars(data)
    further = {key: fields[key] for key in fields if not str(key).startswith("edge_")}
    return _build(name, ends[0], ends[1], features, labels, further)


def from_dgl(graph: Any, name: str = "graph") -> Dataset:
    """The graph in a homogeneous DGLGraph whose nodes hold features and labels (`feat` and `label`);
    masks and further data of one value a node are kept.

    Raises UserError if one is missing or they do not fit together."""
    if not graph.is_homogeneous:
        raise UserError(f"{name} has several kinds of nodes or edges: give dgl.to_homogeneous(graph)")
    source, target = (end.cpu().numpy() for end in graph.edges())
    labels = _array(_field(graph.ndata, LABELS, name), "labels")
    return _build(name, source, target, _field(graph.ndata, FEATURES, name), labels, dict(graph.ndata))


def from_networkx(graph: Any, name: str = "graph") -> Dataset:
    """The graph in a networkx graph whose nodes have a label (`label` or `y`) and features: a list of numbers
    (`x`), or else every attribute that is a number, in alphabetical order. Masks, text and attributes called
    `attribute_NAME` are no features and are kept.

    An attribute `id` is a name, and neither. A node without a label has none, as elsewhere; raises UserError
    if all labels, or features of any node, are missing."""
    import pandas

    rows = {node: row for row, node in enumerate(graph.nodes)}
    ends = np.array([(rows[a], rows[b]) for a, b in graph.edges()], dtype=np.int64).reshape(-1, 2)
    table = pandas.DataFrame(list(dict(graph.nodes(data=True)).values())).drop(columns="id", errors="ignore")
    return _from_table(name, ends[:, 0], ends[:, 1], table)


def as_own(graph: Any) -> Dataset:
    """Convert a Dataset, PyG `Data`, DGLGraph or networkx graph to a `Dataset`.

    Raises UserError for anything else, and for a Dataset that is not as its fields say."""
    if isinstance(graph, Dataset):
        check_dataset(graph)
        return graph
    library = type(graph).__module__.partition(".")[0]
    name = str(getattr(graph, "name", "") or "graph")
    if library == "dgl":
        return from_dgl(graph, name)
    if library == "networkx":
        return from_networkx(graph, name)
    if isinstance(graph, Mapping) or hasattr(graph, "edge_index"):
        return from_pyg(graph, "graph")
    raise UserError(
        f"a graph cannot be a {type(graph).__name__}: give a name, a path, a datasets.Dataset, a PyG Data, a "
        "DGLGraph or a networkx graph"
    )


def _build(
    name: str,
    source: np.ndarray,
    target: np.ndarray,
    features: Any,
    labels: np.ndarray,
    further: Mapping[Any, Any],
) -> Dataset:
    """Build the Dataset. Official splits and attributes among the `further` arrays are kept."""
    codes, classes = _numbered(name, labels)
    if isinstance(features, torch.Tensor):
        features = features if features.layout is torch.strided else features.to_dense()
        # numpy has no bfloat16
        features = features.float() if features.is_floating_point() else features
    features = _array(features, "features")
    try:
        official, attributes = _known(name, further, len(codes))
        raw = RawGraph(source, target, features, codes, official, attributes)
        return as_dataset(name, checked(raw, Path(name), unlabelled=True), classes)
    except MalformedFileError as error:
        raise UserError(f"{name}: {error.reason}: mend the graph") from error


def _known(
    name: str, further: Mapping[Any, Any], nodes: int
) -> tuple[np.ndarray | None, dict[str, np.ndarray]]:
    """The official splits, as in `RawGraph.official`, and the attributes, (n,) each, among `further`.

    Raises UserError for masks that are none."""
    rest = {str(key): values for key, values in further.items() if key not in (*FEATURES, *LABELS)}
    official = None
    if MASKS[0] in rest and MASKS[2] in rest:
        masks = [_mask(rest.pop(key, np.zeros(nodes, dtype=bool)), key) for key in MASKS]
        splits = max(map(len, masks))
        masks = [mask.repeat(splits, axis=0) if len(mask) == 1 else mask for mask in masks]
        official = masks_of(masks, nodes, Path(name))
    found = {key.removeprefix(ATTRIBUTE): _attribute(values, nodes) for key, values in rest.items()}
    attributes = {key: values for key, values in found.items() if values is not None}
    words = attributes.get("split")
    if official is None and words is not None and set(words.tolist()) <= ROLES.keys():
        roles = np.array([ROLES[word] for word in attributes.pop("split").tolist()])
        official = np.stack([roles == role for role in range(3)])[:, None]
    return official, attributes


def _mask(values: Any, what: str) -> np.ndarray:
    """A mask, (n,) or (n, S), as (S, n) bool; anything else as it is."""
    mask = np.atleast_2d((values if isinstance(values, np.ndarray) else _array(values, what)).T)
    whole = mask.dtype.kind in "iuf" and np.isin(mask, (0, 1)).all()
    return mask.astype(bool) if whole else mask


def _attribute(values: Any, nodes: int) -> np.ndarray | None:
    """One whole number or short text a node, (n,), -1 or empty where there is none; None for all else."""
    import pandas

    if isinstance(values, torch.Tensor):
        if values.layout is not torch.strided or values.is_quantized or values.is_complex():
            return None
        values = values.detach().cpu()
        values = (values.double() if values.is_floating_point() else values).numpy()
    elif isinstance(values, (list, tuple)) and all(isinstance(each, (str, int)) for each in values):
        values = np.array(values, dtype=object)
    if not isinstance(values, np.ndarray) or values.shape not in ((nodes,), (nodes, 1)):
        return None
    values = values.ravel()
    if values.dtype.kind == "O":
        missing = pandas.isna(values)
        kinds = {type(each) for each in values[~missing]}
        if not (kinds <= {str} or kinds <= {int, bool}):
            return None
        values = np.where(missing, "" if kinds <= {str} else -1, values)
        if kinds <= {str} and max(map(len, values), default=0) > LONGEST_TEXT:
            return None
        # Whole numbers of more than 64 bits stay objects.
        values = np.array(values.tolist())
    elif values.dtype.kind == "f":
        values = np.where(np.isnan(values), -1, values)
        # Beyond, not every whole number has a float of its own.
        if not (np.abs(values) < 2**53).all() or (values != np.round(values)).any():
            return None
        values = values.astype(np.int64)
    short = values.dtype.kind != "U" or values.dtype.itemsize <= 4 * LONGEST_TEXT
    return values if values.dtype.kind in "biuU" and short else None


def _numbered(name: str, labels: np.ndarray) -> tuple[np.ndarray, int]:
    """Labels as 0…C−1 and −1, and C. Raises UserError for labels that are neither numbers nor names."""
    import pandas

    values = np.asarray(labels)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise UserError(f"{name}: the labels have the shape {values.shape}: give one label a node")
    if values.dtype.kind in "OUST":
        missing = pandas.isna(values) | np.isin(values.astype(str), ["", "-1", "-1.0"])
        names, codes = np.unique(values[~missing].astype(str), return_inverse=True)
        found = np.full(len(values), -1)
        found[~missing] = codes
        return found, len(names)
    if values.dtype.kind == "f":
        values = np.where(np.isnan(values), -1, values)
    if values.dtype.kind not in "biuf" or (values != np.round(values)).any() or (values < -1).any():
        raise UserError(f"{name}: labels must be whole numbers from 0, or -1 for a node that has none")
    whole = values.astype(np.int64)
    return whole, int(whole.max(initial=-1)) + 1


def _field(holder: Any, names: Sequence[str], graph: str) -> Any:
    for name in names:
        found = holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)
        if found is not None:
            return found
    raise UserError(f"{graph} has no {' or '.join(names)}: a graph needs edges, features and labels")


def _array(values: Any, what: str) -> np.ndarray:
    try:
        array = values.detach().cpu().numpy() if hasattr(values, "detach") else np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        # Sparse, quantised and ragged ones.
        raise UserError(f"{what} cannot be read as an array ({error}): give a dense one") from error
    if array.dtype.kind == "O":
        raise UserError(f"{what} must be a tensor or an array of numbers, not of {type(values).__name__}")
    return array


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple, np.ndarray)) or hasattr(value, "detach")


def _load_tensors(path: Path) -> Any:
    with _allowed(), explained("read", path):
        try:
            return torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            raise UserError(
                f"cannot read {path}: it holds more than tensors and a PyG Data, which might run code; save "
                "a dict of tensors with x, y and edge_index"
            ) from error
        except OSError:
            raise
        except (*DAMAGE, LookupError) as error:
            # What pickle says of another kind of file is a number, or nothing.
            reason = " ".join(str(error).split())
            reason = reason if " " in reason else "it is not what torch.save writes"
            raise UserError(f"cannot read {path} ({reason}): save it anew") from error


@contextlib.contextmanager
def _allowed() -> Iterator[None]:
    """Allow PyG's `Data` in files if PyG is installed; otherwise only tensors."""
    found: list[Any] = []
    with contextlib.suppress(ImportError):
        from torch_geometric.data.data import Data, DataEdgeAttr, DataTensorAttr
        from torch_geometric.data.storage import GlobalStorage

        found = [Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]
    allow = getattr(torch.serialization, "safe_globals", None)
    with allow(found) if allow and found else contextlib.nullcontext():
        yield


def _from_tables(nodes: Path, edges: Path) -> Dataset:
    import pandas

    tables = []
    for path in (nodes, edges):
        if not path.is_file():
            raise UserError(
                f"there is no {path}: a graph in tables is {NODES} (id, label, features) and {EDGES}"
            )
        tables.append(read_table(path))
    table, pairs = tables
    name = name_of(edges)
    if pairs.shape[1] < 2:
        raise UserError(f"{edges} has {pairs.shape[1]} columns: its first two are the ends of an edge")
    named = "id" in table
    if not named and (meant := [column for column in table if _LIKE_ID.search(str(column))]):
        raise UserError(
            f"{nodes} has a column {str(meant[0])!r} and none called id: name the column of node ids id"
        )
    pairs = pairs.iloc[:, :2]
    if named and not all(map(pandas.api.types.is_numeric_dtype, (table["id"], *pairs.dtypes))):
        # As written, where one column holds names: in another all of them may look like numbers.
        table["id"] = read_table(nodes, as_written=True)["id"]
        pairs = read_table(edges, as_written=True).iloc[:, :2]
    row = pandas.Index(table["id"]) if named else pandas.RangeIndex(len(table))
    if not row.is_unique:
        raise UserError(f"{nodes} has an id twice: give every node one row")
    if set(pairs.columns) <= set(row.astype(str)):
        raise UserError(f"{edges} begins with an edge: give it a first row that names its columns")
    ends = [row.get_indexer(pairs.iloc[:, column]) for column in (0, 1)]
    for column, end in enumerate(ends):
        if (end < 0).any():
            lost = pairs.iloc[:, column].to_numpy()[end < 0][0]
            raise UserError(f"{edges} names the node {lost}, which {nodes} lacks: give every node a row")
    table = table.drop(columns="id", errors="ignore")
    texts = list(table.select_dtypes(exclude=["number", "bool"]))
    if texts:
        # As written: NA is a country, and no gap.
        table[texts] = read_table(nodes, as_written=True)[texts]
        _refuse_misprints(nodes, table[texts])
    return _from_table(name, ends[0], ends[1], table)


def _refuse_misprints(path: Path, texts: pandas.DataFrame) -> None:
    """Raises UserError for a non-number in a column of numbers: it would make the whole column text."""
    import pandas

    for key in texts:
        given = texts[key][texts[key] != ""]
        others = given[pandas.to_numeric(given, errors="coerce").isna()]
        if key not in LABELS and not str(key).startswith(ATTRIBUTE) and 0 < len(others) < len(given) / 2:
            raise UserError(
                f"{key} in {path} is a number for most nodes, but not {others.iloc[0]!r} in row"
                f" {others.index[0]} (from 0): mend it, or call it {ATTRIBUTE}{key} if it is no feature"
            )


def _from_table(name: str, source: np.ndarray, target: np.ndarray, table: pandas.DataFrame) -> Dataset:
    """The graph whose nodes are the rows of a table.

    Its features are a column of lists, or else its numbers in alphabetical order, but for masks and what is
    called an attribute."""
    labels = [key for key in LABELS if key in table]
    if not labels:
        raise UserError(f"{name} has no {' or '.join(LABELS)}: every node needs a label, -1 if it has none")
    if len(labels) > 1:
        # The second would be a feature, from which the first may be read.
        raise UserError(f"{name} has labels called {' and '.join(labels)}: rename or leave out all but one")
    (label,) = labels
    further = table.drop(columns=label)
    listed = next((key for key in FEATURES if key in further and further[key].map(_is_list).any()), None)
    if listed is not None:
        if not (given := further[listed].map(_is_list)).all():
            place = int(np.argmin(given))
            raise UserError(f"{name} has nodes without {listed}, as in row {place} (from 0): give all a list")
        try:
            features = np.array(further.pop(listed).tolist(), dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise UserError(f"{name}: {listed} must be numbers, and as many for every node") from error
    else:
        aside = [key for key in further if key in MASKS or str(key).startswith(ATTRIBUTE)]
        numbers = further.drop(columns=aside).select_dtypes(["number", "bool"])
        if not numbers.shape[1]:
            raise UserError(f"{name} has no features: give every node at least one number beside its label")
        if gaps := [str(key) for key in numbers if numbers[key].isna().any()]:
            raise UserError(
                f"{name} has nodes without {gaps[0]}: give it to every node, leave it out, or call it"
                f" {ATTRIBUTE}{gaps[0]} if it is no feature"
            )
        features = numbers[sorted(numbers.columns, key=str)].to_numpy(dtype=np.float32)
        further = further.drop(columns=numbers.columns)
    held = {key: further[key].to_numpy() for key in further}
    return _build(name, source, target, features, table[label].to_numpy(), held)
