"""The smooth end of a graph's spectrum: what FedLap+ keeps of the structure.

L = I − D̃^−½ (A + I) D̃^−½; its eigenvectors with the smallest eigenvalues vary least over the edges.

Which Laplacian FedLap+ has in print was not read: here it is the symmetric one, with the eigenvalues of the
code's, since only for orthonormal U is tr(Wᵀ Λ W) what tr(Sᵀ L S) is for S = U W. The authors' code iterates
on I − D̃⁻¹(A + I), which is not symmetric, and reads the matrix as if it were (`basis = "reference"`): on Cora
200 vectors then have a mean roughness uᵀLu of 0.22 with 500 steps, 0.73 with 200, the true ones 0.042. True
eigenvectors are those that enough steps find; the bytes are of `steps`, from a first vector that every client
can draw. There are at most as many vectors as nodes, and at least as many steps as vectors.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import LinearOperator, eigsh

DENSE = 1000
"""Nodes up to which the whole spectrum is computed: fewer take less time than a Lanczos iteration."""
SPARE = 10
"""Eigenvectors found beyond those wanted, so that the last eigenvalue's are all there."""
DEGREE = 8
"""Of the polynomial: a higher one needs fewer vectors, and more products with the matrix for each."""
EQUAL = 1e-8
"""Distance up to which two neighbouring eigenvalues are one."""
BREAKDOWN = 1e-12
"""Length of a new Arnoldi vector below which there is none."""


def smoothed_adjacency(adjacency: sp.csr_matrix) -> sp.csr_matrix:
    """D̃^−½ (A + I) D̃^−½ of a symmetric 0/1 matrix without diagonal; (n, n) float64."""
    looped = adjacency.astype(np.float64) + sp.identity(adjacency.shape[0], format="csr")
    scale = sp.diags(1 / np.sqrt(np.asarray(looped.sum(axis=1)).ravel()))
    return sp.csr_matrix(scale @ looped @ scale)


