"""`gat`: graph attention: f(h)[v] = Σ α_uv W h_u over neighbours and v itself, Veličković et al., ICLR 2018.

α_uv is the softmax over u of leaky_relu(a · W h_u + b · W h_v), eq. (3). A hidden layer has `heads` heads,
whose outputs are concatenated: a width in `hidden` is that of all heads together. A `head=convolution` has
one head. Departures, shared with the other networks here: ReLU in place of ELU, and dropout only after hidden
layers, not on the input or α. Attention vectors are initialised in the range of the authors' code.
"""

from functools import partial

import dgl
import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from fedsub.datasets.errors import UserError
from fedsub.methods.stacked.architecture import Architecture
from fedsub.methods.stacked.inputs import Convolution, Inputs, Level, restricted
from fedsub.methods.stacked.networks.layered import Layered
from fedsub.methods.stacked.parameters import Parameters, Weights, glorot, uniform
from fedsub.methods.stacked.propagation import kernel_of, on_device, with_self_loops
from fedsub.methods.stacked.segments import segment_product

SLOPE = 0.2
"""Negative slope of the leaky ReLU, Veličković et al., section 3.3."""


class GAT(Layered):
    """Attention layers; `sent` and `heard`, (heads, width of one head), are a and b."""

    layered = False
    takes_residual = True
    weights = ("weight", "sent", "heard")

    def __init__(self, architecture: Architecture) -> None:
        """Raises UserError for a width that is no multiple of the heads."""
        super().__init__(architecture)
        for width in architecture.hidden:
            if width % architecture.heads:
                heads = architecture.heads
                raise UserError(f"gat's {heads} heads cannot share the width {width}: use a multiple")

    def messages(self, graph: dgl.DGLGraph) -> tuple[dgl.DGLGraph, Tensor]:
        looped = with_self_loops(graph)
        return looped, torch.ones(looped.num_edges())

    def convolution(
        self, graph: dgl.DGLGraph, device: torch.device | str, rows: Tensor | None = None
    ) -> Convolution:
        graph, weight = self.messages(graph)
        return partial(attend, graph if rows is None else restricted(graph, weight, rows)[0])

    def _layer(
        self, inputs: Inputs, level: Level | None, h: Tensor | None, parameters: Weights, prefix: str
    ) -> Tensor:
        product = self._times(inputs, level, h, parameters, f"{prefix}.weight")
        vectors = [across(parameters[f"{prefix}.{end}"]) for end in ("sent", "heard")]
        scores = segment_product(product, torch.cat(vectors, dim=2), inputs.segments)
        return inputs.convolution(product, scores)

    def _start(
        self, inner: int, outer: int, generator: torch.Generator, heads: int | None = None
    ) -> Parameters:
        heads = heads or self.architecture.heads
        shape = heads, outer // heads
        bound = (6 / (shape[1] + 1)) ** 0.5
        return {
            "weight": glorot((inner, outer), generator),
            "sent": uniform(shape, bound, generator),
            "heard": uniform(shape, bound, generator),
            "bias": torch.zeros(outer),
        }

    def _start_head(self, inner: int, classes: int, generator: torch.Generator) -> Parameters:
        return self._start(inner, classes, generator, heads=1)


def across(vectors: Tensor) -> Tensor:
    """Block matrix that multiplies each head by its vector, (K, heads, width) → (K, heads · width, heads)."""
    heads = torch.eye(vectors.shape[1], device=vectors.device)
    return (vectors.unsqueeze(3) * heads.unsqueeze(1)).flatten(1, 2)


def attend(graph: dgl.DGLGraph, h: Tensor, scores: Tensor) -> Tensor:
    """Σ_u α_uv h_u of each head, with α_uv = softmax over u of leaky_relu(s_u + t_v).

    `h` is (n, heads · width), `scores` (n, 2 · heads): s of every head, then t. Every node needs an incoming
    edge. Returns (n, heads · width), differentiable in both. `auto` means DGL on the CPU, torch elsewhere.
    """
    heads, kernel = scores.shape[1] // 2, kernel_of(graph)
    sent, heard = scores.split(heads, dim=1)
    rows = h.view(len(h), heads, -1)
    if kernel == "dgl" or (kernel == "auto" and h.device.type == "cpu"):
        graph = on_device(graph, h.device)
        each = leaky_relu(dgl.ops.u_add_v(graph, sent, heard), SLOPE)
        share = dgl.ops.edge_softmax(graph, each)
        return dgl.ops.u_mul_e_sum(graph, rows, share.unsqueeze(2)).flatten(1)
    source, target = (end.to(h.device, torch.int64) for end in graph.edges())
    each = leaky_relu(sent[source] + heard[target], SLOPE)
    edges = target.unsqueeze(1).expand_as(each)
    largest = torch.full_like(sent, -torch.inf).scatter_reduce(0, edges, each.detach(), "amax")
    weight = (each - largest[target]).exp()
    total = torch.zeros_like(sent).index_add(0, target, weight)
    messages = rows[source] * (weight / total[target]).unsqueeze(2)
    return torch.zeros_like(rows).index_add(0, target, messages).flatten(1)


network = GAT
