"""FedCog's propagation of the input features, done once before training.

Bags of words stay sparse while that takes less memory; the two graphs are then applied as sparse
matrices. Denser features are propagated in blocks of columns, so that stand-ins of many inter-edges are
never in memory at full width.
"""

import time
from collections.abc import Callable, Iterable
from functools import cached_property, partial
from itertools import accumulate, pairwise
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.datasets.federation import Federation
from fedsub.datasets.graph import as_scipy
from fedsub.methods.core.channel import unformed
from fedsub.methods.fedcog.coupling import CoupledConvolution
from fedsub.methods.stacked.features import DENSE_SHARE
from fedsub.methods.stacked.parameters import Parameters, Weights
from fedsub.methods.stacked.propagation import message_matrix, normalised_edges, propagate

BLOCK_BYTES = 2**24
"""Memory of one block of columns, stand-ins included: small enough that the allocator reuses it."""
BLOCK_TERMS = 2**25
"""Products of non-zeros in one block of columns of a sparse propagation."""
DENSE_TERMS = 0.3
"""Propagation is dense above this number of products of non-zeros per entry of the internal step's result."""

Matrix: TypeAlias = sp.csr_matrix | Tensor


class FeaturePropagation:
    """Applies a coupled convolution on the CPU to all clients' features, (n, d); counts what clients send."""

    def __init__(self, convolution: CoupledConvolution) -> None:
        self.convolution = convolution
        self.rows = self.values = self.nonzero = 0
        """Numbers of rows, of all values, and of non-zero values sent so far."""

    def sent(self) -> dict[str, tuple[Tensor, ...]]:
        """Tensors sent in each form of `FedCogOptions.wire`; columns and row pointers have 32 bits."""
        nonzero = unformed(self.nonzero)
        places = unformed(self.nonzero, dtype=torch.int32), unformed(self.rows, dtype=torch.int32)
        return {"dense": (unformed(self.values),), "sparse": (nonzero, *places), "nonzero": (nonzero,)}

    def __call__(self, h: Matrix) -> Matrix:
        """One propagation; the result of a sparse input may be dense."""
        step = self.convolution
        self.rows += step.stand_ins
        self.values += step.stand_ins * h.shape[1]
        if not isinstance(h, Tensor):
            inner, _ = self._matrices
            terms = int(np.diff(h.indptr)[inner.indices].sum())
            if terms <= DENSE_TERMS * inner.shape[0] * h.shape[1]:
                return self._sparse(h, min(h.shape[1], max(1, -(-terms // BLOCK_TERMS))))
            h = as_dense(h)
        return _in_blocks(partial(step, on_travel=self._count), h, step.nodes + step.stand_ins)

    def _sparse(self, h: sp.csr_matrix, blocks: int) -> Matrix:
        """One propagation, in `blocks` blocks of columns."""
        inner, border = self._matrices
        columns = h if blocks == 1 else h.tocsc()
        parts = []
        for start, end in pairwise(np.linspace(0, h.shape[1], blocks + 1).astype(int)):
            half = (inner @ columns[:, start:end].tocsr()).tocsr()
            self.nonzero += int(half.indptr[-1] - half.indptr[self.convolution.nodes])
            parts.append((border @ half).tocsr())
        return as_shorter(parts[0] if blocks == 1 else sp.hstack(parts, format="csr"))

    @cached_property
    def _matrices(self) -> tuple[sp.csr_matrix, sp.csr_matrix]:
        """The internal step, (n + S, n), and the border step, (n, n + S)."""
        step = self.convolution
        inner = message_matrix(step.internal, step.internal_weight)
        return inner, message_matrix(step.border, step.border_weight)

    def _count(self, values: Tensor) -> Tensor:
        self.nonzero += int(torch.count_nonzero(values))
        return values


def plain_seconds(federation: Federation, features: Matrix, hops: int) -> dict[str, float]:
    """Times of `hops` propagations without coupling: `propagation_seconds_fedavg`, of `features` over the
    clients' graphs, and `…_central`, of all features over the whole graph."""
    whole, _ = federation.merged()
    cases = {"fedavg": (federation.graph, features), "central": (whole.graph, as_matrix(whole.features))}
    seconds = {}
    for name, (graph, h) in cases.items():
        looped, weight = normalised_edges(graph)
        step = partial(propagate, looped, weight=weight)
        start = time.perf_counter()
        matrix = None if isinstance(h, Tensor) else message_matrix(looped, weight)
        for _ in range(hops):
            h = _in_blocks(step, h, len(h)) if isinstance(h, Tensor) else as_shorter((matrix @ h).tocsr())
        seconds[f"propagation_seconds_{name}"] = time.perf_counter() - start
    return seconds


def _in_blocks(step: Callable[[Tensor], Tensor], h: Tensor, rows: int) -> Tensor:
    """Propagate some columns at a time, (n, d) → (n, d); `rows` is the height of the tallest matrix."""
    out = torch.empty_like(h)
    width = max(1, BLOCK_BYTES // (4 * rows))
    for start in range(0, h.shape[1], width):
        out[:, start : start + width] = step(h[:, start : start + width].contiguous())
    return out


def as_shorter(matrix: sp.csr_matrix) -> Matrix:
    """A sparse matrix unchanged, or dense if more than `DENSE_SHARE` of its entries are not zero."""
    rows, width = matrix.shape
    return matrix if matrix.nnz <= DENSE_SHARE * rows * width else as_dense(matrix)


def as_dense(matrix: Matrix) -> Tensor:
    """A sparse or dense matrix as a dense tensor."""
    return matrix if isinstance(matrix, Tensor) else torch.from_numpy(matrix.toarray())


def as_matrix(features: Tensor, normalise: bool = False) -> Matrix:
    """Features, (n, d), as a matrix: CSR becomes a scipy matrix, or dense if that is shorter.

    With `normalise`, rows are layer-normalised, as by `input_norm` on the whole graph, and a column of ones
    is appended for the bias; (n, d + 1).
    """
    matrix = as_shorter(as_scipy(features)) if features.layout is torch.sparse_csr else features
    if not normalise:
        return matrix
    dense = as_dense(matrix)
    return torch.cat([functional.layer_norm(dense, dense.shape[1:]), torch.ones(len(dense), 1)], dim=1)


def folded(parameters: Weights) -> Parameters:
    """Parameters of the network whose first weight W multiplies the propagated columns.

    With normalisation this weight is diag(gain) W and a row biasᵀ W for the propagated ones, since
    propagating the normalised features gives (Ŝ X̂ diag(g) + Ŝ 1 bᵀ) W. With gprgnn it is repeated for each
    hop, times γ_l, so that [X, ÂX, …] times it is (Σ_l γ_l Â^l X) W.
    """
    parameters = dict(parameters)
    name = "layers.0.weight" if "layers.0.weight" in parameters else "head.weight"
    if "norm.gain" in parameters:
        weight, gain, bias = (parameters.pop(part) for part in (name, "norm.gain", "norm.bias"))
        parameters[name] = torch.cat([gain.unsqueeze(2) * weight, bias.unsqueeze(1) @ weight], dim=1)
    if "hops" in parameters:
        weight, hops = parameters[name], parameters.pop("hops")
        spread = hops[:, :, None, None] * weight.unsqueeze(1)
        parameters[name] = spread.reshape(len(weight), -1, weight.shape[-1])
    return parameters


def mixed_hops(
    kind: str, features: Matrix, step: Callable[[Matrix], Matrix], hops: int, alpha: float
) -> Matrix:
    """H of the variants `sgc`, `appnp` and `gbp`, (n, d); for `gprgnn` [X, ÂX, …, Â^L X], (n, (L + 1) d)."""
    h = features
    if kind == "gprgnn":
        return _side_by_side(accumulate(range(hops), lambda h, _: step(h), initial=h), hops + 1)
    total = alpha * features if kind == "gbp" else features
    for hop in range(1, hops + 1):
        h = step(h)
        if kind == "appnp":
            h = _add((1 - alpha) * h, alpha * features)
        elif kind == "gbp":
            total = _add(total, alpha * (1 - alpha) ** hop * h)
    return total if kind == "gbp" else h


def _side_by_side(levels: Iterable[Matrix], number: int) -> Matrix:
    """[first, second, …] of `number` matrices, (n, d) each; dense ones are never all in memory twice."""
    sparse: list[sp.csr_matrix] = []
    wide: Tensor | None = None
    for place, level in enumerate(levels):
        if not isinstance(level, Tensor):
            sparse.append(level)
            continue
        if wide is None:
            # From the first dense matrix on, all are.
            wide = torch.empty(len(level), number, level.shape[1])
            for before, matrix in enumerate(sparse):
                wide[:, before] = as_dense(matrix)
        wide[:, place] = level
    return sp.hstack(sparse, format="csr") if wide is None else wide.flatten(1)


def _add(first: Matrix, second: Matrix) -> Matrix:
    """Sum of two matrices; dense if one of them is."""
    if isinstance(first, Tensor) or isinstance(second, Tensor):
        return as_dense(first) + as_dense(second)
    return first + second
