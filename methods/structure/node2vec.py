"""node2vec: vectors that tell the nodes met on random walks from random ones.

Grover & Leskovec, node2vec, KDD 2016: walks whose next step weighs 1/p for going back, 1 for a common
neighbour, 1/q for going away (section 3.2), and skip-gram with negative sampling. Objective and
optimiser are those of the implementation that is usual for graph networks (one table of vectors, as
many random walks as true ones for negatives, Adam on the rows touched, learning rate 0.01), which
FedStruct's settings speak of. Compiled by numba, on one thread, from one seed: a run is repeatable.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numba import njit

from datasets import cache

VERSION = 1
"""Raise when the vectors of a seed change."""


@dataclass(frozen=True)
class Node2VecSettings:
    """Hyper-parameters; what has a default no method sets."""

    width: int
    walk_length: int
    """Nodes of a walk."""
    context: int
    """Nodes of a window: its first is paired with each of the others."""
    walks: int
    """Walks from each node in an epoch."""
    p: float
    """Return parameter."""
    q: float
    """In-out parameter."""
    negatives: int
    """Random walks against each true one."""
    epochs: int
    learning_rate: float = 0.01
    batch: int = 128
    """Nodes whose walks make one step."""

    def __post_init__(self) -> None:
        if not 2 <= self.context <= self.walk_length:
            raise ValueError(f"context must lie in 2…{self.walk_length}, not {self.context}")
        if min(self.width, self.walks, self.batch) < 1 or min(self.negatives, self.epochs) < 0:
            raise ValueError("width, walks and batch must be positive, negatives and epochs not negative")
        if min(self.p, self.q) <= 0:
            raise ValueError("p and q must be positive")


def node2vec(adjacency: sp.csr_matrix, settings: Node2VecSettings, seed: int) -> np.ndarray:
    """Vectors of the nodes of a symmetric (n, n) 0/1 matrix, (n, width) float32. Cached on disk.

    The result depends on the graph, the settings and the seed alone.
    """
    parameters = {**dataclasses.asdict(settings), "seed": seed, "version": VERSION}
    return cache.remember(
        "structure", "node2vec", adjacency, parameters, lambda: _train(adjacency, settings, seed)
    )


def _rows(adjacency: sp.csr_matrix) -> tuple[np.ndarray, np.ndarray]:
    """Row pointers and columns, columns ascending within a row."""
    matrix = sp.csr_matrix(adjacency)
    matrix.sort_indices()
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64)


def _train(adjacency: sp.csr_matrix, settings: Node2VecSettings, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    pointer, column = _rows(adjacency)
    nodes = adjacency.shape[0]
    table = generator.standard_normal((nodes, settings.width), dtype=np.float32)
    state = np.zeros((3, nodes, settings.width), dtype=np.float32)
    step = 0
    for _ in range(settings.epochs):
        order = generator.permutation(nodes)
        step = _epoch(
            pointer,
            column,
            order,
            table,
            state,
            step,
            generator,
            settings.walk_length,
            settings.context,
            settings.walks,
            settings.p,
            settings.q,
            settings.negatives,
            settings.learning_rate,
            settings.batch,
        )
    return table


@njit(cache=True)
def _joined(pointer, column, source, target):  # type: ignore[no-untyped-def]
    """Whether an edge joins the two nodes, by bisection."""
    low, high = pointer[source], pointer[source + 1]
    while low < high:
        middle = (low + high) // 2
        if column[middle] < target:
            low = middle + 1
        else:
            high = middle
    return low < pointer[source + 1] and column[low] == target


@njit(cache=True)
def _walk(pointer, column, start, p, q, generator, walk):  # type: ignore[no-untyped-def]
    """Fill `walk`. A step is drawn uniformly and kept in proportion to its weight; a node without neighbours
    stays where it is."""
    heaviest = max(1.0, max(1.0 / p, 1.0 / q))
    walk[0] = start
    for position in range(1, len(walk)):
        node = walk[position - 1]
        degree = pointer[node + 1] - pointer[node]
        if degree == 0:
            walk[position] = node
            continue
        while True:
            following = column[pointer[node] + int(generator.random() * degree)]
            if position == 1 or (p == 1.0 and q == 1.0):
                break
            previous = walk[position - 2]
            if following == previous:
                weight = 1.0 / p
            elif _joined(pointer, column, previous, following):
                weight = 1.0
            else:
                weight = 1.0 / q
            if generator.random() * heaviest < weight:
                break
        walk[position] = following


@njit("void(float32[::1], float32[::1], float32[::1], float32[::1], float32)", cache=True, fastmath=True)
def _adam_row(row, gradient, mean, square, rate):  # type: ignore[no-untyped-def]
    for item in range(row.shape[0]):
        slope = gradient[item]
        gradient[item] = np.float32(0.0)
        mean[item] = np.float32(0.9) * mean[item] + np.float32(0.1) * slope
        square[item] = np.float32(0.999) * square[item] + np.float32(0.001) * slope * slope
        row[item] -= rate * mean[item] / (np.sqrt(square[item]) + np.float32(1e-8))


# Unsigned indices cannot count from the end, and spare the inner loops the test for it.
@njit(cache=True, fastmath=True)
def _add_gradient(walk, context, label, share, table, gradient, vectors, slopes):  # type: ignore[no-untyped-def]
    """Add to `gradient` that of share · Σ over the walk's pairs of the logistic loss against `label`."""
    length, window, width = np.uint64(len(walk)), np.uint64(context), np.uint64(table.shape[1])
    one = np.uint64(1)
    for position in range(length):
        node = np.uint64(walk[position])
        for item in range(width):
            vectors[position, item] = table[node, item]
            slopes[position, item] = np.float32(0.0)
    for first in range(length - window + one):
        for second in range(first + one, first + window):
            score = np.float32(0.0)
            for item in range(width):
                score += vectors[first, item] * vectors[second, item]
            slope = np.float32(share * (1.0 / (1.0 + np.exp(-score)) - label))
            for item in range(width):
                slopes[first, item] += slope * vectors[second, item]
            for item in range(width):
                slopes[second, item] += slope * vectors[first, item]
    for position in range(length):
        node = np.uint64(walk[position])
        for item in range(width):
            gradient[node, item] += slopes[position, item]


