"""The eigenvectors are the true ones on every path, and the misread ones are not."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from methods.fedlap import spectrum
from methods.fedlap.spectrum import misread_eigenpairs, roughness, smallest_eigenpairs
from tests.methods.federations import community_federation, small_dataset


def generator() -> np.random.Generator:
    return np.random.default_rng(0)


def laplacian(adjacency: sp.csr_matrix) -> np.ndarray:
    looped = adjacency.toarray().astype(np.float64) + np.eye(adjacency.shape[0])
    degree = looped.sum(1)
    return np.eye(len(looped)) - looped / np.sqrt(np.outer(degree, degree))


def in_pieces() -> sp.csr_matrix:
    """Three connected graphs of other sizes and four nodes alone."""
    parts = [small_dataset(nodes=n, degree=8.0, seed=n).adjacency() for n in (90, 60, 30)]
    return sp.csr_matrix(sp.block_diag([parts[1], sp.csr_matrix((4, 4)), parts[0], parts[2]]))


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("rank", [1, 3, 12, 40])
def test_they_are_the_smallest_of_all(rank, dense, monkeypatch):
    monkeypatch.setattr(spectrum, "DENSE", 1000 if dense else 0)
    adjacency = in_pieces()
    matrix = laplacian(adjacency)
    values, vectors = smallest_eigenpairs(adjacency, rank, generator())
    assert vectors.shape == (184, rank)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(matrix)[:rank], atol=1e-10)
    np.testing.assert_allclose(matrix @ vectors, vectors * values, atol=1e-10)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(rank), atol=1e-10)
    assert roughness(adjacency, vectors) == pytest.approx(values.mean(), abs=1e-10)


def test_a_large_graphs_flat_vectors_are_those_of_its_largest_components(monkeypatch):
    monkeypatch.setattr(spectrum, "DENSE", 0)
    _, vectors = smallest_eigenpairs(in_pieces(), 2, generator())
    assert np.flatnonzero(vectors[:, 0]).min() >= 64
    assert np.flatnonzero(vectors[:, 1]).max() < 60


def test_what_is_misread_is_no_eigenpair_and_rough():
    adjacency = community_federation(nodes=300).source.adjacency()
    values, vectors = misread_eigenpairs(adjacency, 40, 100, generator())
    true, smooth = smallest_eigenpairs(adjacency, 40, generator())
    assert values[0] < -0.01
    assert true[0] > -1e-12
    assert roughness(adjacency, vectors) > 1.3 * roughness(adjacency, smooth)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(40), atol=1e-8)


def test_an_iteration_that_finds_nothing_new_stops():
    pairs = sp.csr_matrix(np.kron(np.eye(4), [[0.0, 1.0], [1.0, 0.0]]))
    values, vectors = misread_eigenpairs(pairs, 4, 8, generator())
    assert np.isfinite(values).all()
    assert np.isfinite(vectors).all()
    assert np.isfinite(roughness(pairs, vectors))
