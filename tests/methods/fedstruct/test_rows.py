"""Algorithm 3: the rows that clients build together are those of the global Ā."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsub.methods.fedstruct.kernels import keep_largest
from fedsub.methods.fedstruct.powers import hop_weights
from fedsub.methods.fedstruct.rows import (
    Exchange,
    acquisition_bytes,
    combined_rows,
    largest_per_row,
    pruned_blocks,
    pruned_rows,
    reachable_pairs,
)


def random_graph(nodes: int, share: float, seed: int) -> sp.csr_matrix:
    """A symmetric 0/1 matrix."""
    upper = np.triu(np.random.default_rng(seed).random((nodes, nodes)) < share, 1)
    return sp.csr_matrix((upper | upper.T).astype(np.float32))


def global_rows(adjacency: sp.csr_matrix, weights: np.ndarray) -> np.ndarray:
    """Ā = Σ β_l (D̃⁻¹(A + I))^l, in the open."""
    looped = adjacency.toarray().astype(np.float64) + np.eye(adjacency.shape[0])
    step = looped / looped.sum(axis=1, keepdims=True)
    return sum(
        weight * np.linalg.matrix_power(step, hop)
        for hop, weight in enumerate(weights.astype(float), start=1)
    )


def algorithm_3(adjacency: sp.csr_matrix, client: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The paper's loop, block by block, B_ijk and all."""
    looped = adjacency.toarray().astype(np.float64) + np.eye(adjacency.shape[0])
    degree = looped.sum(axis=1)
    own = [np.flatnonzero(client == k) for k in range(client.max() + 1)]
    clients = range(len(own))
    power = {
        (i, j): looped[np.ix_(own[i], own[j])] / degree[own[i]][:, None] for i in clients for j in clients
    }
    combined = {key: weights[0] * block for key, block in power.items()}
    for weight in weights[1:]:
        sent = {
            (i, j, k): looped[np.ix_(own[i], own[k])] @ power[k, j]
            for i in clients
            for j in clients
            for k in clients
        }
        power = {
            (i, j): sum(sent[i, j, k] for k in clients) / degree[own[i]][:, None]
            for i in clients
            for j in clients
        }
        combined = {key: combined[key] + weight * power[key] for key in power}
    rows = np.zeros((len(client), len(client)))
    for (i, j), block in combined.items():
        rows[np.ix_(own[i], own[j])] = block
    return rows


@pytest.mark.parametrize("kind", ["last", "all"])
@pytest.mark.parametrize("clients", [1, 2, 5])
@pytest.mark.parametrize("hops", [1, 2, 7])
def test_rows_equal_the_global_ones_and_the_papers_loop(kind: str, clients: int, hops: int) -> None:
    adjacency = random_graph(40, 0.06, hops)
    client = np.random.default_rng(clients).permutation(np.arange(40) % clients)
    weights = hop_weights(kind, hops)
    rows = np.array([3, 0, 17, 39])
    built = combined_rows(adjacency, client, rows, weights).numpy()
    np.testing.assert_allclose(built, global_rows(adjacency, weights)[rows], atol=1e-6)
    np.testing.assert_allclose(built, algorithm_3(adjacency, client, weights)[rows], atol=1e-6)


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


def test_pruned_blocks_keep_what_appendix_l21_keeps_and_count_it() -> None:
    """The paper's loop with the p·n_i largest entries of every B_ijk that travels; weights without ties."""
    adjacency = random_graph(30, 0.2, 5)
    noise = np.random.default_rng(0).uniform(0.5, 1.5, adjacency.nnz).astype(np.float32)
    adjacency.data *= noise
    client, keep = np.array([0] * 6 + [1] * 10 + [2] * 14), 2
    weights = hop_weights("all", 4)
    looped = adjacency.toarray().astype(np.float64) + np.eye(30)
    degree = (looped > 0).sum(axis=1)
    power = looped / degree[:, None]
    expected, bytes_sent = weights[0] * power, 0
    for weight in weights[1:]:
        after = np.zeros_like(power)
        for i, j, k in itertools.product(range(3), repeat=3):
            block = looped[np.ix_(client == i, client == k)] @ power[np.ix_(client == k, client == j)]
            limit = keep * int((client == i).sum())
            if k != i:
                if (block > 0).sum() > limit:
                    block[block < np.sort(block, axis=None)[-limit]] = 0
                filled = looped[np.ix_(client == i, client == k)].any(axis=1).sum()
                bytes_sent += min(8 * int((block > 0).sum()), 4 * int(filled) * int((client == j).sum()))
            after[np.ix_(client == i, client == j)] += block
        power = after / degree[:, None]
        expected = expected + weight * power
    rows = np.array([7, 0, 29, 15])
    built, sent = pruned_blocks(adjacency, client, rows, weights, keep)
    np.testing.assert_allclose(built, expected[rows], atol=1e-6)
    assert not np.allclose(built, global_rows(adjacency, weights)[rows], atol=1e-2)
    assert sent == bytes_sent


