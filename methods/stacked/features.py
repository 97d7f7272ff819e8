"""Products of the clients' constant input features with a stacked weight."""

from copy import copy
from functools import cached_property, partial

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from fedsub.datasets.errors import UserError
from fedsub.datasets.graph import as_feature_tensor, as_scipy, csr_tensor
from fedsub.methods.stacked import kernels
from fedsub.methods.stacked.activation import Dropout
from fedsub.methods.stacked.segments import LinearMap, Segments, segment_product

DENSE_SHARE = 0.45
"""Share of non-zero entries above which the dense product is taken to be the faster one. At 0.35 both are
about equal (amazon_computers, FedAvg of 10 clients: 196 ms of training a round dense, 181 sparse)."""
DENSE_BYTES = 2**31
"""Size of dense features above which memory decides on their form, not speed."""
SHORTER_SHARE = 0.25
"""Share of non-zero entries above which the dense form is shorter than CSR and its transpose: an entry takes
4 bytes dense and 2 · 8 sparse."""
PRESENT_SHARE = 0.9
"""Share of (client, feature) pairs that occur, below which only their rows of a gradient are written."""
EPSILON = 1e-5
"""ε of layer normalisation."""


class GradientBuffers:
    """Buffers for gradients of the stacked weight, reused from step to step.

    Most rows of a (K·d, width) gradient belong to features that no node of the client has, and stay zero:
    allocating, clearing and filling them anew costs more than the product.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.kept: dict[int | None, tuple[Tensor, int]] = {}
        self.taken: int | None = None
        """Number of buffers returned since `Features.renew_gradients`; None before: none is kept."""

    def take(self, width: int, like: Tensor) -> Tensor:
        """Return a (rows, width) tensor, zero except for the rows that the last step's product wrote."""
        buffer, version = self.kept.get(self.taken, (None, 0))
        if buffer is None or buffer.shape[1] != width:
            buffer = like.new_zeros(self.rows, width)
        elif buffer._version != version:
            buffer.zero_()
        if self.taken is not None:
            self.kept[self.taken] = (buffer, buffer._version)
            self.taken += 1
        # A view: autograd keeps a gradient without copying it only if nothing else holds the tensor.
        return buffer.view(self.rows, width)


class Features:
    """X of all clients, (n, d): dense, or CSR with the columns of client k moved by k·d.

    In the sparse form the product with a weight (K, d, width), read as (K·d, width), is one SpMM. The product
    with the last evaluated weight is cached until the weight changes: if training goes on from the evaluated
    parameters, it is the largest part of a round that would be computed twice.
    """

    def __init__(self, features: Tensor, segments: Segments, device: torch.device | str = "cpu") -> None:
        """`features` is (n, d), dense or `torch.sparse_csr`, rows in the order of `segments`."""
        self.segments = segments
        self.width = int(features.shape[1])
        self.dense: Tensor | None = None
        if is_dense(features):
            self.dense = features.to_dense().to(device)
        else:
            matrix, client = as_scipy(features.cpu()), segments.client.cpu().numpy()
            columns = matrix.indices.astype(np.int64)
            columns += np.repeat(client, np.diff(matrix.indptr)) * self.width
            shape = segments.rows, segments.clients * self.width
            offset = sp.csr_matrix((matrix.data, columns, matrix.indptr), shape=shape)
            transpose = offset.T.tocsr()
            self.matrix = as_feature_tensor(offset).to(device)
            self.transpose = as_feature_tensor(transpose).to(device)
            self.gradients = GradientBuffers(transpose.shape[0])
            self.known = WeakTensorKeyDictionary()
            """Weight → its product, and the versions of both."""
            self.rows_present = np.flatnonzero(np.diff(transpose.indptr))
            """Features (offset by client) that some node of the client has."""
            self.starts_present = np.append(transpose.indptr[self.rows_present], transpose.indptr[-1])
            """Their row pointers in the transpose."""

    def times(self, weight: Tensor) -> Tensor:
        """X W with client k's rows times `weight[k]`; (K, d, width) → (n, width).

        Raises UserError if `weight` is not that of K clients, which compiled passes would not notice.
        """
        if len(weight) != self.segments.clients:
            has = f"a parameter for {len(weight)} clients, and inputs for {self.segments.clients}"
            raise UserError(f"the method has {has}: override initial_parameters and make_inputs alike")
        if self.dense is not None:
            return segment_product(self.dense, weight, self.segments)
        known, *versions = self.known.get(weight, (None, -1, -1))
        if known is not None and versions != [known._version, weight._version]:
            known = None
        # A known product is not computed again, but W still gets its gradient, Xᵀ g.
        multiply = partial(kernels.sparse_product, self.matrix) if known is None else lambda _: known.detach()
        product = LinearMap.apply(weight.flatten(0, 1), multiply, self._transposed_times)
        if weight.requires_grad and not torch.is_grad_enabled():
            self.known[weight] = product, product._version, weight._version
        return product

    def dropped(self, dropout: Dropout) -> "Features":
        """X with entries dropped at random, for one step; masks are drawn for these rows only."""
        drop, other = copy(dropout), copy(self)
        drop.among_rows = None
        if self.dense is not None:
            other.dense = drop(self.dense)
            return other
        values = drop(self.matrix.values())
        for name, kept in (("matrix", values), ("transpose", values[self.transposed])):
            whole = getattr(self, name)
            part = csr_tensor(whole.crow_indices(), whole.col_indices(), kept, tuple(whole.shape))
            setattr(other, name, part)
        other.known = WeakTensorKeyDictionary()
        return other

    @cached_property
    def transposed(self) -> Tensor:
        """(entries,) index in the sparse form of each entry of its transpose."""
        return self.matrix.col_indices().argsort(stable=True)

    def renew_gradients(self) -> None:
        """Declare that the gradients of earlier steps are no longer read: their memory may be reused."""
        if self.dense is None:
            self.gradients.taken = 0

    def _transposed_times(self, gradient: Tensor) -> Tensor:
        """Xᵀ g of the sparse form; (n, width) → (K·d, width)."""
        mostly_absent = len(self.rows_present) < PRESENT_SHARE * self.transpose.shape[0]
        if not (kernels.compiled(gradient) and mostly_absent):
            return kernels.sparse_product(self.transpose, gradient)
        out = self.gradients.take(gradient.shape[1], gradient)
        entries = self.transpose.col_indices().numpy(), self.transpose.values().numpy()
        present = self.rows_present, self.starts_present
        kernels.product_into_rows(*present, *entries, gradient.numpy(), out.numpy())
        return out


