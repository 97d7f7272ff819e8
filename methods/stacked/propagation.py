"""Message passing by a weighted sum: out[v] = Σ over edges (u, v) of weight[uv] · h[u].

It runs through DGL's own kernel (`u_mul_e_sum`) or a product with a CSR matrix (MKL or numba on the CPU,
cuSPARSE on CUDA), which computes the same sums in another order.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import dgl
import scipy.sparse as sp
import torch
from torch import Tensor

from fedsub.datasets.errors import UserError
from fedsub.datasets.graph import csr_tensor
from fedsub.methods.stacked.kernels import sparse_product
from fedsub.methods.stacked.segments import LinearMap, Segments, ranks

KERNELS = ("auto", "dgl", "torch")
CHUNK_ENTRIES = 2**25
"""Maximum number of entries of a dense matrix in `return_probabilities` (128 MB)."""
_KERNEL = "_fedsub_kernel"


class Adjacency:
    """The edges of a DGL graph or block, forward and transposed; `matrices` gives them values."""

    def __init__(self, graph: dgl.DGLGraph, device: torch.device) -> None:
        source, target = graph.edges()
        self.shape = int(graph.num_dst_nodes()), int(graph.num_src_nodes())
        self.forward = _compress(target, source, self.shape, device)
        self.backward = _compress(source, target, self.shape[::-1], device)
        self.device = device
        self.ones = torch.ones(len(source), device=device)
        self.last: tuple[Tensor, int, tuple[Tensor, Tensor]] | None = None
        """The last weight, its version and its matrices."""

    def matrices(self, weight: Tensor | None) -> tuple[Tensor, Tensor]:
        """CSR matrices W, (targets, sources), and Wᵀ of `weight`, (edges,), or None for ones. Cached for a
        weight that is passed again unchanged."""
        weight = self.ones if weight is None else weight
        if self.last is None or self.last[0] is not weight or self.last[1] != weight._version:
            both = (*self.forward, self.shape), (*self.backward, self.shape[::-1])
            forward, backward = (
                csr_tensor(pointer, column, weight[edge], shape) for pointer, column, edge, shape in both
            )
            self.last = weight, weight._version, (forward, backward)
        return self.last[2]


def _compress(
    row: Tensor, column: Tensor, shape: tuple[int, ...], device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Row pointers, column ids (32-bit: MKL takes them as they are) and edge ids, sorted by row."""
    rows, columns = shape
    order = torch.argsort(row.long() * columns + column.long())
    pointer = torch.zeros(rows + 1, dtype=torch.int64)
    pointer[1:] = torch.bincount(row.long(), minlength=rows).cumsum(0)
    return pointer.to(device, torch.int32), column[order].to(device, torch.int32), order.to(device)


def use_kernel(graph: dgl.DGLGraph, kernel: str) -> dgl.DGLGraph:
    """Set the kernel that `propagate` uses by default for this graph; return the graph."""
    if kernel not in KERNELS:
        raise ValueError(f"unknown kernel {kernel!r}: choose one of {', '.join(KERNELS)}")
    graph.__dict__[_KERNEL] = kernel
    return graph


def check_kernel(kernel: str, device: str) -> str:
    """Return the kernel, `dgl` or `torch`, that `propagate` uses on this device.

    Raises UserError for `dgl` if it has no kernels for the device; the registry's wheels have only the CPU's.
    """
    if kernel != "dgl":
        return "torch"
    place = torch.device(device)
    runs = place.type == "cpu" or torch.cuda.is_available()
    try:
        if runs:
            dgl.graph(([0], [0])).to(place)
    except dgl.DGLError:
        runs = False
    if not runs:
        raise UserError(
            f"this build of DGL ({dgl.__version__}) has no kernels for {device}: use --kernel torch"
        )
    return "dgl"


def kernel_of(graph: dgl.DGLGraph) -> str:
    """The kernel that `use_kernel` set on this graph, else `auto`."""
    return str(graph.__dict__.get(_KERNEL, "auto"))


def matrix_product(h: Tensor, matrices: tuple[Tensor, Tensor]) -> Tensor:
    """S h, whose gradient is Sᵀ g; `matrices` are S and Sᵀ, CSR."""
    return LinearMap.apply(h, *(partial(sparse_product, matrix) for matrix in matrices))


def propagate(graph: dgl.DGLGraph, h: Tensor, weight: Tensor | None = None) -> Tensor:
    """Sum of weighted messages over incoming edges.

    `h` is (n, width), `weight` (edges,) in the graph's edge order or None for ones; returns (n, width), for a
    block one row for each target. Differentiable in `h`. The kernel is `use_kernel`'s: `dgl`, `torch`, or
    `auto`: torch's, which was the faster one on every graph tried (results/performance.md). Torch's
    raises ValueError for a weight that requires a gradient; DGL's is differentiable in `weight` too. The CSR
    matrices are cached with the graph, with the values of the last weight.
    """
    if kernel_of(graph) == "dgl":
        graph = on_device(graph, h.device)
        if weight is None:
            return dgl.ops.copy_u_sum(graph, h)
        return dgl.ops.u_mul_e_sum(graph, h, weight.unsqueeze(-1))
    if weight is not None and weight.requires_grad and torch.is_grad_enabled():
        raise ValueError("propagate has no gradient for edge weights: use DGL's functions, or --kernel dgl")
    return matrix_product(h, _kept(graph, "_fedsub_adjacency", h.device, Adjacency).matrices(weight))


