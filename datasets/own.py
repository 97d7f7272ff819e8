"""Reading a user's graph from a PyG, DGL or networkx object, or from a `.pt`, `.graphml` or CSV file.

`datasets.fields` describes the fields of the nodes.
"""

import contextlib
import pickle
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import torch

from fedsub.datasets.errors import UserError
from fedsub.datasets.fields import FEATURES, LABELS, MASK, as_array, build, only
from fedsub.datasets.files import expanded, explained
from fedsub.datasets.graph import Dataset, check_dataset
from fedsub.datasets.loaders.raw import DAMAGE, MalformedFileError, check_unpacked, too_large
from fedsub.datasets.paths import ARCHIVE, GRAPHML, PLUGIN, TABLE, TENSORS
from fedsub.datasets.tables import EDGES, NODES, from_table, from_tables

READS_SAFELY = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 6)
"""Whether `torch.load` runs no code of a file; before, it could despite `weights_only` (CVE-2025-32434)."""
_PLAIN = (str, int, float, type(None))


def name_of(path: Path) -> str:
    """Return the name of the graph at a path: the name of its file or folder."""
    path = expanded(path)
    if path.is_dir():
        return path.resolve().name
    return path.resolve().parent.name if path.name == EDGES else path.stem


def files_of(path: Path) -> list[Path]:
    """Return the files that `read` reads for a path."""
    path = expanded(path)
    if path.is_dir():
        return [path / NODES, path / EDGES]
    return [path.parent / NODES, path] if path.suffix == TABLE else [path]


def read(path: Path) -> Dataset:
    """Read a graph from a user's file, or from a folder with `nodes.csv` and `edges.csv`.

    `.pt`: a PyG `Data`, or a dict of tensors with its names, `edge_index` (2, m), `x` (n, d), `y` (n,).
    `.graphml`: every node has an attribute `label` (or another of LABELS); its numbers are features.
    `nodes.csv`: one row per node with `id`, `label` and one column per feature. Columns of text are
    attributes, and so are columns `attribute_NAME`, even of numbers. `edges.csv`, which may be named in place
    of the folder: one row per edge, its ends in the columns `source` and `target` (or another pair of
    `tables.ENDS`). Both begin with a row of names.
    Raises UserError if the file is missing or cannot be read; no code in it is run.
    """
    path = expanded(path)
    if not path.exists():
        raise UserError(f"there is no graph at {path}: check the path")
    if not path.is_dir() and path.suffix not in (TENSORS, GRAPHML, TABLE):
        raise UserError(
            f"cannot read a graph from {path}: give a folder of tables, or a file that ends in {ARCHIVE}, "
            f"{TENSORS}, {GRAPHML}, {TABLE} or {PLUGIN}"
        )
    if path.suffix == TENSORS:
        return from_pyg(_load_tensors(path), path.stem)
    if path.suffix == GRAPHML:
        try:
            graph = networkx.read_graphml(path)
        except (*DAMAGE, networkx.NetworkXException) as error:
            raise UserError(f"cannot read {path} ({' '.join(str(error).split())}): write it again") from error
        return from_networkx(graph, path.stem)
    if path.name == NODES and not path.is_dir():
        # Otherwise its first two columns would be read as edges from nodes to their labels.
        raise UserError(f"{path} holds only the nodes: give its folder, or the table of edges")
    nodes, edges = files_of(path)
    return from_tables(name_of(path), nodes, edges)


def from_pyg(data: Any, name: str = "graph") -> Dataset:
    """Convert a PyG `Data`, or a dict of arrays with its names: `edge_index` (2, m), `x` (n, d), `y` (n,).
    Masks and further fields of one value per node are kept.

    Raises UserError if a field is missing or fields do not fit together."""
    ends = as_array(_field(data, ("edge_index",), name), "edge_index")
    if ends.ndim != 2 or len(ends) != 2:
        raise UserError(f"{name}: edge_index has the shape {ends.shape}: give (2, edges)")
    features, labels = _field(data, FEATURES, name), as_array(_field(data, LABELS, name), "labels")
    fields = data if isinstance(data, Mapping) else data.to_dict() if hasattr(data, "to_dict") else vars(data)
    unused = [str(key) for key in fields if str(key).startswith("edge_") and key != "edge_index"]
    further = {key: fields[key] for key in fields if not str(key).startswith("edge_")}
    return build(name, ends[0], ends[1], features, labels, further, unused)


def from_dgl(graph: Any, name: str = "graph") -> Dataset:
    """Convert a homogeneous DGLGraph whose nodes have features and labels (`feat` and `label`). Masks and
    further data of one value per node are kept.

    Raises UserError if a field is missing or fields do not fit together."""
    if not graph.is_homogeneous:
        raise UserError(
            f"{name} has several kinds of nodes or edges: give dgl.to_homogeneous(graph, "
            "ndata=['feat', 'label'])"
        )
    source, target = (end.cpu().numpy() for end in graph.edges())
    labels = as_array(_field(graph.ndata, LABELS, name), "labels")
    features, unused = _field(graph.ndata, FEATURES, name), [f"{key} of edges" for key in graph.edata]
    return build(name, source, target, features, labels, dict(graph.ndata), unused)


