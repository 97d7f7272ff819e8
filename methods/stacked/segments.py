"""K segments of consecutive rows, one for each client, and products that treat each segment by itself."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.datasets.graph import csr_tensor
from fedsub.methods.stacked import kernels

_ALIGNMENT = 4
"""grouped_mm wants rows of a multiple of 16 bytes: four float32."""
_NARROW = 12
"""Largest number of outputs for which numba's product replaces torch's grouped one. With its gradient at a
fifth of the nodes, it is 3 times as fast at ten outputs, 5 times at seven (`tests/performance`)."""
_LARGE = 8e6
"""Floating-point operations per client from which oneDNN is called for each client: 250 rows of 128 by 128
take 0.6 of the time, their gradient 0.8; half as many rows about the same (`tests/performance`)."""


class Segments:
    """Rows 0…n−1 in K consecutive segments, one for each client."""

    def __init__(self, sizes: Tensor, device: torch.device | str = "cpu") -> None:
        self.sizes = sizes.to("cpu", torch.int64)
        """(K,) int64 on the CPU, the number of rows of each client."""
        self.clients = len(sizes)
        self.rows = int(self.sizes.sum())
        self.longest = int(self.sizes.max())
        """Number of rows of the largest client, m."""
        self.client = torch.repeat_interleave(torch.arange(self.clients), self.sizes).to(device)
        """(n,) int64, the client of each row."""
        self.client_array = self.client.cpu().numpy().astype(np.int32)
        """(n,) int32 array of the same, for numba's kernels."""
        self.ends = self.sizes.cumsum(0).to(device, torch.int32)
        ones = torch.ones(self.rows, device=device)
        pointer = torch.cat([torch.zeros(1, dtype=torch.int32, device=device), self.ends])
        column = torch.arange(self.rows, dtype=torch.int32, device=device)
        self.members = csr_tensor(pointer, column, ones, (self.clients, self.rows))
        """(K, n) indicator matrix: its product with (n, width) sums the rows of each client."""

    def sum(self, h: Tensor) -> Tensor:
        """Sum over the rows of each client, (n, width) → (K, width); differentiable."""
        return LinearMap.apply(h, self._add, self._repeat)

    def spread(self, each: Tensor) -> Tensor:
        """Repeat each client's entry for all its rows, (K, width) → (n, width); differentiable."""
        return LinearMap.apply(each, self._repeat, self._add)

    def _add(self, h: Tensor) -> Tensor:
        return kernels.sparse_product(self.members, h)

    def _repeat(self, each: Tensor) -> Tensor:
        return each.index_select(0, self.client)

    def mean(self, h: Tensor) -> Tensor:
        """Mean over the rows of each client, (n, width) → (K, width); zero for a client without rows."""
        return self.sum(h) / self.sizes.clamp(min=1).to(h.device).unsqueeze(1)

    def among(self, rows: Tensor) -> "Segments":
        """The segments of some of the rows, (r,) ascending."""
        client = self.client.cpu()[rows.cpu()]
        return Segments(torch.bincount(client, minlength=self.clients), self.client.device)

    # One padded batch, in which every client has as many rows as the largest, m.

    @cached_property
    def place(self) -> Tensor:
        """(n,) index of each row in the batch, flattened client by client."""
        return self.client * self.longest + ranks(self.sizes).to(self.client.device)

    @cached_property
    def filled(self) -> Tensor:
        """(K, m) bool, True where the batch holds a row."""
        device = self.client.device
        return torch.arange(self.longest, device=device) < self.sizes.to(device).unsqueeze(1)

    def pad(self, h: Tensor) -> Tensor:
        """Make the batch, (n, width) → (K, m, width), with zeros where a client has no row."""
        empty = h.new_zeros(self.clients * self.longest, h.shape[1])
        return empty.index_copy(0, self.place, h).view(self.clients, self.longest, h.shape[1])

    def unpad(self, batch: Tensor) -> Tensor:
        """Take the rows out of the batch, (K, m, width) → (n, width)."""
        return batch.flatten(0, 1).index_select(0, self.place)


def ranks(sizes: Tensor) -> Tensor:
    """Index of each row within its segment, for segments of `sizes`, (K,); (Σ sizes,) int64."""
    starts = sizes.cumsum(0) - sizes
    return torch.arange(int(sizes.sum()), device=sizes.device) - starts.repeat_interleave(sizes)


class LinearMap(torch.autograd.Function):
    """`product(h)`, linear in h; its gradient is the `adjoint` of the gradient it receives."""

    @staticmethod
    def forward(
        ctx: Any, h: Tensor, product: Callable[[Tensor], Tensor], adjoint: Callable[[Tensor], Tensor]
    ) -> Tensor:
        ctx.adjoint = adjoint
        return product(h)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return ctx.adjoint(gradient.contiguous()), None, None


