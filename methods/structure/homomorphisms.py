"""Exact counts of rooted homomorphisms: how often every node is the image of a small pattern's root.

A homomorphism maps a pattern's nodes to a graph's nodes so that edges fall on edges; two nodes may share an
image. A pattern that is a forest without one node p is counted by messages from leaves to root. A message is
an (n, 1) vector or, if it depends on p, an (n, n) matrix with a column for each image of p. Every step is a
sparse product on a block of columns. A column is zero except within a few steps of p's image, so a block of
nodes near each other needs only the rows around them. The other patterns hold a K4 or a wheel: one of their
nodes is fixed, and the rest is counted inside the graph that its neighbours induce. All numbers are integers
below 2^53, exact in double precision.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import networkx as nx
import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import reverse_cuthill_mckee
from torch import Tensor

from fedsub.datasets.graph import as_feature_tensor

BLOCK = 64
"""Number of images of p in a block of columns."""
WAITING = 2**24
"""Number of path entries that are collected before they are summed."""

Key = tuple[bool, tuple["Key", ...]]
"""A rooted tree of a pattern without p: whether its root is joined to p, and its subtrees."""
Edges = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Tree:
    """A decomposition of a pattern: the rooted trees that remain of it without p."""

    own: Key | None
    """The tree of the pattern's root; None where p is the root."""
    others: tuple[Key, ...]
    """The other trees, each joined to p."""

    @property
    def products(self) -> set[Key]:
        """The subtrees whose message needs a product with a dense matrix."""
        return set(filter(_joined, self.subtrees))

    @property
    def trees(self) -> tuple[Key, ...]:
        return self.others if self.own is None else (self.own, *self.others)

    @property
    def subtrees(self) -> set[Key]:
        """All subtrees below the roots."""
        return set().union(*map(_below, self.trees))


def _below(tree: Key) -> set[Key]:
    return {each for child in tree[1] for each in {child} | _below(child)}


def _joined(tree: Key) -> bool:
    """Whether any node of the tree is joined to p."""
    return tree[0] or any(map(_joined, tree[1]))


def _steps(tree: Key) -> int:
    """Length of the shortest path from the root to p. Where the images of root and p are farther apart, there
    is no homomorphism."""
    return 1 if tree[0] else 1 + min(_steps(child) for child in tree[1] if _joined(child))


def decompositions(edges: Edges, root: int) -> Iterator[Tree]:
    """Yield all decompositions of a pattern of nodes 0…k−1; none if no choice of p leaves a forest."""
    graph = nx.Graph(edges)
    for p in [-1] if nx.is_tree(graph) else graph:
        rest = graph.subgraph(graph.nodes - {p})
        if not nx.is_forest(rest):
            continue
        joined = set(graph.adj.get(p, ()))
        choices = [[root] if root in part else sorted(part) for part in nx.connected_components(rest)]
        for starts in itertools.product(*choices):
            trees = {start: _rooted(start, -1, rest, joined) for start in starts}
            own = trees.pop(root, None)
            yield Tree(own, tuple(trees.values()))


def _rooted(node: int, parent: int, rest: nx.Graph, joined: set[int]) -> Key:
    children = set(rest[node]) - {parent}
    return node in joined, tuple(sorted(_rooted(child, node, rest, joined) for child in children))


def images(tree: Key, adjacency: Tensor, columns: Tensor, spread: dict[Key, Tensor]) -> Tensor:
    """Number of the tree's homomorphisms by image x of its root and q of p, (r, block); (r, 1) without p.

    `adjacency` is the CSR float64 matrix, (r, r), of the rows around a block of images q, and `columns` its
    dense columns for the block, (r, block). `spread` caches the block's messages, subtree → (r, block). It
    already holds the messages that do not depend on p, (r, 1), because they need all rows.
    """
    out = columns if tree[0] else torch.ones(len(columns), 1, dtype=torch.float64)
    for child in tree[1]:
        if child not in spread:
            spread[child] = torch.mm(adjacency, images(child, adjacency, columns, spread))
        out = out * spread[child]
    return out


