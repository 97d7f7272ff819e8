"""The generator phase of FedSage+: train every client's generator, then use it on the client's whole graph.

A client's generator depends on the other clients only through their true features, so clients are trained
in chunks that fit in memory. All start from the same parameters. Noise and dropout have their own random
stream in each chunk; apart from these draws the result does not depend on the chunks.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import dgl
import numpy as np
import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.datasets.graph import select_features
from fedsub.methods.fedsage.generator import FedSagePlusOptions, Generated, NeighbourGenerator
from fedsub.methods.fedsage.matching import OtherClients, nearest_hidden
from fedsub.methods.fedsage.mending import impair, mended_inputs
from fedsub.methods.stacked.activation import Dropout
from fedsub.methods.stacked.architecture import Architecture
from fedsub.methods.stacked.backbones import Backbone, GraphSAGE
from fedsub.methods.stacked.features import Features
from fedsub.methods.stacked.inputs import Inputs
from fedsub.methods.stacked.parameters import stack
from fedsub.methods.stacked.propagation import kernel_of, use_kernel
from fedsub.methods.stacked.segments import Segments

if TYPE_CHECKING:
    from fedsub.methods.fedsage import FedSagePlus

CHUNK_BYTES = 2**32
"""Memory, in bytes, of the generators, gradients and Adam states of clients that are trained together."""


def client_chunks(clients: int, width: int, options: FedSagePlusOptions) -> Iterator[range]:
    """Chunks of consecutive clients that are trained together."""
    step = max(1, CHUNK_BYTES // (16 * options.wide * width * options.neighbours))
    return (range(clients)[start : start + step] for start in range(0, clients, step))


class GeneratorTraining:
    """Trains the generators of a chunk of clients on their impaired graphs.

    All node ids are the chunk's own, 0…n−1; `first` is its first row in the federation.
    """

    def __init__(self, method: "FedSagePlus", chosen: range) -> None:
        """The classifier on the mended impaired graph has the widths and dropout of the method's setting."""
        self.method, self.chosen = method, chosen
        self.task, self.options, self.device = method.task, method.options, method.device
        federation, device, seed = method.federation, method.device, method.setting.seed
        self.segments = Segments(federation.sizes[chosen.start : chosen.stop], device)
        self.first = int(federation.sizes[: chosen.start].sum())
        rows = torch.arange(self.first, self.first + self.segments.rows)
        chunk = dgl.node_subgraph(federation.graph, rows, store_ids=False)
        self.graph = use_kernel(chunk, kernel_of(federation.graph))
        raw = select_features(federation.features, rows.numpy())
        self.features = Features(raw, self.segments, device)
        width = int(raw.shape[1])
        self.generator = NeighbourGenerator(len(chosen), width, self.options, seed, device)
        drawn_with = seed
        if chosen.start > 0:
            # The first chunk continues the stream from which its parameters were drawn.
            drawn_with = int(np.random.SeedSequence([seed, chosen.start]).generate_state(1)[0])
            self.generator.random.manual_seed(drawn_with)
        self.dropout = Dropout(method.setting.architecture.dropout, drawn_with, device)
        self._prepare_impaired(method.hidden[rows], raw)
        self._prepare_classifier()

    def _prepare_impaired(self, hidden: Tensor, raw: Tensor) -> None:
        self.impaired, missing, neighbour = impair(self.graph, hidden)
        self.inputs = self._inputs(self.generator.encoder, self.impaired)
        """Inputs of the generators' encoder on the impaired graph."""
        self.missing, self.remains = missing.to(self.device), (~hidden).to(self.device)
        """(n,) int64, number of hidden neighbours of each node; (n,) bool, nodes that are not hidden."""
        self.lost_first = self.missing.cumsum(0) - self.missing
        """(n,) int64, index in `lost_row` of each node's first hidden neighbour."""
        lost, self.lost_row = neighbour.to(self.device).unique(return_inverse=True)
        """(Σ missing,) int64, rows of `lost_features`."""
        self.lost_features = select_features(raw, lost.cpu().numpy()).to_dense().to(self.device)
        """(hidden nodes with a remaining neighbour, d) dense."""
        remaining = self.segments.sum(self.remains.float().unsqueeze(1)).clamp(min=1)
        self.share = self.remains.float() / remaining.squeeze(1)[self.segments.client]
        """(n,) 1 / number of remaining nodes of the node's client, 0 for a hidden node."""

    def _prepare_classifier(self) -> None:
        setting = self.method.setting
        self.classifier = GraphSAGE(Architecture("graphsage", setting.architecture.hidden))
        random = torch.Generator().manual_seed(setting.seed)
        start = self.classifier.initial(self.features.width, self.task.width, random)
        self.class_parameters = stack(start, len(self.chosen), self.device)
        """Parameters of the classifier, name → (K, …)."""
        self.generator.optimiser.add_param_group({"params": list(self.class_parameters.values())})

    def _inputs(self, backbone: Backbone, graph: dgl.DGLGraph) -> Inputs:
        convolution = backbone.convolution(graph, self.device)
        return Inputs(self.segments, self.features, convolution, self.task.width)

    def epoch(self) -> Tensor:
        """Take one step of every generator; return the loss summed over clients, ()."""
        self.generator.optimiser.zero_grad(set_to_none=True)
        self.features.renew_gradients()
        generated, predicted = self.generator.generate(self.inputs, self.remains, self.dropout)
        weight, others = self.options.feature_weight, self.method.others
        # Σ_k 1/|remaining nodes| Σ_v smooth-L1(d̂_v, d_v).
        away = functional.smooth_l1_loss(predicted, self.missing.float(), reduction="none")
        loss = torch.dot(away, self.share) + weight * self.own_loss(generated)
        loss = loss + self.class_loss(generated)
        if len(generated.owner) and others is not None:
            gradient = weight * self.others_gradient(generated, others)
            torch.autograd.backward([loss, generated.features], [None, gradient])
        else:
            loss.backward()
        self.generator.step()
        return loss.detach()

    def own_loss(self, generated: Generated) -> Tensor:
        """Σ_k 1/|remaining nodes| Σ_v Σ_p MSE(x̂_v^p, nearest hidden neighbour of v), ().

        Rows of a node without hidden neighbours are left out.
        """
        row = (self.missing[generated.owner] > 0).nonzero().squeeze(1)
        owner, features = generated.owner[row], generated.features[row]
        with torch.no_grad():
            ends = self.lost_first[owner], self.missing[owner]
            nearest = nearest_hidden(features, *ends, self.lost_row, self.lost_features)
        return torch.dot((features - self.lost_features[nearest]).square().mean(dim=1), self.share[owner])

    def others_gradient(self, generated: Generated, others: OtherClients) -> Tensor:
        """Gradients that the other clients return, weighted as in `own_loss`; (S, d).

        Each generated row is sent to the server and on to the K − 1 others. Each of them returns a gradient,
        and the server sends their sum down: 2 K rows in all.
        """
        features = generated.features.detach()
        client = self.segments.client[generated.owner] + self.chosen.start
        channel, rivals = self.method.channel, others.clients - 1
        channel.once_up(generated=features, gradients=[features] * rivals)
        channel.once_down(generated=[features] * rivals, gradients=features)
        share = self.share[generated.owner] / features.shape[1]
        return others.gradient(features, client) * share.unsqueeze(1)

    def class_loss(self, generated: Generated) -> Tensor:
        """Loss of the task for a classifier on the mended impaired graph, summed over the chunk's clients."""
        if not len(generated.owner):
            inputs = self._inputs(self.classifier, self.impaired)
        else:
            mended = generated.mend(self.impaired, self.segments.sizes)
            inputs = mended_inputs(
                self.classifier, mended, self.features, generated.features, self.task.width
            )
        logits = self.classifier.forward(inputs, self.class_parameters, self.dropout)
        # Hidden nodes are not in the impaired graph, so nothing is learned from them.
        logits = logits * self.remains.unsqueeze(1)
        behind = self.method.federation.nodes - self.first - self.segments.rows
        # Clients outside the chunk add a constant, since their rows have no gradient.
        return self.task.loss(functional.pad(logits, (0, 0, self.first, behind)))

    def whole_graph(self) -> tuple[Generated, Tensor]:
        """Neighbours for the clients' whole graphs, with owners as rows of the federation; and d̂, (n,)."""
        with torch.no_grad():
            inputs = self._inputs(self.generator.encoder, self.graph)
            found, missing = self.generator.generate(inputs, torch.ones_like(self.remains), None)
        return Generated(found.features, found.owner + self.first), missing