def test_pruned_rows_keep_the_largest_entries_of_what_is_sent_and_of_what_is_stored() -> None:
    adjacency = random_graph(30, 0.15, 4)
    client, hops, keep = np.arange(30) % 3, 4, 3
    looped = adjacency.toarray() + np.eye(30)
    power = np.eye(30)
    for _ in range(hops):
        total = np.zeros((30, 30))
        for k in range(3):
            total += largest(np.where(client == k, looped, 0) @ power, keep)
        power = largest(total / looped.sum(axis=1, keepdims=True), keep)
    kept = pruned_rows(adjacency, client, hop_weights("last", hops), keep)[0].toarray()
    np.testing.assert_allclose(np.sort(kept, axis=1), np.sort(power, axis=1), atol=1e-6)
    assert (kept > 0).sum(axis=1).max() <= keep


def largest(matrix: np.ndarray, keep: int) -> np.ndarray:
    """All but the `keep` largest entries of every row set to zero; the first of equals stay.

    Rounded, so that sums in another order tie alike.
    """
    order = np.argsort(-np.round(matrix, 7), axis=1, kind="stable")
    kept = np.zeros_like(matrix)
    np.put_along_axis(kept, order[:, :keep], np.take_along_axis(matrix, order[:, :keep], axis=1), axis=1)
    return kept


def test_largest_per_row_keeps_whole_short_rows_and_the_first_of_equals() -> None:
    matrix = sp.csr_matrix(np.array([[0.2, 0.5, 0.5, 0.5], [0.0, 0.1, 0.0, 0.0], [0.0] * 4]))
    expected = np.array([[0, 0.5, 0.5, 0], [0, 0.1, 0, 0], [0, 0, 0, 0]])
    np.testing.assert_allclose(largest_per_row(matrix, 2).toarray(), expected)


def test_bytes_are_the_rows_that_cross_between_clients() -> None:
    path = sp.csr_matrix(sp.diags([1.0, 1.0], [-1, 1], shape=(4, 4), dtype=np.float32))
    client = np.array([0, 0, 1, 1])
    assert len(Exchange.of(path, client).foreign_rows(client)) == 2
    assert acquisition_bytes(path, client, hops=3) == 2 * 2 * 4 * 4
    assert acquisition_bytes(path, client, hops=1) == 0
    assert acquisition_bytes(path, np.zeros(4, dtype=np.int64), hops=9) == 0
    # Two rows in each of two steps, cut to one entry; uncut they would hold two, then three.
    assert pruned_rows(path, client, hop_weights("last", 3), 1)[1] == 2 * 2 * 8
    # Four blocks of one row and two columns: one entry with its place, or both without.
    assert pruned_blocks(path, client, np.arange(4), hop_weights("last", 2), 1)[1] == 4 * 8
    # A row with more room than entries sends the entries that there are.
    assert pruned_rows(path, client, hop_weights("last", 2), 4)[1] == 2 * 3 * 8


def test_reachable_pairs_are_the_entries_of_the_rows() -> None:
    adjacency = random_graph(40, 0.05, 9)
    rows = np.arange(0, 40, 3)
    for hops in (1, 2, 5, 30):
        entries = global_rows(adjacency, hop_weights("last", hops))[rows] > 0
        assert reachable_pairs(adjacency, rows, hops) == entries.sum()


def test_hop_weights_sum_to_one() -> None:
    assert hop_weights("last", 3).tolist() == [0, 0, 1]
    assert hop_weights("all", 4).tolist() == [0.25] * 4


@pytest.mark.parametrize("keep", [1, 3, 4, 5, 9, 40])
def test_keep_largest_keeps_the_first_of_equals(keep: int) -> None:
    values = np.random.default_rng(keep).integers(0, 4, (6, 7)).astype(np.float32) / 4
    rows = np.array([1, 2, 5])
    flat = values[rows].ravel()
    expected = np.zeros_like(flat)
    chosen = np.argsort(-flat, kind="stable")[:keep]
    expected[chosen] = flat[chosen]
    before = values.copy()
    assert keep_largest(values.view(np.int32), rows, keep) == np.count_nonzero(flat)
    np.testing.assert_array_equal(values[rows].ravel(), expected)
    np.testing.assert_array_equal(values[[0, 3, 4]], before[[0, 3, 4]])
