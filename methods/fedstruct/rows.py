"""The rows of FedStruct's Ā, which clients compute together without revealing their edges.

Ā = Â^L with Â = D̃⁻¹(A + I), FedStruct (Aliakbari et al.), algorithm 3: for power l client k sends client i
the product B_ijk of its edges to i with its own columns j of the power before,
B_ijk = Ã_k^{[i]} [Â_j^{[k]}]^{l−1}; client i sums over k and divides by its degrees (eq. 45).
"""

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedsub.datasets.errors import UserError
from fedsub.datasets.federation import Federation
from fedsub.datasets.graph import as_feature_tensor, ones_at
from fedsub.methods.compiled import compile_pass
from fedsub.methods.core.channel import FLOAT, INDEX

_COARSE = 20
"""Number of low bits that the histogram ignores: 2^11 bins for non-negative float32."""


@compile_pass
def keep_largest(values: np.ndarray, rows: np.ndarray, keep: int) -> int:
    """Set all but the `keep` largest entries of values[rows] to zero; of equal entries the first are kept.

    `values` (m, width) are the bits of non-negative float32 as int32, which have the same order as the
    numbers. `keep` is at least 1. Returns the number of non-zero entries before.
    """
    histogram = np.zeros(1 << (31 - _COARSE), dtype=np.int64)
    for row in rows:
        for bits in values[row]:
            if bits > 0:
                histogram[bits >> _COARSE] += 1
    count = histogram.sum()
    if count <= keep:
        return count
    coarse, wanted = len(histogram) - 1, keep
    while histogram[coarse] < wanted:
        wanted -= histogram[coarse]
        coarse -= 1
    candidates = np.empty(histogram[coarse], dtype=np.int32)
    held = 0
    for row in rows:
        for bits in values[row]:
            if bits > 0 and bits >> _COARSE == coarse:
                candidates[held] = bits
                held += 1
    least = np.partition(candidates, held - wanted)[held - wanted]
    equal = wanted - (candidates > least).sum()
    if equal == (candidates == least).sum():
        for row in rows:
            entries = values[row]
            for column in range(len(entries)):
                entries[column] = entries[column] if entries[column] >= least else 0
        return count
    for row in rows:
        entries = values[row]
        for column in range(len(entries)):
            if entries[column] == least and equal > 0:
                equal -= 1
            elif entries[column] <= least:
                entries[column] = 0
    return count


@compile_pass
def spread_bits(pointer: np.ndarray, column: np.ndarray, bits: np.ndarray, out: np.ndarray) -> None:
    """out[v] = bitwise or of bits[u] over the columns u of row v of a CSR matrix; both (n, words) uint64."""
    for row in range(len(out)):
        total = out[row]
        total[:] = 0
        for entry in range(pointer[row], pointer[row + 1]):
            source = bits[column[entry]]
            for word in range(len(total)):
                total[word] |= source[word]


@compile_pass
def count_bits(bits: np.ndarray) -> int:
    """Number of set bits in an (n, words) uint64 array."""
    total = 0
    for row in bits:
        for word in row:
            while word:
                word &= word - np.uint64(1)
                total += 1
    return total


BLOCK = 512
"""Number of columns, or rows, that are processed at once."""
ROWS_LIMIT = 2.5
"""Memory in GiB up to which dense rows of Ā are stored."""


def with_loops(adjacency: sp.csr_matrix) -> sp.csr_matrix:
    """Ã = A + I, (n, n) float32."""
    return sp.csr_matrix(adjacency + sp.identity(adjacency.shape[0], dtype=np.float32, format="csr"))


