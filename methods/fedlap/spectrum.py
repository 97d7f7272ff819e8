"""The smooth end of a graph's spectrum: what FedLap+ keeps of the structure.

L = I − D̃^−½ (A + I) D̃^−½; its eigenvectors with the smallest eigenvalues vary least over the edges.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import LinearOperator, eigsh

DENSE = 1000
"""Nodes up to which the whole spectrum is computed: fewer take less time than a Lanczos iteration."""
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
    elsewhere as its eigenvector: on large graphs these are written down, largest component first, and taken
    out of the matrix, since a Lanczos iteration, which `generator` starts, finds one of equal eigenvalues.
    """
    smooth = smoothed_adjacency(adjacency)
    nodes = len(smooth.indptr) - 1
    if nodes <= max(DENSE, 2 * rank):
        dense = np.eye(nodes) - smooth.toarray()
        values, vectors = scipy.linalg.eigh(dense, subset_by_index=(0, rank - 1))
        return values, vectors
    _, component = connected_components(smooth, directed=False)
    sizes = np.bincount(component)
    largest = np.argsort(-sizes, kind="stable")[:rank]
    root = np.sqrt(np.diff(adjacency.indptr) + 1.0)
    length = np.sqrt(np.bincount(component, weights=root**2))
    flat = sp.csr_matrix((root / length[component], (np.arange(nodes), component)), shape=(nodes, len(sizes)))
    values, vectors = np.zeros(len(largest)), flat[:, largest].toarray()
    if len(largest) == rank:
        return values, vectors
    # Shifted by 1, so that what is taken out is the smallest of all and not one of many in the middle.
    rest = LinearOperator(
        smooth.shape, matvec=lambda x: smooth @ x + x - 2 * (flat @ (flat.T @ x)), dtype=np.float64
    )
    found, further = eigsh(rest, rank - len(largest), which="LA", v0=generator.standard_normal(nodes))
    order = np.argsort(-found)
    return np.concatenate([values, 2 - found[order]]), np.hstack([vectors, further[:, order]])


def misread_eigenpairs(
    adjacency: sp.csr_matrix, rank: int, steps: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """What FedLap's public code takes for the eigenpairs, (rank,) and (n, rank) float64.

    `rank` is at most `steps`. Arnoldi's iteration on I − D̃⁻¹(A + I), which is not symmetric: the
    (steps, steps) matrix it leaves is upper Hessenberg with an empty last column, and `eigh` reads its lower
    triangle.
    """
    nodes = adjacency.shape[0]
    looped = adjacency.astype(np.float64) + sp.identity(nodes, format="csr")
    walk = sp.diags(1 / np.asarray(looped.sum(axis=1)).ravel()) @ looped
    basis, hessenberg = np.zeros((steps, nodes)), np.zeros((steps, steps))
    start = generator.standard_normal(nodes)
    basis[0] = start / np.linalg.norm(start)
    for step in range(1, steps):
        new = basis[step - 1] - walk @ basis[step - 1]
        for _ in range(2):  # the second time removes what rounding left
            along = basis[:step] @ new
            new -= along @ basis[:step]
            hessenberg[:step, step - 1] += along
        length = np.linalg.norm(new)
        hessenberg[step, step - 1] = length
        if length <= BREAKDOWN:
            break
        basis[step] = new / length
    values, vectors = np.linalg.eigh(hessenberg, UPLO="L")
    return values[:rank], basis.T @ vectors[:, :rank]


def roughness(adjacency: sp.csr_matrix, vectors: np.ndarray) -> float:
    """Mean over the columns u of uᵀLu / uᵀu: of true eigenvectors the mean of their eigenvalues."""
    square = np.square(vectors).sum(axis=0)
    energy = square - (vectors * (smoothed_adjacency(adjacency) @ vectors)).sum(axis=0)
    return float(np.mean(energy[square > 0] / square[square > 0]))
