"""node2vec: steps are uniform, the gradient is the loss's, the vectors tell communities apart."""

from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
import torch.nn.functional as functional
from scipy.stats import chisquare

from fedsub.methods.structure import node2vec as module
from fedsub.methods.structure.node2vec import node2vec
from tests.methods.federations import as_matrix

pytestmark = pytest.mark.usefixtures("own_cache")


def paw_with_tail() -> sp.csr_matrix:
    """0–1–2 a triangle, 1 with the tails 3 and 4, 3–4 not joined, 5 alone."""
    graph = nx.Graph([(0, 1), (1, 2), (0, 2), (1, 3), (1, 4)])
    graph.add_node(5)
    return as_matrix(graph)


def test_each_walk_has_a_random_one_behind_it() -> None:
    graph = paw_with_tail()
    pointer, column = graph.indptr.astype(np.int64), graph.indices.astype(np.int64)
    chosen = np.array([3, 1, 5])
    walks, touched = np.empty((3, 4, 2, 6), dtype=np.int64), np.zeros(6, dtype=np.bool_)
    module._draw(pointer, column, chosen, np.random.default_rng(0), walks, touched)
    assert (walks[..., 0] == chosen[:, None, None]).all()
    steps = graph.toarray()
    steps[5, 5] = 1
    assert steps[walks[:, :, 0, :-1], walks[:, :, 0, 1:]].all()
    assert touched.tolist() == np.isin(np.arange(6), walks).tolist()

    many = np.empty((1, 4000, 2, 6), dtype=np.int64)
    module._draw(pointer, column, chosen[:1], np.random.default_rng(1), many, touched)
    assert chisquare(np.bincount(many[0, :, 1, 1:].ravel(), minlength=6)).pvalue > 1e-3
    # From 3 a walk goes to 1, and then to any of its neighbours.
    assert chisquare(np.bincount(many[0, :, 0, 2], minlength=6)[[0, 2, 3, 4]]).pvalue > 1e-3


@pytest.mark.parametrize(("length", "context", "width"), [(9, 4, 5), (20, 10, 32), (6, 6, 17), (5, 2, 3)])
def test_gradient_of_walks_equals_autograd(length: int, context: int, width: int) -> None:
    generator = np.random.default_rng(0)
    table = 0.3 * generator.standard_normal((7, width), dtype=np.float32)
    walks = generator.integers(0, 7, (2, 3, 2, length))
    gradient = np.zeros_like(table)
    module._add_gradient(walks, context, table, gradient)

    leaf = torch.tensor(table, requires_grad=True)
    losses = []
    for kind, label in enumerate((torch.tensor(1.0), torch.tensor(0.0))):
        rows = leaf[torch.from_numpy(walks[:, :, kind])]
        for start in range(length - context + 1):
            partners = rows[:, :, start + 1 : start + context]
            scores = (rows[:, :, start, None] * partners).sum(-1)
            loss = functional.binary_cross_entropy_with_logits(scores, label.expand_as(scores))
            losses.append(loss / (length - context + 1))
    torch.stack(losses).sum().backward()
    assert leaf.grad is not None
    torch.testing.assert_close(torch.from_numpy(gradient), leaf.grad, rtol=1e-4, atol=1e-5)


def test_adam_on_touched_rows_equals_torch_sparse_adam() -> None:
    generator = np.random.default_rng(0)
    table = generator.standard_normal((6, 4)).astype(np.float32)
    leaf = torch.nn.Parameter(torch.tensor(table))
    optimiser = torch.optim.SparseAdam([leaf], lr=0.01)
    gradient, mean, square = np.zeros((3, 6, 4), dtype=np.float32)
    for step in range(1, 5):
        rows = np.sort(generator.choice(6, 3, replace=False))
        values = generator.standard_normal((3, 4)).astype(np.float32)
        gradient[rows] = values
        touched = np.isin(np.arange(6), rows)
        module._adam(table, gradient, mean, square, touched, step, 0.01)
        leaf.grad = torch.sparse_coo_tensor(torch.from_numpy(rows)[None], torch.from_numpy(values), (6, 4))
        optimiser.step()
        assert not touched.any()
        assert not gradient.any()
    np.testing.assert_allclose(table, leaf.detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short walks, and a batch for every node."""
    for name, value in {"LENGTH": 10, "CONTEXT": 5, "WALKS": 5, "EPOCHS": 40, "BATCH": 1}.items():
        monkeypatch.setattr(module, name, value)


def two_cliques() -> sp.csr_matrix:
    graph = nx.disjoint_union(nx.complete_graph(8), nx.complete_graph(8))
    graph.add_edge(0, 8)
    return as_matrix(graph)


@pytest.mark.usefixtures("small")
def test_vectors_of_one_clique_are_alike() -> None:
    vectors = node2vec(two_cliques(), 16, seed=0)
    assert vectors.shape == (16, 16)
    assert vectors.dtype == np.float32
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosine = unit @ unit.T
    inside = np.r_[cosine[:8, :8][np.triu_indices(8, 1)], cosine[8:, 8:][np.triu_indices(8, 1)]]
    assert inside.mean() > cosine[:8, 8:].mean() + 0.5


@pytest.mark.usefixtures("small")
def test_a_seed_repeats_and_another_differs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = node2vec(two_cliques(), 16, seed=0)
    monkeypatch.setenv("FEDSUB_CACHE", str(tmp_path / "other"))
    assert np.array_equal(first, node2vec(two_cliques(), 16, seed=0))
    assert not np.allclose(first, node2vec(two_cliques(), 16, seed=1))