class Exchange:
    """The products in one step of algorithm 3, over P pairs of a receiving node and a sending client."""

    def __init__(self, adjacency: sp.csr_matrix, client: np.ndarray) -> None:
        """`adjacency` is (n, n) 0/1 without diagonal, `client`, (n,), the owner of each node."""
        looped = with_loops(adjacency).tocoo()
        nodes, clients = adjacency.shape[0], int(client.max()) + 1
        key = looped.row.astype(np.int64) * clients + client[looped.col]
        pairs, pair = np.unique(key, return_inverse=True)
        self.receiver, self.sender = divmod(pairs, clients)
        """(P,) the receiving nodes, and the sending clients."""
        self.send = ones_at(pair, looped.col, (len(pairs), nodes))
        """(P, n): row (v, k) has Ã_vu for client k's nodes u; send @ M are non-empty rows of all B_i·k."""
        degree = np.bincount(looped.row).astype(np.float32)
        entries = (self.receiver, np.arange(len(pairs)))
        self.receive = sp.csr_matrix((1 / degree[self.receiver], entries), shape=(nodes, len(pairs)))
        """(n, P): sums a node's rows over the senders and divides by its degree."""
        self.foreign = np.flatnonzero(client[self.receiver] != self.sender)
        """Pairs whose sender is another client, ascending: the rows sent over the network."""


def _gibibytes(rows: np.ndarray, client: np.ndarray) -> float:
    """Memory of dense rows of Ā."""
    return FLOAT * len(rows) * len(client) / 2**30


def unpruned_rows(
    adjacency: sp.csr_matrix, client: np.ndarray, rows: np.ndarray, hops: int
) -> tuple[Tensor | None, int]:
    """Algorithm 3: rows `rows` of Ā = Â^hops, (len(rows), n) float32, or None above ROWS_LIMIT, and the bytes
    sent between clients.

    All clients step together on one block of columns, so that temporary memory is (pairs, BLOCK) products.
    """
    exchange, nodes = Exchange(adjacency, client), adjacency.shape[0]
    # A non-empty row of B_i·k is sent densely, n values; every client knows the first power.
    sent_bytes = (hops - 1) * len(exchange.foreign) * nodes * FLOAT
    if _gibibytes(rows, client) > ROWS_LIMIT:
        return None, sent_bytes
    send, receive = as_feature_tensor(exchange.send), as_feature_tensor(exchange.receive)
    chosen = torch.from_numpy(rows)
    found = torch.empty(len(rows), nodes)
    for start in range(0, nodes, BLOCK):
        width = min(BLOCK, nodes - start)
        power = torch.zeros(nodes, width)
        power[start : start + width].fill_diagonal_(1)
        for _ in range(hops):
            power = torch.mm(receive, torch.mm(send, power))
        found[:, start : start + width] = power[chosen]
    return found, sent_bytes


