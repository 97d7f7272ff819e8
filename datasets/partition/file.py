"""`file`: a partition read from a user's file; also FedSpray's published clients."""

import numpy as np

from fedsub.datasets.errors import UserError
from fedsub.datasets.files import find_data
from fedsub.datasets.graph import Dataset
from fedsub.datasets.loaders.npz import NpzReader, open_npz
from fedsub.datasets.loaders.raw import DAMAGE, MalformedFileError
from fedsub.datasets.partition.base import of_component, outside


def check_options(*, path: str, **others: object) -> None:
    """Raises UserError if no path is given."""
    if not path:
        raise UserError("partition scheme file needs a path: write file[path=clients.npy]")


def partition(
    dataset: Dataset, clients: int, seed: int, *, path: str = "", key: str = ""
) -> np.ndarray | list[np.ndarray]:
    """Read the clients from `path`; `seed` has no effect.

    `.csv`, `.txt`: one integer per node, the client of node 0, 1, …, separated by line breaks or commas.
    `.npy`: the same as an array. −1 leaves a node out. `.npz`: such an array called `key` (not needed if it
    is the only one), or `<key>_nodes`, node ids client after client, with `<key>_sizes`, their counts. If
    only the graph's largest component is used, an array may have an entry for every node of the graph, and
    node ids are those of the whole graph; nodes outside the component are left out. A relative path is
    searched in the working folder, then in FEDSUB_DATA. Raises UserError if the file cannot be read.
    """
    read, component = _read(path, key), dataset.component
    if isinstance(read, np.ndarray):
        return of_component(dataset, read, path)
    if component is None:
        return read
    parts = [_within(nodes, component) for nodes in read]
    for client, part in enumerate(parts):
        if len(read[client]) and not len(part):
            raise outside(dataset, client, path)
    return parts


def clients_in(*, path: str = "", key: str = "") -> int:
    """Return the number of clients in the file, 0 if it holds none. Raises UserError if it cannot be read."""
    read = _read(path, key)
    if isinstance(read, list):
        return len(read)
    return int(read.max()) + 1 if read.size and read.dtype.kind in "iu" else 0


def _within(nodes: np.ndarray, component: np.ndarray) -> np.ndarray:
    """Convert ids of the whole graph to ids of its component; invalid ids become the one after its last."""
    known = (nodes >= 0) & (nodes < len(component))
    place = np.where(component, np.cumsum(component) - 1, -1)
    inside = place[nodes[known].astype(np.int64)]
    # The check of the partition refuses the id after the component's last node.
    return np.concatenate([inside[inside >= 0], np.full(int((~known).sum()), len(component))])


def _read(path: str, key: str) -> np.ndarray | list[np.ndarray]:
    """Read a client per node, or the nodes of every client, from the file."""
    found = find_data("partition file", path)
    what, fix = f"the partition in {found}", "write the file again"
    try:
        if found.suffix in (".csv", ".txt"):
            text = found.read_text("utf-8-sig").replace(",", "\n")
            return np.loadtxt(text.splitlines(), dtype=np.int64, ndmin=1)
        if found.suffix not in (".npy", ".npz"):
            raise UserError(f"cannot read {found}: its name must end in .npy, .npz, .csv or .txt")
        if found.suffix == ".npy":
            with found.open("rb") as stream:
                # np.load would open a zip file with this ending, of any size.
                return np.lib.format.read_array(stream, allow_pickle=False)
        with open_npz(found) as content:
            return _from_archive(content, key)
    except MalformedFileError as error:
        raise error.of_own(what, fix) from None
    except UserError:
        raise
    except DAMAGE as error:
        raise UserError(f"cannot read {what} ({' '.join(str(error).split())}): {fix}") from error


def _from_archive(content: NpzReader, key: str) -> np.ndarray | list[np.ndarray]:
    path, members = content.path, content.names()
    if not key and len(members) == 1:
        key = members[0]
    if key in members:
        return content[key]
    if f"{key}_nodes" in members and f"{key}_sizes" in members:
        nodes, sizes = content[f"{key}_nodes"], content[f"{key}_sizes"]
        if any(part.ndim != 1 or part.dtype.kind not in "iu" or not len(part) for part in (nodes, sizes)):
            raise UserError(f"{key}_nodes and {key}_sizes in {path} must be lists of integers")
        # Each size is bounded first, so that the sum cannot wrap around.
        if int(sizes.min()) < 0 or int(sizes.max()) > len(nodes) or int(sizes.sum()) != len(nodes):
            raise UserError(
                f"{key}_sizes in {path} do not add up to the {len(nodes)} nodes of {key}_nodes:"
                " give the number of nodes of each client"
            )
        return np.split(nodes, np.cumsum(sizes)[:-1])
    keys = sorted({name.removesuffix("_nodes").removesuffix("_sizes") for name in members})
    raise UserError(f"no partition called {key!r} in {path}: set key to one of {', '.join(keys)}")
