"""FedLIT's layers, channel by channel: over all nodes, or only those on which the outputs read depend."""

import math
from collections.abc import Callable, Sequence

import dgl
import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedsub.methods.stacked.activation import Dropout, activate
from fedsub.methods.stacked.features import as_feature_tensor
from fedsub.methods.stacked.inputs import within
from fedsub.methods.stacked.propagation import kernel_of, matrix_product
from fedsub.methods.stacked.segments import Segments, ranks, segment_product

WORTH = 0.9
"""A layer that needs at most this share of all nodes computes only those. On PubMed the first layer needs
0.78, the last 0.4: 20 rounds then take 0.81 (GCN) and 0.77 (GraphSAGE) of the processor time of two layers of
all nodes, or 0.87 and 0.81 if the first computes all (measured by hand at 9da7279 with a `WORTH` of 0.9, 0.7
and 0)."""


class Layer:
    """The r of n nodes that a layer computes. The cell of row v in channel t is t·r + v."""

    def __init__(self, every: Segments, types: int, rows: Tensor | None = None) -> None:
        """`every` are the segments of all nodes, `rows` (r,) ascending node ids; None: all."""
        device, rows = every.client.device, torch.arange(every.rows) if rows is None else rows.cpu()
        self.types, self.nodes, self.rows = types, every.rows, rows.to(device)
        self.segments = every.among(rows)
        self.channels = Segments(self.segments.sizes.repeat(types), device)
        """T·K segments of cells, one for each channel and client."""
        self.number = np.full(every.rows, -1, dtype=np.int32)
        """(n,) a node's index among the r, −1 if it is not one of them."""
        # As an array: numpy would take a tensor of one id for a scalar.
        self.number[rows.numpy()] = np.arange(len(rows))
        self.cell = np.full((every.rows, types), -1, dtype=np.int32)
        """(n, T) the cell of each node and channel, −1 if there is none."""
        self.cell[rows.numpy()] = np.arange(types * len(rows)).reshape(types, -1).T
        self.drawn = draw_order(every.sizes, types)[rows].T.flatten().to(device)
        """(T·r,) positions of the cells' dropout masks, which are drawn for the cells of all nodes."""

    def among_all(self, outputs: Tensor) -> Tensor:
        """Expand outputs (r, C) to (n, C), NaN at nodes that are not computed."""
        every = outputs.new_full((self.nodes, outputs.shape[1]), math.nan)
        return every.index_copy_(0, self.rows, outputs)


def draw_order(sizes: Tensor, types: int) -> Tensor:
    """Draw position of node v's mask in channel t, by client, channel and node, (n, T); `sizes` (K,)."""
    first = (types * (sizes.cumsum(0) - sizes)).repeat_interleave(sizes) + ranks(sizes)
    return first.unsqueeze(1) + torch.arange(types) * sizes.repeat_interleave(sizes).unsqueeze(1)


def layers_to_read(graph: dgl.DGLGraph, every: Layer, read: Tensor | None, count: int) -> list[Layer]:
    """`count` layers, first to last, that give the outputs of the nodes `read`, (t,); None: of all nodes.

    A layer that needs most nodes is `every`, the layer of all.
    """
    if read is None:
        return [every] * count
    needed = [within(graph, read, hops) for hops in reversed(range(count))]
    most = WORTH * every.nodes
    return [every if len(rows) > most else Layer(every.segments, every.types, rows) for rows in needed]


def messages_between(
    before: Layer, layer: Layer, graph: dgl.DGLGraph, weight: Tensor, itself: bool
) -> Callable[[Tensor], Tensor]:
    """The function from h, (b, width), of the layer before to the messages that a layer's cells receive,
    (T·r, parts·width). In `graph` node v in channel t is T·v + t; `weight` is (edges,).

    The cell of node v in channel t receives (Â_t h)_v. With GraphSAGE, `itself`, it receives two parts:
    [h_v ‖ mean of h over v's neighbours of type t].
    """
    parts, device = 1 + itself, weight.device
    source, target = (end.numpy() for end in graph.edges())
    value, row = weight.cpu().numpy(), layer.cell.ravel()[target]
    kept = np.flatnonzero(row >= 0)
    value, row, column = value[kept], parts * row[kept] + itself, before.number[source[kept] // layer.types]
    if itself:
        nodes = layer.rows.cpu().numpy()
        row = np.append(row, parts * layer.cell[nodes].ravel())
        column = np.append(column, before.number[nodes].repeat(layer.types))
        value = np.append(value, np.ones(len(nodes) * layer.types, dtype=np.float32))
    rows, columns = parts * layer.channels.rows, before.segments.rows
    if kernel_of(graph) == "dgl":
        ends = torch.from_numpy(column), torch.from_numpy(row)
        block = dgl.create_block(ends, num_src_nodes=columns, num_dst_nodes=rows).to(device)
        factor = torch.from_numpy(value).to(device).unsqueeze(1)
        return lambda h: dgl.ops.u_mul_e_sum(block, h, factor).view(layer.channels.rows, -1)
    matrix = sp.coo_matrix((value, (row, column)), shape=(rows, columns))
    # Positions are distinct, so scipy need not search for duplicates.
    matrix.has_canonical_format = True
    matrix = matrix.tocsr()
    both = as_feature_tensor(matrix).to(device), as_feature_tensor(matrix.T.tocsr()).to(device)
    return lambda h: matrix_product(h, both).view(layer.channels.rows, -1)


def channel_sum(
    read: Tensor, weights: Sequence[Tensor], bias: Tensor, layer: Layer, dropout: Dropout | None
) -> Tensor:
    """Σ_t dropout(relu(read_t W_t + b_t)), (r, width).

    `read` (T·r, in) has one row for each cell; `weights` are the parts of W by its rows, (K, T, …, width);
    `bias` is (K, T, width). Masks are drawn for the cells of all nodes, so that draws do not depend on
    `layer`; `dropout` None means evaluation.
    """
    # By channel and client, as the cells are.
    weight = torch.cat([part.transpose(0, 1) for part in weights], dim=2).flatten(0, 1)
    bias = bias.transpose(0, 1).flatten(0, 1)
    if dropout is not None:
        dropout = dropout.among(layer.drawn, layer.types * layer.nodes)
    return activate(segment_product(read, weight, layer.channels), bias, layer.channels, dropout, layer.types)
