"""Nearest true features of generated neighbours, and the gradients of the distances to them.

FedSage+ (Zhang et al., NeurIPS 2021, section 4) has two searches: at the own client among the hidden
neighbours of the node that a neighbour was generated for, and among all nodes of every other client.
"""

import torch
from torch import Tensor

from fedsub.datasets.graph import csr_tensor
from fedsub.methods.stacked.features import DENSE_BYTES
from fedsub.methods.stacked.kernels import sparse_product
from fedsub.methods.stacked.segments import large_product, ranks

DENSE_SHARE = 0.1
"""Features with a larger share of non-zero entries are searched by dense products (measured: at 0.35 they
are 3.4 times as fast as sparse ones)."""
CHUNK_ENTRIES = 2**24
"""Size of the largest temporary array of a search, in entries (64 MiB)."""


def nearest_hidden(
    generated: Tensor, first: Tensor, count: Tensor, neighbour: Tensor, features: Tensor
) -> Tensor:
    """The candidate nearest to each generated row in Euclidean distance, (S,) rows of `features`.

    `generated` is (S, d). Candidates of row s are `neighbour[first[s] : first[s] + count[s]]`, rows of
    `features`, (H, d) dense; `count`, (S,), is at least 1. Of equally near candidates the first is taken.
    """
    rows = len(generated)
    row = torch.repeat_interleave(torch.arange(rows, device=count.device), count)
    candidate = neighbour[first[row] + ranks(count)]
    step = max(1, CHUNK_ENTRIES // max(1, generated.shape[1]))
    pairs = zip(row.split(step), candidate.split(step), strict=True)
    distance = torch.cat([(generated[s] - features[u]).square().sum(dim=1) for s, u in pairs])
    # If training diverges, all distances are NaN, and none would equal the least.
    distance = distance.nan_to_num(torch.inf)
    least = distance.new_full((rows,), torch.inf).scatter_reduce(0, row, distance, "amin")
    nearest = (distance == least[row]).nonzero().squeeze(1)
    return candidate[nearest[torch.searchsorted(row[nearest], torch.arange(rows, device=row.device))]]


class OtherClients:
    """Searches the true features of all n nodes on behalf of the other clients."""

    def __init__(self, features: Tensor, client: Tensor, clients: int) -> None:
        """`features` (n, d), dense or CSR, and `client` (n,) are on one device."""
        entries = features.shape[0] * features.shape[1]
        sparse = features.layout is torch.sparse_csr
        if sparse and len(features.values()) > DENSE_SHARE * entries and 4 * entries <= DENSE_BYTES:
            features, sparse = features.to_dense(), False
        self.features, self.sparse = features, sparse
        self.client, self.clients = client, clients
        # ‖x_u‖², (n,).
        if sparse:
            count, squares = features.crow_indices().long().diff(), features.values().square()
            row = torch.repeat_interleave(torch.arange(len(count), device=count.device), count)
            self.norm = squares.new_zeros(len(count)).index_add(0, row, squares)
        else:
            self.norm = features.square().sum(dim=1)

    def gradient(self, generated: Tensor, client: Tensor) -> Tensor:
        """Sum of the gradients that the other clients return for each generated row, (S, d).

        Σ_{j ≠ client(s)} ∂/∂x̂_s min_{u ∈ V_j} ‖x̂_s − x_u‖² = 2 Σ_j (x̂_s − x_u(s, j)). `generated` is
        (S, d), `client`, (S,), the rows' owners. The mean is taken over equally near nodes of one client.
        """
        step = max(1, CHUNK_ENTRIES // max(1, len(self.norm)))
        chunks = zip(generated.split(step), client.split(step), strict=True)
        return torch.cat([self._gradient(rows, owner) for rows, owner in chunks])

    def _gradient(self, generated: Tensor, owner: Tensor) -> Tensor:
        rows = len(generated)
        # The search's arrays are freed before the products.
        node, row, weight = self._nearest(generated, owner)
        ascending, order = row.sort(stable=True)
        pointer = torch.searchsorted(ascending, torch.arange(rows + 1, device=row.device), out_int32=True)
        chosen = csr_tensor(pointer, node[order].int(), weight[order], (rows, len(self.norm)))
        if self.sparse:
            target = torch.sparse.mm(chosen, self.features).to_dense()
        else:
            target = sparse_product(chosen, self.features)
        others = weight.new_zeros(rows).index_add(0, row, weight)
        return 2 * (others.unsqueeze(1) * generated - target)

    def _nearest(self, generated: Tensor, owner: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Node, generated row and weight of each minimum; every row has one minimum at each other client."""
        scaled = (-2 * generated).T.contiguous()
        score = sparse_product(self.features, scaled) if self.sparse else large_product(self.features, scaled)
        score += self.norm.unsqueeze(1)
        rows = len(generated)
        least = score.new_full((self.clients, rows), torch.inf)
        least.scatter_reduce_(0, self.client.unsqueeze(1).expand_as(score), score, "amin")
        node, row = (score == least.index_select(0, self.client)).nonzero(as_tuple=True)
        foreign = self.client[node] != owner[row]
        node, row = node[foreign], row[foreign]
        cell = self.client[node] * rows + row
        return node, row, 1 / torch.bincount(cell, minlength=self.clients * rows)[cell].float()
