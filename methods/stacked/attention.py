"""Message passing with learned shares: out[v] = Σ over edges (u, v) of α[uv] · h[u], α a softmax at v."""

from __future__ import annotations

import dgl
import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from fedsub.methods.stacked.propagation import kernel_of, on_device

SLOPE = 0.2
"""Of the leaky ReLU, Veličković et al., section 3.3."""


def attend(graph: dgl.DGLGraph, h: Tensor, scores: Tensor) -> Tensor:
    """Σ_u α_uv h_u of each head, with α_uv = softmax over u of leaky_relu(s_u + t_v).

    `h` is (n, heads · width), `scores` (n, 2 · heads): s of every head, then t. Every node of the graph has
    an incoming edge. Returns (n, heads · width), differentiable in both. Runs on DGL's kernels, with kernel
    `torch`, and by default off the CPU, on torch's.
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