def from_networkx(graph: Any, name: str = "graph") -> Dataset:
    """Convert a networkx graph whose nodes have a label (`label` or `y`) and features: a list of numbers
    (`x`), or else every attribute that is a number, in alphabetical order. Masks, text and attributes called
    `attribute_NAME` are no features and are kept.

    An attribute `id` is only a name and is dropped. Nodes may lack a label. Raises UserError if all labels,
    or the features of any node, are missing."""
    import pandas

    rows = {node: row for row, node in enumerate(graph.nodes)}
    ends = np.array([(rows[a], rows[b]) for a, b in graph.edges()], dtype=np.int64).reshape(-1, 2)
    unused = dict.fromkeys(f"{key} of edges" for *_, given in graph.edges(data=True) for key in given)
    # Where networkx keeps the defaults of a GraphML file.
    defaults = graph.graph.get("node_default")
    defaults = defaults if isinstance(defaults, Mapping) else {}
    # Each scalar of numpy or torch as a number: pandas would read a column of tensors as text.
    fields = [
        {key: held.item() if getattr(held, "ndim", 1) == 0 else held for key, held in found.items()}
        for found in ({**defaults, **given} for _, given in graph.nodes(data=True))
    ]
    table = pandas.DataFrame(fields).drop(columns="id", errors="ignore")
    return from_table(name, ends[:, 0], ends[:, 1], table, unused)


def as_own(graph: Any) -> Dataset:
    """Convert a Dataset, PyG `Data`, DGLGraph or networkx graph to a `Dataset` with its `name`.

    Raises UserError for anything else, and for a Dataset with fields of other shapes or types."""
    if isinstance(graph, Dataset):
        check_dataset(graph)
        return graph
    library = type(graph).__module__.partition(".")[0]
    given = graph.get("name") if isinstance(graph, Mapping) else getattr(graph, "name", None)
    name = given if isinstance(given, str) and given else "graph"
    if library == "dgl":
        return from_dgl(graph, name)
    if library == "networkx":
        return from_networkx(graph, name)
    if isinstance(graph, Mapping) or hasattr(graph, "edge_index"):
        return from_pyg(graph, name)
    raise UserError(
        f"a graph cannot be a {type(graph).__name__}: give a name, a path, a datasets.Dataset, a PyG Data, a "
        "DGLGraph or a networkx graph"
    )


def _field(holder: Any, names: Sequence[str], graph: str) -> Any:
    get = holder.get if isinstance(holder, Mapping) else lambda name: getattr(holder, name, None)
    found = {name: held for name in names if (held := get(name)) is not None}
    if not found:
        raise UserError(f"{graph} has no {' or '.join(names)}: a graph needs edges, features and labels")
    return found[only(graph, [*found])]


def _load_tensors(path: Path) -> Any:
    if not READS_SAFELY:
        raise UserError(
            f"cannot read {path}: torch {torch.__version__} might run code in it; save an npz file, or use "
            "torch 2.6 or later"
        )
    with _allowed(), explained("read", path):
        try:
            if zipfile.is_zipfile(path):
                with zipfile.ZipFile(path) as members:
                    check_unpacked(members.infolist(), path)
            found = torch.load(path, map_location="cpu", weights_only=True)
            _check_room(path, found)
        except pickle.UnpicklingError as error:
            raise UserError(
                f"cannot read {path}: it holds more than tensors and a PyG Data, which might run code; save "
                "a dict of tensors with x, y and edge_index"
            ) from error
        except MalformedFileError as error:
            raise error.of_own(str(path), "save it again") from None
        except (OSError, UserError):
            raise
        except DAMAGE as error:
            # For another kind of file, pickle's message is a number or empty.
            reason = " ".join(str(error).split())
            reason = reason if " " in reason else "torch.save did not write it"
            raise UserError(f"cannot read {path} ({reason}): save it again") from error
    return found


def _check_room(path: Path, found: Any) -> None:
    """Raises UserError for fields that need implausibly more memory than bytes in the file: tensors that
    repeat or omit their values, and lists of other values than numbers and text."""
    fields = found if isinstance(found, Mapping) else found.to_dict() if hasattr(found, "to_dict") else {}
    size = 0
    for name, values in fields.items():
        nested = isinstance(values, (list, tuple)) and not all(isinstance(each, _PLAIN) for each in values)
        if isinstance(values, torch.Tensor):
            size += values.numel() * values.element_size()
        elif nested and _is_read(str(name)):
            raise UserError(f"cannot read {path}: its {name} is a list of lists or objects; save a tensor")
    if reason := too_large(size, path):
        raise UserError(
            f"cannot read {path}: {reason}; save dense tensors of a smaller graph, or an npz file"
        )


def _is_read(name: str) -> bool:
    return name in ("edge_index", *FEATURES, *LABELS) or name.endswith(MASK)


@contextlib.contextmanager
def _allowed() -> Iterator[None]:
    """Allow PyG's `Data` in files if PyG is installed, otherwise only tensors."""
    found: list[Any] = []
    with contextlib.suppress(ImportError):
        from torch_geometric.data.data import Data, DataEdgeAttr, DataTensorAttr
        from torch_geometric.data.storage import GlobalStorage

        found = [Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]
    with torch.serialization.safe_globals(found):
        yield