def by_messages(adjacency: sp.csr_matrix, patterns: Mapping[int, tuple[Edges, int]]) -> dict[int, np.ndarray]:
    """Number of homomorphisms by the root's image, name → (n,) float64, for patterns with a decomposition."""
    ways = {name: list(decompositions(edges, root)) for name, (edges, root) in patterns.items()}
    # The decomposition with the fewest dense products.
    plans = {name: min(each, key=lambda way: len(way.products)) for name, each in ways.items() if each}
    whole, nodes = as_feature_tensor(adjacency).double(), adjacency.shape[0]
    free: dict[Key, Tensor] = {}
    message = partial(images, adjacency=whole, columns=torch.empty(nodes, 0), spread=free)
    for subtree in set().union(*(plan.subtrees - plan.products for plan in plans.values())):
        free[subtree] = torch.mm(whole, message(subtree))
    counts = {name: torch.zeros(nodes, dtype=torch.float64) for name in plans}
    around_p: dict[int, Tree] = {}
    for name, plan in plans.items():
        if plan.own is None or _joined(plan.own):
            around_p[name] = plan
        else:
            counts[name] = message(plan.own)[:, 0]
    joined = set().union(*({*plan.trees} | plan.products for plan in around_p.values()))
    steps = max(map(_steps, joined))
    order = reverse_cuthill_mckee(adjacency, symmetric_mode=True)
    for start in range(0, nodes, BLOCK):
        block = np.sort(order[start : start + BLOCK])
        around = _around(adjacency, block, steps)
        near = adjacency[around][:, around]
        columns = torch.from_numpy(near[:, np.searchsorted(around, block)].toarray().astype(np.float64))
        spread = {subtree: values[around] for subtree, values in free.items()}
        local = as_feature_tensor(near).double()
        message = partial(images, adjacency=local, columns=columns, spread=spread)
        for name, plan in around_p.items():
            rest = torch.ones(1, len(block), dtype=torch.float64)
            for tree in plan.others:
                rest = rest * message(tree).sum(dim=0, keepdim=True)
            if plan.own is None:
                counts[name][block] = rest[0]
            else:
                counts[name][around] += (message(plan.own) * rest).sum(dim=1)
    return {name: count.numpy() for name, count in counts.items()}


def _around(adjacency: sp.csr_matrix, block: np.ndarray, steps: int) -> np.ndarray:
    """Nodes within `steps` edges of a node of the block, ascending."""
    reached = np.zeros(adjacency.shape[0])
    reached[block] = 1
    for _ in range(steps):
        reached = reached + adjacency @ reached
    return reached.nonzero()[0]


def by_neighbourhoods(adjacency: sp.csr_matrix) -> dict[int, np.ndarray]:
    """Number of homomorphisms by the root's image, orbit → (n,) float64, for patterns with a K4 or a wheel.

    Orbit 14 is K4's; 56 to 58 K4 with a pendant node, 62 to 64 K4 with an edge divided, 65 to 67 K4
    and a node joined to two of its nodes, 68 and 69 the wheel, 70 and 71 K5 without an edge, 72 K5.
    """
    adjacency = adjacency.astype(np.float64)
    nodes = adjacency.shape[0]
    count = {orbit: np.zeros(nodes) for orbit in (14, *range(56, 59), *range(62, 73))}
    neighbours = np.split(adjacency.indices, adjacency.indptr[1:-1])
    squares = adjacency @ adjacency
    paths = sp.csr_matrix((nodes, nodes))
    waiting: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    entries = 0
    for h, near in enumerate(neighbours):
        joined = _inside(adjacency, near)
        twice = joined @ joined
        shared = joined * twice
        triangles = shared.sum(axis=1)
        count[14][h] = triangles.sum()
        degree, square = joined.sum(axis=1), np.square(twice)
        count[57][near] += triangles * len(near)
        count[58][h] = triangles.sum() * len(near)
        count[65][near] += joined @ triangles
        count[66][near] += shared @ degree
        count[67][h] = triangles @ degree
        count[68][near] += square.sum(axis=1)
        count[69][h] = square.sum()
        count[70][near] += ((joined @ shared) * joined).sum(axis=1)
        count[71][h] = (shared * twice).sum()
        among = (joined[np.ix_(both, both)] for both in map(np.flatnonzero, joined))
        count[72][h] = sum(float(((part @ part) * part).sum()) for part in among)
        beyond = twice * _inside(squares, near)
        count[63][near] += beyond.sum(axis=1)
        count[64][h] = beyond.sum()
        row, place = np.nonzero(twice)
        waiting.append((twice[row, place], near[row], near[place]))
        entries += len(row)
        if h == nodes - 1 or entries > WAITING:
            values, rows, columns = (np.concatenate(part) for part in zip(*waiting, strict=True))
            paths = paths + sp.csr_matrix((values, (rows, columns)), shape=adjacency.shape)
            waiting, entries = [], 0
    count[56] = adjacency @ count[14]
    count[62] = np.array([_inside(paths, near).sum() for near in neighbours])
    return count


def _inside(matrix: sp.csr_matrix, near: np.ndarray) -> np.ndarray:
    """The dense submatrix of rows and columns `near`."""
    return matrix[near][:, near].toarray()
