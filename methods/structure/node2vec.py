"""node2vec: node embeddings trained to tell nodes met on random walks from random nodes.

Grover & Leskovec, node2vec, KDD 2016: random walks whose steps weigh 1/p for going back, 1 for a common
neighbour and 1/q for going away (section 3.2), and skip-gram with negative sampling. Objective and
optimiser follow the implementation that is usual for graph networks, to which FedStruct's settings refer:
one table of vectors, as many random walks as true ones for negatives, Adam on the touched rows, learning
rate 0.01. numba runs it on one thread from one seed, so that a run is repeatable.
"""

from dataclasses import asdict, dataclass

import numpy as np
import scipy.sparse as sp
from numba import njit

from fedsub.datasets import cache
from fedsub.methods.compiled import compile_pass, multiply_rows, spread_rows

VERSION = 3
"""Raise when the vectors of a seed change."""


@dataclass(frozen=True)
class Node2VecSettings:
    """Hyper-parameters; `FedStructOptions` states their limits. No method sets the fields with a default."""

    width: int
    walk_length: int
    """Number of nodes of a walk."""
    context: int
    """Number of nodes of a window, whose first node is paired with each of the others."""
    walks: int
    """Number of walks from each node in an epoch."""
    p: float
    """Return parameter."""
    q: float
    """In-out parameter."""
    negatives: int
    """Number of random walks for each true one."""
    epochs: int
    learning_rate: float = 0.01
    batch: int = 128
    """Number of nodes whose walks form one batch."""


def node2vec(adjacency: sp.csr_matrix, settings: Node2VecSettings, seed: int) -> np.ndarray:
    """Node embeddings of a symmetric (n, n) 0/1 matrix, (n, width) float32. Cached on disk.

    The result depends only on the graph, the settings and the seed.
    """
    parameters = {**asdict(settings), "seed": seed, "version": VERSION}
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
    gradient, mean, square = np.zeros((3, nodes, settings.width), dtype=np.float32)
    touched = np.zeros(nodes, dtype=np.bool_)
    walks = np.empty((settings.batch, settings.walks, 1 + settings.negatives, settings.walk_length), np.int64)
    step = 0
    for _ in range(settings.epochs):
        order = generator.permutation(nodes)
        for begin in range(0, nodes, settings.batch):
            chosen = order[begin : begin + settings.batch]
            drawn = walks[: len(chosen)]
            _draw(pointer, column, chosen, settings.p, settings.q, generator, drawn, touched)
            _add_gradient(drawn, settings.context, table, gradient)
            step += 1
            _adam(table, gradient, mean, square, touched, step, settings.learning_rate)
    return table


@njit(cache=True)
def _joined(pointer, column, source, target):  # type: ignore[no-untyped-def]
    """Whether an edge joins the two nodes, by bisection."""
    near = column[pointer[source] : pointer[source + 1]]
    place = np.searchsorted(near, target)
    return place < len(near) and near[place] == target


@njit(cache=True)
def _walk(pointer, column, start, p, q, generator, walk):  # type: ignore[no-untyped-def]
    """Fill `walk` by rejection sampling: a step is drawn uniformly and accepted in proportion to its weight.
    A walk stays at a node without neighbours."""
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
            if position == 1 or degree == 1 or (p == 1.0 and q == 1.0):
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


@njit(cache=True)
def _draw(pointer, column, chosen, p, q, generator, walks, touched):  # type: ignore[no-untyped-def]
    """Fill `walks`, (len(chosen), walks, 1 + negatives, length): each true walk from a chosen node, followed
    by its random ones. Mark their nodes in `touched`."""
    for item in range(len(chosen)):
        for true in range(walks.shape[1]):
            drawn = walks[item, true]
            _walk(pointer, column, chosen[item], p, q, generator, drawn[0])
            for negative in range(1, len(drawn)):
                drawn[negative, 0] = chosen[item]
                for position in range(1, drawn.shape[1]):
                    drawn[negative, position] = int(generator.random() * len(touched))
    for node in walks.flat:
        touched[node] = True


# Unsigned indices cannot be negative, which saves the inner loops the test for counting from the end.
@compile_pass
def _add_gradient(walks, context, table, gradient):  # type: ignore[no-untyped-def]
    """Add the objective's gradient to `gradient` (n, width), for walks as `_draw` fills them.

    With z the rows of `table`, the objective is the mean of -log σ(z_i · z_j) over the pairs of true walks
    plus the mean of -log(1 - σ(z_i · z_j)) over the pairs of random walks.
    """
    length, width = walks.shape[3], np.uint64(table.shape[1])
    windows = length - context + 1
    per_true = walks.shape[2]
    each = walks.reshape((-1, length))
    share = np.float32(1 / (walks.shape[0] * walks.shape[1] * windows * (context - 1)))
    vectors = np.empty((length, table.shape[1]), dtype=np.float32)
    flat, to_flat, places = vectors.ravel(), gradient.ravel(), np.arange(length)
    scores = np.empty(length, dtype=np.float32)
    # Derivatives of the pairs' losses with respect to their scores, stored for both orders of a pair.
    slopes = np.zeros((length, length), dtype=np.float32)
    for index in range(len(each)):
        walk = each[index]
        for position in range(np.uint64(length)):
            node = np.uint64(walk[position])
            for item in range(width):
                vectors[position, item] = table[node, item]
        true = index % per_true == 0
        label, weight = np.float32(true), share if true else share / np.float32(per_true - 1)
        for first in range(windows):
            end = first + context
            multiply_rows(first + 1, end, places, flat, vectors[first], scores)
            for second in range(first + 1, end):
                slope = weight * (np.float32(1) / (np.float32(1) + np.exp(-scores[second])) - label)
                slopes[first, second] = slope
                slopes[second, first] = slope
        for place in range(length):
            # Only nodes that form a pair with this one; the first node of a pair must open a window.
            low = max(0, place - context + 1)
            high = min(place + context, length) if place < windows else windows
            spread_rows(place, place + 1, walk, slopes[low:high], vectors[low:high], to_flat)


@compile_pass
def _adam(table, gradient, mean, square, touched, step, learning_rate):  # type: ignore[no-untyped-def]
    """Apply Adam to the touched rows and their moments only, then clear the gradient and the marks."""
    rate = np.float32(learning_rate * np.sqrt(1.0 - 0.999**step) / (1.0 - 0.9**step))
    for row in range(np.uint64(len(table))):
        if touched[row]:
            touched[row] = False
            for item in range(np.uint64(table.shape[1])):
                slope = gradient[row, item]
                gradient[row, item] = np.float32(0)
                mean[row, item] = np.float32(0.9) * mean[row, item] + np.float32(0.1) * slope
                square[row, item] = np.float32(0.999) * square[row, item] + np.float32(0.001) * slope * slope
                table[row, item] -= rate * mean[row, item] / (np.sqrt(square[row, item]) + np.float32(1e-8))
