"""Algorithm 3: the rows that clients build together are those of the global Ā."""

import numpy as np
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsub.methods.fedstruct.features import hop_weights
from fedsub.methods.fedstruct.rows import combined_rows, pruned_blocks, pruned_rows
from tests.methods.federations import random_graph


def global_rows(adjacency: sp.csr_matrix, weights: np.ndarray) -> np.ndarray:
    """Return Ā = Σ β_l (D̃⁻¹(A + I))^l of the whole graph, computed directly."""
    looped = adjacency.toarray().astype(np.float64) + np.eye(adjacency.shape[0])
    step = looped / looped.sum(axis=1, keepdims=True)
    return sum(
        weight * np.linalg.matrix_power(step, hop)
        for hop, weight in enumerate(weights.astype(float), start=1)
    )


@settings(max_examples=25)
@given(st.integers(2, 25), st.floats(0, 0.6), st.integers(1, 6), st.integers(1, 5), st.integers(0, 10**6))
def test_rows_equal_the_global_ones_on_any_graph(
    nodes: int, share: float, clients: int, hops: int, seed: int
) -> None:
    adjacency = random_graph(nodes, share, seed)
    client = np.random.default_rng(seed).integers(0, clients, nodes)
    weights = hop_weights("last", hops)
    built = combined_rows(adjacency, client, np.arange(nodes), weights).numpy()
    np.testing.assert_allclose(built, global_rows(adjacency, weights), atol=1e-5)


def test_columns_beyond_one_block_are_built_too() -> None:
    adjacency = random_graph(1100, 0.002, 0)
    weights = hop_weights("last", 3)
    built = combined_rows(adjacency, np.arange(1100) % 3, np.arange(0, 1100, 50), weights)
    np.testing.assert_allclose(built, global_rows(adjacency, weights)[::50], atol=1e-6)


def test_pruning_nothing_changes_nothing() -> None:
    adjacency = random_graph(30, 0.1, 2)
    client, weights = np.arange(30) % 3, hop_weights("all", 4)
    kept, _ = pruned_rows(adjacency, client, weights, keep=30)
    np.testing.assert_allclose(kept.toarray(), global_rows(adjacency, weights), atol=1e-6)
    rows = np.array([4, 0, 29])
    blocks, _ = pruned_blocks(adjacency, client, rows, weights, keep=10)
    np.testing.assert_allclose(blocks, global_rows(adjacency, weights)[rows], atol=1e-6)
