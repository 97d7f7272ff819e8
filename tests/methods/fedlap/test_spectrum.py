"""The eigenvectors are exact on every code path; those of the misread algorithm are not."""

import os
import subprocess
import sys

import networkx
import numpy as np
import pytest
import scipy.sparse as sp

from fedsub.methods.fedlap import spectrum
from fedsub.methods.fedlap.spectrum import chosen_basis, misread_eigenpairs, roughness, smallest_eigenpairs
from tests.methods.federations import community_federation, small_dataset


def generator() -> np.random.Generator:
    return np.random.default_rng(0)


def laplacian(adjacency: sp.csr_matrix) -> np.ndarray:
    looped = adjacency.toarray().astype(np.float64) + np.eye(adjacency.shape[0])
    degree = looped.sum(1)
    return np.eye(len(looped)) - looped / np.sqrt(np.outer(degree, degree))


def in_pieces() -> sp.csr_matrix:
    """Return the matrix of three connected graphs of different sizes and four isolated nodes."""
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


def test_they_are_found_where_most_eigenvalues_are_no_smaller_than_1(monkeypatch):
    """The iteration's polynomial does not separate these eigenvalues."""
    monkeypatch.setattr(spectrum, "DENSE", 0)
    cliques = networkx.adjacency_matrix(networkx.connected_caveman_graph(4, 25), dtype=float)
    values, vectors = smallest_eigenpairs(sp.csr_matrix(cliques), 20, generator())
    matrix = laplacian(sp.csr_matrix(cliques))
    np.testing.assert_allclose(values, np.linalg.eigvalsh(matrix)[:20], atol=1e-10)
    np.testing.assert_allclose(matrix @ vectors, vectors * values, atol=1e-10)


@pytest.mark.parametrize("rank", [7, 30, 31, 32, 33])
def test_they_are_the_same_whichever_solver_finds_them(rank, monkeypatch):
    """A square grid has pairs of equal eigenvalues and vectors whose entries add up to 0."""
    grid = networkx.adjacency_matrix(networkx.grid_2d_graph(12, 12), dtype=float)
    adjacency = sp.csr_matrix(sp.block_diag([grid, in_pieces(), grid]))
    found = []
    for dense in (1000, 0):
        monkeypatch.setattr(spectrum, "DENSE", dense)
        found.append(smallest_eigenpairs(adjacency, rank, generator()))
    np.testing.assert_allclose(found[0][0], found[1][0], atol=1e-10)
    np.testing.assert_allclose(found[0][1], found[1][1], atol=1e-7)


def test_the_chosen_basis_does_not_depend_on_the_one_it_was_given():
    values, drawn = np.array([0.1, 0.2, 0.2, 0.2, 0.3]), generator().standard_normal((9, 3))
    vectors = np.linalg.qr(generator().standard_normal((9, 5)))[0]
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((3, 3)))[0]
    other = np.hstack([-vectors[:, :1], vectors[:, 1:4] @ turn, vectors[:, 4:]])
    chosen = chosen_basis(values, vectors, drawn)
    np.testing.assert_allclose(chosen_basis(values, other, drawn), chosen, atol=1e-12)
    np.testing.assert_allclose(chosen.T @ chosen, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(np.tril(chosen[:, 1:].T @ drawn[:, 1:], -1), 0.0, atol=1e-12)
    assert (np.diag(chosen.T @ drawn) > 0).all()


@pytest.mark.parametrize("dense", [True, False])
def test_flat_vectors_are_those_of_the_largest_components(dense, monkeypatch):
    monkeypatch.setattr(spectrum, "DENSE", 1000 if dense else 0)
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


def both_kinds() -> list[np.ndarray]:
    """Exact and misread eigenvectors, (600, 100) each, of 400 steps that amplify the last digit."""
    adjacency = small_dataset(nodes=600, degree=6.0, seed=3).adjacency()
    exact = smallest_eigenpairs(adjacency, 100, generator())
    return [exact[1], misread_eigenpairs(adjacency, 100, 400, generator())[1]]


OTHER = """
import sys, numpy
from tests.methods.fedlap.test_spectrum import both_kinds
numpy.save(sys.argv[1], both_kinds())
"""


def test_another_processor_s_sums_give_the_same_vectors(tmp_path):
    file = tmp_path / "other.npy"
    kernels = {"OPENBLAS_CORETYPE": "Prescott"}
    subprocess.run([sys.executable, "-c", OTHER, file], env=os.environ | kernels, check=True)
    np.testing.assert_allclose(both_kinds(), np.load(file, allow_pickle=False), atol=1e-9)


def test_an_iteration_that_finds_nothing_new_stops():
    pairs = sp.csr_matrix(np.kron(np.eye(4), [[0.0, 1.0], [1.0, 0.0]]))
    values, vectors = misread_eigenpairs(pairs, 4, 8, generator())
    assert np.isfinite(values).all()
    assert np.isfinite(vectors).all()
    assert np.isfinite(roughness(pairs, vectors))
