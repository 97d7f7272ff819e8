"""FedLap+'s structure basis: the eigenvectors of a graph's Laplacian with the smallest eigenvalues.

L = I − D̃^−½ (A + I) D̃^−½; its eigenvectors with the smallest eigenvalues vary least over the edges.

The Laplacian in FedLap+'s paper was not read. Here it is the symmetric one, with the same eigenvalues as the
code's, since tr(Wᵀ Λ W) = tr(Sᵀ L S) for S = U W only holds if U is orthonormal. The authors' code iterates
on I − D̃⁻¹(A + I), which is not symmetric, but treats it as symmetric (`basis = "reference"`). On Cora 200
vectors then have a mean roughness uᵀLu of 0.22 with 500 steps and 0.73 with 200; the exact ones have 0.042.
Enough steps find the exact eigenvectors; bytes are counted for `steps`, from a first vector that every client
can draw. There are at most as many vectors as nodes, and at least as many steps as vectors.
"""

from collections.abc import Callable

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import LinearOperator, eigsh

DENSE = 1000
"""Number of nodes up to which the dense eigensolver is used; there it is faster than a Lanczos iteration."""
SPARE = 10
"""Number of extra eigenvectors, so that all vectors of the last eigenvalue are found."""
DEGREE = 8
"""Degree of the polynomial: a higher one needs fewer vectors, but more products with the matrix for each."""
EQUAL = 1e-8
"""Largest difference of two neighbouring eigenvalues that count as equal."""
BREAKDOWN = 1e-12
"""Arnoldi's iteration ends at a new vector of at most this length."""


def smoothed_adjacency(adjacency: sp.csr_matrix) -> sp.csr_matrix:
    """D̃^−½ (A + I) D̃^−½ of a symmetric 0/1 matrix without diagonal; (n, n) float64."""
    looped = adjacency.astype(np.float64) + sp.identity(adjacency.shape[0], format="csr")
    scale = sp.diags(1 / np.sqrt(np.asarray(looped.sum(axis=1)).ravel()))
    return sp.csr_matrix(scale @ looped @ scale)


def smallest_eigenpairs(
    adjacency: sp.csr_matrix, rank: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """The `rank` smallest eigenvalues of L, ascending, and their eigenvectors; (rank,) and (n, rank) float64.

    `rank` is at most n. Every connected component has one eigenvalue 0, whose eigenvector is √d̃ there and
    zero elsewhere. These are computed directly, largest component first, and removed from the matrix.
    `generator` starts the Lanczos iteration of larger graphs, and fixes signs and the vectors of other equal
    eigenvalues (see `chosen_basis`), which a solver leaves to rounding.
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
    # Shifted by 1, so that the removed vectors have the smallest eigenvalues, not ones in the middle.
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
    """The largest eigenvalues, (wanted,), of a symmetric matrix with eigenvalues in [0, 2], and their
    eigenvectors, (n, wanted).

    Lanczos's iteration spends most of its time on orthogonalising its vectors. It needs fewer of them with
    Chebyshev's polynomial of the matrix, which is in [−1, 1] for eigenvalues up to 1 and grows fast above
    (Saad, Numerical Methods for Large Eigenvalue Problems, 2011, chapter 7).
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
    # Some eigenvalues are at most 1, where the polynomial does not separate them.
    return eigsh(LinearOperator(shape, times, dtype=np.float64), wanted, which="LA", v0=start)


def chosen_basis(values: np.ndarray, vectors: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """The first r of k eigenvectors (n, k) with ascending eigenvalues, in the basis fixed by `drawn`, (n, r).

    For equal eigenvalues, the drawn vectors of their columns are projected onto the eigenspace and made
    orthonormal one after the other. A single eigenvector gets the sign whose product with the drawn vector is
    positive. So the result does not depend on the given basis of an eigenspace.
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
    """The approximate eigenpairs of FedLap's public code, (rank,) and (n, rank) float64.

    `rank` is at most `steps`. The code runs Arnoldi's iteration on I − D̃⁻¹(A + I), which is not symmetric.
    The resulting (steps, steps) matrix is upper Hessenberg with an empty last column, and `eigh` reads its
    lower triangle. Rounding in one step changes all later vectors completely. So sums use `numpy.add`, whose
    order is the same on every processor, unlike a BLAS.
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
    """Mean of uᵀLu / uᵀu over the columns u; for exact eigenvectors the mean of their eigenvalues."""
    square = np.square(vectors).sum(axis=0)
    energy = square - (vectors * (smoothed_adjacency(adjacency) @ vectors)).sum(axis=0)
    return float(np.mean(energy[square > 0] / square[square > 0]))