def aligned(width: int) -> int:
    """The next width that the grouped product takes without padding."""
    return -(-width // _ALIGNMENT) * _ALIGNMENT


def _padded(h: Tensor, width: int, rows: int) -> Tensor:
    """Pad the last axis with zeros up to `width`, the one before it up to `rows`."""
    missing = 0, width - h.shape[-1], 0, rows - h.shape[-2]
    return functional.pad(h, missing) if any(missing) else h


def _is_large(inner: int, outer: int, segments: Segments) -> bool:
    """Whether a call per client costs nothing beside its product; oneDNN has no call for all clients."""
    return min(inner, outer) > _NARROW and 2 * segments.rows * inner * outer >= _LARGE * segments.clients


def large_product(a: Tensor, b: Tensor) -> Tensor:
    """Return a @ b, by oneDNN for float32 on the CPU if this torch has it. On an AMD processor this takes 0.5
    to 0.6 of the time of MKL's product, which is `torch.mm` (`tests/performance`)."""
    linear = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
    if linear is None or not a.numel() or not kernels.compiled(a):
        return a @ b
    return linear(a, b.t(), None, "none", [], "")


def _rows_product(h: Tensor, weight: Tensor, segments: Segments) -> Tensor:
    """h[i] W[client(i)], (n, in) and (K, in, out) → (n, out)."""
    if not _is_large(weight.shape[1], weight.shape[2], segments):
        return functional.grouped_mm(h, weight, offs=segments.ends)
    if segments.clients == 1:
        return large_product(h, weight[0])
    runs = h.split(segments.sizes.tolist())
    return torch.cat([large_product(rows, own) for rows, own in zip(runs, weight, strict=True)])


def _weights_product(h: Tensor, gradient: Tensor, segments: Segments) -> Tensor:
    """h(k)ᵀ G(k) of every client k, (n, in) and (n, out) → (K, in, out)."""
    if not _is_large(h.shape[1], gradient.shape[1], segments):
        return functional.grouped_mm(h.t(), gradient, offs=segments.ends)
    sizes = segments.sizes.tolist()
    runs = zip(h.split(sizes), gradient.split(sizes), strict=True)
    return torch.stack([large_product(rows.t(), own) for rows, own in runs])


class _SegmentProduct(torch.autograd.Function):
    """out[i] = h[i] W[client(i)], for aligned widths, by torch's grouped product, one call that loops over
    clients in C++; large products by oneDNN."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, segments: Segments) -> Tensor:
        ctx.segments = segments
        h = h.contiguous()
        ctx.save_for_backward(h, weight)
        return _rows_product(h, weight, segments)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        h, weight = ctx.saved_tensors
        gradient = gradient.contiguous()
        to_h = to_weight = None
        if ctx.needs_input_grad[0]:
            to_h = _rows_product(gradient, weight.transpose(1, 2), ctx.segments)
        if ctx.needs_input_grad[1]:
            to_weight = _weights_product(h, gradient, ctx.segments)
        return to_h, to_weight, None


class _NarrowProduct(torch.autograd.Function):
    """out[i] = h[i] W[client(i)] for a W of few columns, (n, in) and (K, in, out) float32 on the CPU."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, segments: Segments) -> Tensor:
        ctx.segments = segments
        h, rows = h.contiguous(), weight.transpose(1, 2).contiguous()
        ctx.save_for_backward(h, rows)
        out = h.new_empty(len(h), rows.shape[1])
        kernels.narrow_product(h.detach().numpy(), rows.detach().numpy(), segments.client_array, out.numpy())
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        h, rows = ctx.saved_tensors
        to_h, to_rows = torch.empty_like(h), torch.empty_like(rows)
        arrays = gradient.contiguous().numpy(), h.detach().numpy(), rows.detach().numpy()
        kernels.narrow_product_backward(*arrays, ctx.segments.client_array, to_h.numpy(), to_rows.numpy())
        return to_h, to_rows.transpose(1, 2).contiguous(), None


def padded_product(h: Tensor, weight: Tensor, segments: Segments) -> Tensor:
    """Compute `segment_product` as one batched product over clients padded to the largest."""
    return segments.unpad(torch.bmm(segments.pad(h), weight))


def segment_product(h: Tensor, weight: Tensor, segments: Segments) -> Tensor:
    """Each client's rows times its own matrix: out[i] = h[i] · weight[client(i)].

    `h` is (n, in), `weight` (K, in, out); returns (n, out). The CPU runs torch's grouped product, oneDNN for
    large products, and a compiled kernel for few outputs. Where the grouped product takes no float32, or this
    torch has none, it is one padded batched product. A single client needs neither.
    """
    groups = h.device.type == "cpu" and hasattr(functional, "grouped_mm")
    inner, outer = weight.shape[1:]
    if outer <= _NARROW and kernels.compiled(h):
        return _NarrowProduct.apply(h, weight, segments)
    if segments.clients == 1 and not (groups and _is_large(inner, outer, segments)):
        return h @ weight[0]
    if not groups:
        return padded_product(h, weight, segments)
    h, weight = _padded(h, aligned(inner), len(h)), _padded(weight, aligned(outer), aligned(inner))
    out = _SegmentProduct.apply(h, weight, segments)
    return out if out.shape[1] == outer else out[:, :outer].contiguous()