def pruned_blocks(
    adjacency: sp.csr_matrix, client: np.ndarray, rows: np.ndarray, hops: int, keep: int
) -> tuple[Tensor, int]:
    """Algorithm 3 in which client k sends client i the `keep` · n_i largest entries of every B_ijk.

    FedStruct, appendix L.2.1, prunes in every step that communicates: the first power and a client's own
    products stay whole. Of equal entries the first are kept. Returns rows `rows` of the pruned Ā, (len(rows),
    n) float32, and the bytes sent between clients. The columns of one owner j do not depend on others', so
    the loop is over owners. Raises UserError if the rows take more than ROWS_LIMIT.
    """
    if (size := _gibibytes(rows, client)) > ROWS_LIMIT:
        raise UserError(f"FedStruct's rows take {size:.1f} GiB, more than {ROWS_LIMIT}: set pruning_of=rows")
    exchange = Exchange(adjacency, client)
    send, receive = as_feature_tensor(exchange.send), as_feature_tensor(exchange.receive)
    sizes, chosen_rows = np.bincount(client), torch.from_numpy(rows)
    # The pairs that are the rows of each foreign B_i·k, and the number of entries that each B_ijk keeps.
    block_of = client[exchange.receiver] * len(sizes) + exchange.sender
    blocks = [
        (np.flatnonzero(block_of == block), keep * int(sizes[block // len(sizes)]))
        for block in np.unique(block_of[exchange.foreign])
    ]
    found = torch.empty(len(rows), len(client))
    # Two buffers serve all owners, since these are the largest tensors of a run.
    powers, all_sent = (torch.zeros(count * int(sizes.max())) for count in (len(client), send.shape[0]))
    sent_bytes = 0
    for j in range(len(sizes)):
        own = torch.from_numpy(np.flatnonzero(client == j))
        power = powers[: len(client) * len(own)].view(-1, len(own)).zero_()
        power[own, torch.arange(len(own))] = 1
        sent = all_sent[: send.shape[0] * len(own)].view(-1, len(own))
        for step in range(hops):
            sent.addmm_(send, power, beta=0)
            for pairs, limit in blocks if step else ():
                present = keep_largest(sent.numpy().view(np.int32), pairs, limit)
                # Entries with their indices, or all values if that is shorter.
                sent_bytes += min(min(present, limit) * (FLOAT + INDEX), len(pairs) * len(own) * FLOAT)
            power.addmm_(receive, sent, beta=0)
        for start in range(0, len(rows), BLOCK):
            # A client can own most columns, and a copy of all of them would take too much memory.
            block = slice(start, start + BLOCK)
            found[block, own] = power[chosen_rows[block]]
    return found, sent_bytes


def pruned_rows(
    adjacency: sp.csr_matrix, client: np.ndarray, hops: int, keep: int
) -> tuple[sp.csr_matrix, int]:
    """Algorithm 3 in which every row sent and every row stored keeps its `keep` largest entries.

    This is the other reading of "the largest entries": of a row over all columns. Returns the pruned Ā, (n,
    n) float32 with at most `keep` entries a row, and the bytes sent between clients.
    """
    exchange = Exchange(adjacency, client)
    power = sp.identity(adjacency.shape[0], dtype=np.float32, format="csr")
    sent_bytes = 0
    for step in range(hops):
        sent = largest_per_row(exchange.send @ power, keep)
        if step:
            sent_bytes += int(np.diff(sent.indptr)[exchange.foreign].sum()) * (FLOAT + INDEX)
        power = largest_per_row(exchange.receive @ sent, keep)
    return power, sent_bytes


def largest_per_row(matrix: sp.csr_matrix, keep: int) -> sp.csr_matrix:
    """The `keep` largest entries of every row; of equal entries those in the first columns."""
    counts = np.diff(matrix.indptr)
    if counts.max() <= keep:
        return matrix
    row = np.repeat(np.arange(len(counts)), counts)
    order = np.lexsort((matrix.indices, -matrix.data, row))
    rank = np.arange(len(row)) - np.repeat(matrix.indptr[:-1], counts)
    kept = order[rank < keep]
    pointer = np.concatenate([[0], np.minimum(counts, keep).cumsum()])
    return sp.csr_matrix((matrix.data[kept], matrix.indices[kept], pointer), shape=matrix.shape)


def reachable_pairs(adjacency: sp.csr_matrix, rows: np.ndarray, hops: int) -> int:
    """Number of non-zero entries in Ā's rows `rows`: pairs of nodes at most `hops` edges apart."""
    looped = with_loops(adjacency)
    words = -(-len(rows) // 64)
    column = np.arange(len(rows))
    near = np.zeros((adjacency.shape[0], words), dtype=np.uint64)
    near[rows, column // 64] = np.uint64(1) << (column % 64).astype(np.uint64)
    after = np.empty_like(near)
    for _ in range(hops):
        spread_bits(looped.indptr, looped.indices, near, after)
        near, after = after, near
        if np.array_equal(near, after):
            break
    return int(count_bits(near))


def behind_last_edge(federation: Federation) -> Tensor:
    """Nodes after their client's last node with an edge in the client's own graph, (n,) bool."""
    connected = (federation.graph.in_degrees() > 0).nonzero().squeeze(1)
    last = torch.full((federation.clients,), -1)
    last.scatter_reduce_(0, federation.client[connected], connected, "amax")
    return torch.arange(federation.nodes) > last[federation.client]
