"""The class `Partition`: the nodes of every client, checked."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedsub.datasets.errors import UserError
from fedsub.datasets.graph import Dataset, clean_edges, make_graph
from fedsub.datasets.sets import distinct


def _no_edges() -> np.ndarray:
    return np.empty((2, 0), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Drawn:
    """Result of a scheme that adds edges to the graph or names its clients."""

    clients: np.ndarray | Sequence[np.ndarray]
    """A client per node, or a list of node arrays."""
    edges: np.ndarray = field(default_factory=_no_edges)
    """(2, m) int64 node ids of the added edges."""
    names: tuple[str, ...] = ()
    """The K names of the clients, if they have any."""


@dataclass(frozen=True, eq=False)
class Partition:
    """The nodes of each of K clients.

    Most schemes give every node to exactly one client. `metis-overlapping` copies nodes to several
    clients; `louvain-largest`, `attribute` and `file` may leave nodes out.
    """

    scheme: str
    """Name with the options that differ from their defaults, e.g. `metis[recursive=true]`."""
    nodes: tuple[np.ndarray, ...]
    """One (n_k,) int64 array per client: distinct ids in the dataset, ascending, never empty."""
    added: np.ndarray = field(default_factory=_no_edges)
    """(2, m) int64 node ids of the edges that the scheme adds to the graph."""
    names: tuple[str, ...] = ()
    """The K names of the clients, if they have any."""

    @property
    def clients(self) -> int:
        """Number of clients K."""
        return len(self.nodes)

    @property
    def sizes(self) -> np.ndarray:
        """Number of nodes per client, (K,) int64."""
        return np.array([len(nodes) for nodes in self.nodes], dtype=np.int64)

    @property
    def origin(self) -> np.ndarray:
        """Dataset ids of all copies, client after client, (Σ n_k,) int64."""
        return np.concatenate(self.nodes)

    @property
    def client(self) -> np.ndarray:
        """Client of every copy, in the order of `origin`, (Σ n_k,) int64."""
        return np.repeat(np.arange(self.clients, dtype=np.int64), self.sizes)

    @property
    def overlapping(self) -> bool:
        """Whether a node belongs to more than one client."""
        origin = self.origin
        return len(distinct(origin)) < len(origin)

    def completed(self, dataset: Dataset) -> Dataset:
        """Return the dataset with the edges in `added`, in both directions; the same object without any."""
        if not self.added.size:
            return dataset
        known = np.stack([end.numpy() for end in dataset.graph.edges()])
        # Edges that exist already or are added twice are merged.
        source, target = np.concatenate([known, self.added], axis=1)
        ends = clean_edges(source, target, dataset.nodes)
        return replace(dataset, graph=make_graph(*ends, dataset.nodes))

    def assignment(self, nodes: int) -> np.ndarray:
        """Return the client of each of the dataset's n nodes, −1 for none; (n,) int64.

        Raises UserError if clients overlap.
        """
        if self.overlapping:
            raise UserError(f"the clients of {self.scheme} share nodes: use a scheme without overlap")
        client = np.full(nodes, -1, dtype=np.int64)
        client[self.origin] = self.client
        return client


def group(assignment: np.ndarray, clients: int) -> list[np.ndarray]:
    """Return the node ids of each client, ascending, from a client per node (−1: none), (n,) integers."""
    order = np.argsort(assignment, kind="stable")
    bounds = np.searchsorted(assignment[order], np.arange(clients + 1))
    return [order[start:stop].astype(np.int64) for start, stop in itertools.pairwise(bounds)]


def ranks_within(groups: np.ndarray) -> np.ndarray:
    """Return the place of each entry within its group, (n,) int64; `groups` (n,) are whole numbers from 0."""
    order = np.argsort(groups, kind="stable")
    sizes = np.bincount(groups)
    return np.argsort(order) - (np.cumsum(sizes) - sizes)[groups]


def clients_from(given: Any, names: Sequence[Any] | None = None) -> np.ndarray:
    """Return a client per node, (n,) int64, from the forms of other libraries.

    These are an array or list with the client of every node, by number or name; a dict from node to client
    (python-louvain); and a list of sets of nodes, one per client (networkx). `names` are the nodes in the
    graph's order; without them nodes are numbers from 0.
    Raises UserError for anything else, and for a node with no client or two.
    """
    if is_grouped(given):
        pairs = [(node, client) for client, nodes in enumerate(given) for node in nodes]
        try:
            client_of = dict(pairs)
        except TypeError:
            raise UserError("a node cannot be a list or set: give one set of nodes for each client") from None
        if len(pairs) > len(client_of):
            if len(given) == 1:
                raise UserError("the only list has a node twice: for a client per node, give the list itself")
            raise UserError("a node is in two of the sets: for overlapping clients give a datasets.Partition")
        given = client_of
    if isinstance(given, Mapping):
        nodes = range(len(given)) if names is None else names
        if len(nodes) != len(given) or any(node not in given for node in nodes):
            raise UserError(
                f"the partition's {len(given)} nodes are not the graph's: give a client for each, by the "
                "node's name in a networkx graph, else by number from 0"
            )
        given = [given[node] for node in nodes]
    array = np.asarray(given)
    if array.ndim == 1 and (array.dtype.kind == "U" or all(isinstance(each, str) for each in array)):
        return np.unique(array, return_inverse=True)[1].astype(np.int64)
    whole = array.dtype.kind in "iub" or (array.dtype.kind == "f" and (array == np.round(array)).all())
    if array.ndim != 1 or not whole:
        raise UserError(
            f"a partition cannot be a {type(given).__name__} of shape {array.shape} of {array.dtype}: give a "
            "scheme's name, a function, or the client of every node as in np.array([0, 0, 1])"
        )
    return array.astype(np.int64)


def is_grouped(given: Any) -> bool:
    """Whether this is a list of sets or lists of nodes."""
    return isinstance(given, (list, tuple)) and all(
        isinstance(each, (set, frozenset, list, tuple)) for each in given
    )


def of_component(dataset: Dataset, assignment: np.ndarray, called: str) -> np.ndarray:
    """Restrict an assignment of the whole graph's nodes to the nodes of its largest component.

    An assignment that does not cover the whole graph is returned unchanged. Raises UserError, with `called`
    as the assignment's name, if all nodes of a client are outside the largest component.
    """
    component = dataset.component
    if component is None or assignment.shape != component.shape:
        return assignment
    if lost := sorted(set(assignment.tolist()) - set(assignment[component].tolist()) - {-1}):
        raise outside(dataset, lost[0], called)
    return assignment[component]


def outside(dataset: Dataset, client: int, called: str) -> UserError:
    """Return the error for a client in `called` without a node in the largest component."""
    return UserError(
        f"client {client} in {called} has no node in the largest component of {dataset.name}, and other"
        " nodes are not used: set largest_component=false or leave the client out"
    )


def as_partition(
    scheme: str, result: np.ndarray | Sequence[np.ndarray] | Drawn, nodes: int, clients: int
) -> Partition:
    """Check a scheme's result, a client per node or a list of node arrays, and make it a `Partition`.

    Raises UserError if it is not one integer per node, names a client or node that does not exist, repeats a
    node within a client, leaves a client empty, adds invalid edges, or gives names to some clients only.
    """
    if isinstance(result, Drawn):
        added = _checked_edges(scheme, result.edges, nodes)
        found = as_partition(scheme, result.clients, nodes, clients)
        names = tuple(map(str, result.names))
        if len(names) not in (0, clients):
            raise UserError(f"{scheme} names {len(names)} of {clients} clients: give each a name, or none")
        return replace(found, added=added, names=names)
    plain = isinstance(result, (list, tuple)) and result and all(map(np.isscalar, result))
    if plain or hasattr(result, "__array__"):
        # Clients in a list or, for example, in a tensor.
        result = np.asarray(result)
    if not isinstance(result, Iterable):
        raise UserError(f"{scheme} returns a {type(result).__name__}: return an array with a client per node")
    if isinstance(result, np.ndarray) and (result.ndim != 1 or result.dtype != object):
        groups = group(_checked_assignment(scheme, result, nodes, clients), clients)
    else:
        groups = [np.sort(_integers(scheme, part)) for part in result]
    if len(groups) != clients:
        raise UserError(f"{scheme} has {len(groups)} clients, not {clients}: ask for {len(groups)} clients")
    for client, part in enumerate(groups):
        if not len(part):
            raise UserError(
                f"{scheme} leaves client {client} without a node: every client needs at least one"
            )
        if int(part[0]) < 0 or int(part[-1]) >= nodes:
            raise UserError(
                f"{scheme} gives client {client} a node outside 0…{nodes - 1}: give nodes of this graph"
            )
        if (part[1:] == part[:-1]).any():
            raise UserError(f"{scheme} gives client {client} the same node twice: list each node once")
    return Partition(scheme, tuple(part.astype(np.int64, copy=False) for part in groups))


def _checked_assignment(scheme: str, assignment: np.ndarray, nodes: int, clients: int) -> np.ndarray:
    assignment = _integers(scheme, assignment)
    if len(assignment) != nodes:
        raise UserError(
            f"{scheme} assigns {len(assignment)} nodes but the graph has {nodes}: give one client per node"
        )
    lowest, highest = int(assignment.min()), int(assignment.max())
    if lowest < -1 or highest >= clients:
        raise UserError(
            f"{scheme} names clients {lowest} to {highest}:"
            f" use 0 to {clients - 1} (or -1 for a node left out), or ask for {highest + 1} clients"
        )
    return assignment


def _checked_edges(scheme: str, edges: np.ndarray, nodes: int) -> np.ndarray:
    edges = np.asarray(edges)
    if edges.ndim != 2 or len(edges) != 2 or not np.issubdtype(edges.dtype, np.integer):
        raise UserError(
            f"{scheme} adds edges of type {edges.dtype}, shape {edges.shape}: give two rows of node ids"
        )
    if edges.size and (edges.min() < 0 or edges.max() >= nodes or (edges[0] == edges[1]).any()):
        raise UserError(f"{scheme} adds an edge that does not join two of the nodes 0…{nodes - 1}")
    return edges.astype(np.int64, copy=False)


def _integers(scheme: str, values: np.ndarray) -> np.ndarray:
    """Return an array of the values' type; large unsigned ones would become negative as int64."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise UserError(f"{scheme} holds lists within lists: give the node ids of each client") from error
    if array.ndim != 1 or not (np.issubdtype(array.dtype, np.integer) or not array.size):
        raise UserError(
            f"{scheme} holds {array.dtype} values of shape {array.shape}, not a list of integers:"
            " give one client per node, or the node ids of each client"
        )
    return array if array.size else array.astype(np.int64)