def smallest_eigenpairs(
    adjacency: sp.csr_matrix, rank: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """The `rank` smallest eigenvalues of L, ascending, and their eigenvectors; (rank,) and (n, rank) float64.

    `rank` is at most n. The eigenvalue 0 comes once for every connected component, with √d̃ there and zero
    elsewhere as its eigenvector: these are written down, largest component first, and left out of the matrix.
    `generator` starts the Lanczos iteration that larger graphs take, and chooses signs and vectors of other
    equal eigenvalues (see `chosen_basis`), which a solver leaves to rounding.
    """
    smooth = smoothed_adjacency(adjacency)
    nodes = smooth.shape[0]
    _, component = connected_components(smooth, directed=False)
    sizes = np.bincount(component)
    largest = np.argsort(-sizes, kind="stable")[:rank]
    root = np.sqrt(np.diff(adjacency.indptr) + 1.0)
    length = np.sqrt(np.bincount(component, weights=root**2))
    flat = sp.csr_matrix((root / length[component], (np.arange(nodes), component)), shape=(nodes, len(sizes)))
    flat_vectors = flat[:, largest].toarray()
    missing = rank - len(largest)
    if missing == 0:
        return np.zeros(rank), flat_vectors
    drawn, start = generator.standard_normal((nodes, missing)), generator.standard_normal(nodes)
    wanted = min(missing + SPARE, nodes - len(sizes))
    # Shifted by 1, so that what is taken out is the smallest of all and not one of many in the middle.
    if nodes <= max(DENSE, 2 * rank):
        rest = smooth.toarray() + np.eye(nodes) - 2 * (flat @ flat.T).toarray()
        found, vectors = scipy.linalg.eigh(rest, subset_by_index=(nodes - wanted, nodes - 1))
    else:
        found, vectors = _largest(lambda x: smooth @ x + x - 2 * (flat @ (flat.T @ x)), wanted, start)
    order = np.argsort(-found)
    values = 2 - found[order]
    vectors = chosen_basis(values, vectors[:, order], drawn)
    return np.concatenate([np.zeros(len(largest)), values[:missing]]), np.hstack([flat_vectors, vectors])


def _largest(
    times: Callable[[np.ndarray], np.ndarray], wanted: int, start: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The largest eigenvalues, (wanted,), of a symmetric matrix with all of them between 0 and 2, and their
    eigenvectors, (n, wanted).

    Most of Lanczos's time is spent on making its vectors orthogonal. Of Chebyshev's polynomial of the matrix,
    which is between −1 and 1 up to the eigenvalue 1 and grows fast from there, it needs fewer vectors (Saad,
    Numerical Methods for Large Eigenvalue Problems, 2011, chapter 7).
    """

    def filtered(x: np.ndarray) -> np.ndarray:
        before, now = x, 2 * times(x) - x
        for _ in range(DEGREE - 1):
            before, now = now, 4 * times(now) - 2 * now - before
        return now

    shape = (len(start), len(start))
    _, vectors = eigsh(LinearOperator(shape, filtered, dtype=np.float64), wanted, which="LA", v0=start)
    values = (vectors * times(vectors)).sum(axis=0)
    if values.min() > 1:
        return values, vectors
    # Too few lie above 1: below the polynomial tells nothing apart.
    found: tuple[np.ndarray, np.ndarray] = eigsh(
        LinearOperator(shape, times, dtype=np.float64), wanted, which="LA", v0=start
    )
    return found


def chosen_basis(values: np.ndarray, vectors: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """The first r of (n, k) eigenvectors of k ascending eigenvalues, as `drawn`, (n, r), picks them.

    Of equal eigenvalues, the drawn vectors of their columns, projected onto the space of the eigenvectors and
    made orthonormal one after the other; of a single one, the sign with which its product with the drawn
    vector is positive. They do not depend on which basis of such a space is given.
    """
    groups = np.split(np.arange(len(values)), np.flatnonzero(np.diff(values) > EQUAL) + 1)
    chosen = np.empty_like(drawn)
    for group in groups:
        columns = group[group < drawn.shape[1]]
        space = vectors[:, group]
        rotation, triangle = np.linalg.qr(space.T @ drawn[:, columns])
        chosen[:, columns] = space @ (rotation * np.sign(np.diag(triangle)))
    return chosen


def misread_eigenpairs(
    adjacency: sp.csr_matrix, rank: int, steps: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """What FedLap's public code takes for the eigenpairs, (rank,) and (n, rank) float64.

    `rank` is at most `steps`. Arnoldi's iteration on I − D̃⁻¹(A + I), which is not symmetric: the
    (steps, steps) matrix it leaves is upper Hessenberg with an empty last column, and `eigh` reads its lower
    triangle. Rounding in one step changes the later vectors altogether: its sums are those of `numpy.add`,
    which come in one order on every processor, where those of a BLAS do not.
    """
    nodes = adjacency.shape[0]
    looped = adjacency.astype(np.float64) + sp.identity(nodes, format="csr")
    walk = sp.diags(1 / np.asarray(looped.sum(axis=1)).ravel()) @ looped
    basis, hessenberg = np.zeros((steps, nodes)), np.zeros((steps, steps))
    start = generator.standard_normal(nodes)
    basis[0] = start / _length(start)
    for step in range(1, steps):
        new = basis[step - 1] - walk @ basis[step - 1]
        for _ in range(2):  # the second time removes what rounding left
            along = np.add.reduce(basis[:step] * new, axis=1)
            new -= np.add.reduce(along[:, np.newaxis] * basis[:step], axis=0)
            hessenberg[:step, step - 1] += along
        length = _length(new)
        hessenberg[step, step - 1] = length
        if length <= BREAKDOWN:
            break
        basis[step] = new / length
    values, vectors = scipy.linalg.eigh_tridiagonal(
        np.diag(hessenberg), np.diag(hessenberg, -1), select="i", select_range=(0, rank - 1)
    )
    return values, chosen_basis(values, basis.T @ vectors, generator.standard_normal((nodes, rank)))


def _length(vector: np.ndarray) -> float:
    return float(np.sqrt(np.add.reduce(vector * vector)))


def roughness(adjacency: sp.csr_matrix, vectors: np.ndarray) -> float:
    """Mean over the columns u of uᵀLu / uᵀu: of true eigenvectors the mean of their eigenvalues."""
    square = np.square(vectors).sum(axis=0)
    energy = square - (vectors * (smoothed_adjacency(adjacency) @ vectors)).sum(axis=0)
    return float(np.mean(energy[square > 0] / square[square > 0]))