@njit(cache=True, fastmath=True)
def _adam(table, state, touched, step, learning_rate):  # type: ignore[no-untyped-def]
    """Adam on the rows touched; moments of the others rest. Clears the gradient and the marks."""
    rate = np.float32(learning_rate * np.sqrt(1.0 - 0.999**step) / (1.0 - 0.9**step))
    for node in range(len(table)):
        if touched[node]:
            touched[node] = False
            _adam_row(table[node], state[0][node], state[1][node], state[2][node], rate)


@njit(cache=True)
def _epoch(  # type: ignore[no-untyped-def]
    pointer,
    column,
    order,
    table,
    state,
    step,
    generator,
    length,
    context,
    walks,
    p,
    q,
    negatives,
    learning_rate,
    batch,
):
    """One pass over all nodes; returns the number of steps taken so far."""
    nodes, width = table.shape
    walk = np.empty(length, dtype=np.int64)
    vectors = np.empty((length, width), dtype=np.float32)
    slopes = np.empty((length, width), dtype=np.float32)
    touched = np.zeros(nodes, dtype=np.bool_)
    pairs = (length - context + 1) * (context - 1)
    for begin in range(0, nodes, batch):
        chosen = order[begin : begin + batch]
        share = 1.0 / (len(chosen) * walks * pairs)
        for start in chosen:
            for _ in range(walks):
                _walk(pointer, column, start, p, q, generator, walk)
                for node in walk:
                    touched[node] = True
                _add_gradient(walk, context, 1.0, share, table, state[0], vectors, slopes)
                for _ in range(negatives):
                    walk[0] = start
                    for position in range(1, length):
                        walk[position] = int(generator.random() * nodes)
                    for node in walk:
                        touched[node] = True
                    _add_gradient(walk, context, 0.0, share / negatives, table, state[0], vectors, slopes)
        step += 1
        _adam(table, state, touched, step, learning_rate)
    return step
