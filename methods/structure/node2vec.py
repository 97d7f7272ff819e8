"""node2vec: node embeddings trained to tell nodes met on random walks from random nodes.

Grover & Leskovec, node2vec, KDD 2016, with p = q = 1 (section 3.2), so that a walk's steps are uniform over
the neighbours, and skip-gram with negative sampling. Objective and optimiser follow the implementation that
is usual for graph networks, to which FedStruct's settings refer: one table of vectors, as many random walks
as true ones for negatives, Adam on the touched rows. numba runs it on one thread from one seed.
"""

import numpy as np
import scipy.sparse as sp
from numba import njit

from fedsub.datasets import cache
from fedsub.methods.compiled import compile_pass, multiply_rows, spread_rows

VERSION = 3
"""Raise when the vectors of a seed change."""
LENGTH = 20
"""Number of nodes of a walk."""
CONTEXT = 10
"""Number of nodes of a window, whose first node is paired with each of the others."""
WALKS = 10
"""Number of walks from each node in an epoch; each has one random walk beside it."""
EPOCHS = 50
LEARNING_RATE = 0.01
BATCH = 128
"""Number of nodes whose walks form one batch."""


def node2vec(adjacency: sp.csr_matrix, width: int, seed: int) -> np.ndarray:
    """Node embeddings of a symmetric (n, n) 0/1 matrix, (n, width) float32. Cached on disk.

    The result depends only on the graph, the width and the seed.
    """
    parameters = {"width": width, "seed": seed, "version": VERSION}
    return cache.remember(
        "structure", "node2vec", adjacency, parameters, lambda: _train(adjacency, width, seed)
    )


def _train(adjacency: sp.csr_matrix, width: int, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    graph, nodes = adjacency.sorted_indices(), adjacency.shape[0]
    pointer, column = graph.indptr.astype(np.int64), graph.indices.astype(np.int64)
    table = generator.standard_normal((nodes, width), dtype=np.float32)
    gradient, mean, square = np.zeros((3, nodes, width), dtype=np.float32)
    touched = np.zeros(nodes, dtype=np.bool_)
    walks = np.empty((BATCH, WALKS, 2, LENGTH), np.int64)
    step = 0
    for _ in range(EPOCHS):
        order = generator.permutation(nodes)
        for begin in range(0, nodes, BATCH):
            chosen = order[begin : begin + BATCH]
            drawn = walks[: len(chosen)]
            _draw(pointer, column, chosen, generator, drawn, touched)
            _add_gradient(drawn, CONTEXT, table, gradient)
            step += 1
            _adam(table, gradient, mean, square, touched, step, LEARNING_RATE)
    return table


@njit(cache=True)
def _draw(pointer, column, chosen, generator, walks, touched):  # type: ignore[no-untyped-def]
    """Fill `walks`, (len(chosen), walks, 2, length): each true walk from a chosen node, followed by a random
    one. A walk stays at a node without neighbours. Mark their nodes in `touched`."""
    for item in range(len(chosen)):
        for number in range(walks.shape[1]):
            true, random = walks[item, number, 0], walks[item, number, 1]
            true[0] = random[0] = chosen[item]
            for position in range(1, len(true)):
                node = true[position - 1]
                degree = pointer[node + 1] - pointer[node]
                if degree > 0:
                    node = column[pointer[node] + int(generator.random() * degree)]
                true[position] = node
            for position in range(1, len(random)):
                random[position] = int(generator.random() * len(touched))
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
        # True walks and random ones alternate.
        label = np.float32(index % 2 == 0)
        for first in range(windows):
            end = first + context
            multiply_rows(first + 1, end, places, flat, vectors[first], scores)
            for second in range(first + 1, end):
                slope = share * (np.float32(1) / (np.float32(1) + np.exp(-scores[second])) - label)
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
