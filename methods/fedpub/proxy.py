"""FED-PUB's functional embeddings h̃: mean outputs of the clients' networks on the same random graph.

Baek et al., ICML 2023, section 4.1 and appendix B.3: the mean over the nodes of a proxy graph of the
output of the last hidden layer before its activation. All K networks run at once; they share the
proxy's features instead of holding a copy each.
"""

from collections.abc import Callable
from functools import partial

import dgl
import numpy as np
import torch
from torch import Tensor

from fedsub.methods.stacked.backbones import Backbone
from fedsub.methods.stacked.features import SharedFeatures
from fedsub.methods.stacked.inputs import Inputs
from fedsub.methods.stacked.parameters import Weights
from fedsub.methods.stacked.propagation import normalised_edges, propagate, use_kernel

Proxy = tuple[dgl.DGLGraph, Tensor]
"""A graph of m nodes, edges in both directions, and its features, (m, d), drawn from N(0, 1)."""
BLOCKS = 5
BLOCK_NODES = 100
WITHIN = 0.1
"""Probability of an edge inside a block."""
BETWEEN = 0.01
"""Probability of an edge between blocks, as in the paper; the authors' code has 0."""


def make_proxy(kind: str, width: int, generator: np.random.Generator) -> Proxy:
    """A random graph with `width` Gaussian features, which the server sends to every client, once.

    `sbm`: the paper's stochastic block model. `er`: an Erdős–Rényi graph with as many nodes and, on
    average, edges (the paper does not give its density). `one`: a single node.
    """
    nodes = 1 if kind == "one" else BLOCKS * BLOCK_NODES
    block = np.arange(nodes) // BLOCK_NODES
    probability = np.where(block[:, None] == block[None, :], WITHIN, BETWEEN)
    if kind == "er":
        probability = np.full((nodes, nodes), probability[np.triu_indices(nodes, 1)].mean())
    source, target = np.nonzero(np.triu(generator.random((nodes, nodes)) < probability, 1))
    ends = (np.concatenate([source, target]), np.concatenate([target, source]))
    features = generator.standard_normal((nodes, width), dtype=np.float32)
    return dgl.graph(ends, num_nodes=nodes), torch.from_numpy(features)


def mean_output_on(
    proxy: Proxy, backbone: Backbone, clients: int, classes: int, device: torch.device | str, kernel: str
) -> Callable[[Weights], Tensor]:
    """The function from stacked parameters with masks applied to h̃ on the proxy, (K, hidden). For a plain GCN
    of two layers, the products that do not depend on its parameters are computed once."""
    architecture, (graph, features) = backbone.architecture, proxy
    plain = not (architecture.input_norm or architecture.residual or architecture.norm != "none")
    if architecture.backbone == "gcn" and plain and len(architecture.hidden) == 2:
        looped, weight = normalised_edges(graph)
        mean = torch.full((len(features), 1), 1 / len(features))
        pool = propagate(dgl.reverse(looped), mean, weight).T.contiguous().to(device)
        return partial(_mean_of_two_layers, propagate(looped, features, weight).to(device), pool)
    if architecture.input_norm:
        features = torch.nn.functional.layer_norm(features, features.shape[1:])
    shared = SharedFeatures(features, clients, device)
    copies = use_kernel(dgl.batch([graph] * clients), kernel)
    inputs = Inputs(shared.segments, shared, backbone.convolution(copies, device), classes)
    return partial(mean_output, backbone, inputs)


@torch.no_grad()
def mean_output(backbone: Backbone, inputs: Inputs, parameters: Weights) -> Tensor:
    """h̃ of the K networks on `inputs`, (K, hidden), without dropout."""
    return inputs.segments.mean(backbone.embed_linear(inputs, parameters))


@torch.no_grad()
def _mean_of_two_layers(aggregated: Tensor, pool: Tensor, parameters: Weights) -> Tensor:
    """mean(Â relu(Â X W₁ + b₁) W₂ + b₂) from Â X, (m, d), with the mean taken before W₂: `pool`, (1, m),
    propagates once more and takes the mean over nodes."""
    first, bias = parameters["layers.0.weight"], parameters["layers.0.bias"].unsqueeze(1)
    hidden = torch.baddbmm(bias, aggregated.expand(len(first), -1, -1), first).relu_()
    pooled = torch.matmul(pool, hidden)
    out = torch.baddbmm(parameters["layers.1.bias"].unsqueeze(1), pooled, parameters["layers.1.weight"])
    return out.squeeze(1)