def on_device(graph: dgl.DGLGraph, device: torch.device) -> dgl.DGLGraph:
    """The graph on `device`; the copy is cached with the graph."""
    return graph if graph.device == device else _kept(graph, "_fedsub_moved", device, dgl.DGLGraph.to)


def _kept(graph: dgl.DGLGraph, name: str, device: torch.device, make: Callable[..., Any]) -> Any:
    """Return `make(graph, device)`, cached with the graph."""
    found = graph.__dict__.get(name)
    # DGL passes a graph's attributes on to the graphs made from it.
    if found is None or found[0] != id(graph) or found[1].device != device:
        found = graph.__dict__[name] = (id(graph), make(graph, device))
    return found[1]


def message_matrix(graph: dgl.DGLGraph, weight: Tensor) -> sp.csr_matrix:
    """The matrix, targets by sources, that propagates over the edges with their weights, (edges,)."""
    source, target = (end.numpy() for end in graph.edges())
    shape = graph.num_dst_nodes(), graph.num_src_nodes()
    return sp.csr_matrix((weight.cpu().numpy(), (target, source)), shape=shape)


def with_self_loops(graph: dgl.DGLGraph) -> dgl.DGLGraph:
    """The graph with a self-loop at each node (edges first, loops after), without data; keeps its kernel."""
    (source, target), node = graph.edges(), graph.nodes()
    # In half the time of dgl.add_self_loop, which FedLIT would call in every round.
    looped = dgl.graph((torch.cat([source, node]), torch.cat([target, node])), num_nodes=len(node))
    return use_kernel(looped, kernel_of(graph))


def symmetric_weight(graph: dgl.DGLGraph, degree: Tensor | None = None) -> Tensor:
    """1/√(d_u d_v) for each edge of a graph with self-loops, Kipf & Welling 2017 eq. (2); (edges,). `degree`,
    (n,) float32, are d; None: the graph's own."""
    source, target = graph.edges()
    scale = (graph.in_degrees().clamp(min=1).float() if degree is None else degree).rsqrt()
    return scale[source] * scale[target]


def normalised_edges(graph: dgl.DGLGraph, degree: Tensor | None = None) -> tuple[dgl.DGLGraph, Tensor]:
    """The graph with self-loops and its `symmetric_weight`: the edges of Â."""
    looped = with_self_loops(graph)
    return looped, symmetric_weight(looped, degree)


def mean_weight(graph: dgl.DGLGraph) -> Tensor:
    """1/d_v for each edge (u, v), so that propagation is the mean of the neighbours; (edges,)."""
    _, target = graph.edges()
    return graph.in_degrees().clamp(min=1).float().reciprocal()[target]


def spread_labels(
    convolution: Callable[[Tensor], Tensor],
    start: Tensor,
    rows: Tensor,
    labels: Tensor,
    steps: int,
    share: float,
) -> Tensor:
    """Label propagation: `steps` times Y ← share · Â Y + (1 − share) Y⁰, then Y[rows] += labels; (n, C).

    `start` is Y⁰, (n, C); `labels`, (r, C), belong to `rows`.
    """
    spread = start
    for _ in range(steps):
        spread = (share * convolution(spread) + (1 - share) * start).index_add(0, rows, labels)
    return spread


def return_probabilities(graph: dgl.DGLGraph, sizes: Tensor, steps: int) -> Tensor:
    """Probability that a random walk from v is at v after 1…steps steps, (n, steps) float32.

    The probabilities are the diagonals of (D⁻¹A)^t, hence of N^t with the symmetric N = D^−½ A D^−½. Since
    diag(N^(a+b)) sums the entries of N^a ∘ N^b by columns, half the powers suffice. Columns are propagated in
    blocks, the same local columns of all clients at once, so that no (n, n) matrix is stored.
    """
    segments = Segments(sizes)
    nodes, local, weight = segments.rows, ranks(segments.sizes), symmetric_weight(graph)
    result = torch.zeros(nodes, steps)
    width = max(1, min(segments.longest, CHUNK_ENTRIES // nodes))
    for start in range(0, segments.longest, width):
        rows = ((local >= start) & (local < start + width)).nonzero().squeeze(1)
        cell = (segments.client[rows], local[rows] - start)
        power = torch.zeros(nodes, width)
        power[rows, cell[1]] = 1.0
        for step in range(1, steps + 1):
            half = power
            if step % 2:
                power = propagate(graph, half, weight)
            result[rows, step - 1] = segments.sum(half * power)[cell]
    return result