class CopiedFeatures(Features):
    """Rows of which many are copies, read by one model: each distinct row's product is computed once."""

    def __init__(self, distinct: Features, copied: Tensor) -> None:
        """Row i is row `copied[i]`, (n,), of `distinct`."""
        self.distinct, self.copied = distinct, copied

    def times(self, weight: Tensor) -> Tensor:
        """X W; (1, d, width) → (n, width)."""
        return self.distinct.times(weight).index_select(0, self.copied)

    def renew_gradients(self) -> None:
        self.distinct.renew_gradients()

    def among(self, rows: Tensor) -> "CopiedFeatures":
        """Features of some of the rows, (r,)."""
        return CopiedFeatures(self.distinct, self.copied[rows])


class DenseFeatures(Features):
    """X of all clients, (n, d), as it is: dense and differentiable whatever its entries."""

    def __init__(self, features: Tensor, segments: Segments, device: torch.device | str = "cpu") -> None:
        self.segments, self.dense = segments, features.to(device)


def is_dense(features: Tensor) -> bool:
    """Whether the dense form is the better one for these features, (n, d), dense or CSR."""
    entries = features.shape.numel()
    present = len(features.values()) if features.layout is torch.sparse_csr else int(features.count_nonzero())
    return present > (DENSE_SHARE if 4 * entries <= DENSE_BYTES else SHORTER_SHARE) * entries


class NormalisedFeatures(Features):
    """Layer-normalised X, (x − mean) / √(variance + ε) in each row, without losing sparsity.

    x̂ W = (x / σ) W − (mean / σ) (1ᵀ W): a sparse product and a term of rank one.
    Ba et al., Layer Normalization, 2016, eq. (4), before its gain and bias.
    """

    def __init__(self, features: Tensor, segments: Segments, device: torch.device | str = "cpu") -> None:
        if features.layout is torch.sparse_csr:
            # In single precision the difference below is wrong for rows whose mean exceeds their deviation.
            matrix = as_scipy(features).astype(np.float64)
            mean = np.asarray(matrix.mean(axis=1)).ravel()
            variance = np.asarray(matrix.multiply(matrix).mean(axis=1)).ravel() - mean**2
            deviation = np.sqrt(np.maximum(variance, 0) + EPSILON)
            scaled = as_feature_tensor(sp.diags(1 / deviation) @ matrix)
            shift = torch.from_numpy((mean / deviation).astype(np.float32))
        else:
            average = features.mean(dim=1, keepdim=True)
            sigma = (features.var(dim=1, unbiased=False, keepdim=True) + EPSILON).sqrt()
            scaled = features / sigma
            shift = (average / sigma).squeeze(1)
        super().__init__(scaled, segments, device)
        self.shift = shift.to(device)

    def times(self, weight: Tensor) -> Tensor:
        """X̂ W; (K, d, width) → (n, width)."""
        product = super().times(weight)
        return product - self.shift.unsqueeze(1) * weight.sum(dim=1).index_select(0, self.segments.client)


class SharedFeatures(Features):
    """One X (m, d) for all K clients: the rows of client k are k·m … (k+1)·m − 1."""

    def __init__(self, features: Tensor, clients: int, device: torch.device | str = "cpu") -> None:
        self.segments = Segments(torch.full((clients,), len(features)), device)
        self.shared = features.to(device)

    def times(self, weight: Tensor) -> Tensor:
        """X W_k for each client; (K, d, width) → (K·m, width)."""
        clients, _, width = weight.shape
        return torch.bmm(self.shared.expand(clients, -1, -1), weight).view(-1, width)
