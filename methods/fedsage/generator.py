"""FedSage+'s neighbour generator, which predicts the number and the features of a node's missing neighbours,
its training, and its use on the client's whole graph.

Zhang et al., NeurIPS 2021, section 4.1 (dGen, fGen) and 4.3 (the federated part); sizes as in the public
code. For K clients at once, each with its own generator:

    z = SAGE₂(X, impaired graph),   d̂ = relu(z w + b),   n̂ = round(d̂) up to p
    x̂¹…x̂ⁿ̂ = tanh of slots 1…n̂ of MLP(z + noise),   MLP: latent – 256 – 2048 – p·d

A client's generator depends on the other clients only through their true features, so clients are trained
in chunks that fit in memory. Noise and dropout have their own random stream in each chunk; apart from these
draws the result does not depend on the chunks.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

import dgl
import numpy as np
import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.datasets.graph import select_features
from fedsub.datasets.limits import Count, NonNegative, Share, Size, tunable
from fedsub.methods.core.base import Options
from fedsub.methods.fedsage.matching import OtherClients, nearest_hidden
from fedsub.methods.fedsage.mending import mended_inputs
from fedsub.methods.stacked.activation import Dropout, activate, add_bias
from fedsub.methods.stacked.architecture import Architecture
from fedsub.methods.stacked.backbones import Backbone, GraphSAGE
from fedsub.methods.stacked.features import Features
from fedsub.methods.stacked.inputs import Grown, Inputs, grow
from fedsub.methods.stacked.optimiser import make_adam
from fedsub.methods.stacked.parameters import Parameters, linear_start, prefixed, stack
from fedsub.methods.stacked.propagation import kernel_of, use_kernel
from fedsub.methods.stacked.segments import Segments, aligned, segment_product

if TYPE_CHECKING:
    from fedsub.methods.fedsage import FedSagePlus

CHUNK_BYTES = 2**32
"""Memory, in bytes, of the generators, gradients and Adam states of clients that are trained together."""


@dataclass(frozen=True)
class FedSagePlusOptions(Options):
    generator_epochs: Size = 20
    """Full-batch steps of every generator before the federation trains."""
    generator_learning_rate: NonNegative = tunable(0.001, log=(1e-4, 0.01))
    """Adam's learning rate for the generator."""
    hidden_share: Share = tunable(0.5, linear=(0.1, 0.9))
    """h, the share of the sampled nodes that is hidden, in [0, 1]."""
    neighbours: Count = tunable(5, choices=(1, 5, 10))
    """p, maximum number of neighbours generated for one node."""
    noise: NonNegative = 1.0
    """Standard deviation of the noise added to the latent vectors."""
    latent: Count = 128
    """Width of both layers of the generator's encoder."""
    narrow: Count = 256
    """Width of the generator's first layer."""
    wide: Count = 2048
    """Width of the generator's second layer."""
    hidden_from: Literal["validation", "all"] = "validation"
    """Nodes of which a share is hidden: a client's validation nodes (public code) or all (paper)."""
    average: Literal["models", "gradients"] = "models"
    """Server's average: of `models` (FedAvg), or of `gradients` in every epoch, with one step (FedStruct)."""
    generated: Literal["as-generated", "row-normalised"] = "as-generated"
    """Rows that mend the graphs: the generator's, or each divided by the sum of its absolute values. If true
    features are row-normalised, the generator's rows are about thirty times as long and dominate the true
    neighbours (results/notes/fedpub-2.md). The generator always trains on its rows as generated."""


@dataclass(frozen=True, eq=False)
class Generated:
    """S generated neighbours, sorted by the node that they belong to."""

    features: Tensor
    """(S, d) generated features."""
    owner: Tensor
    """(S,) int64, ascending: the node that each neighbour belongs to."""

    def mend(self, graph: dgl.DGLGraph, sizes: Tensor) -> Grown:
        """`graph`, with `sizes` (K,) nodes at each client, and the neighbours joined to their owners."""
        owner = self.owner.cpu()
        return grow(graph, sizes, len(owner), (torch.arange(len(owner)), owner))


class NeighbourGenerator:
    """The generators of K clients; `parameters` are stacked, (K, …).

    The last layer's p slots are separate parameters, created when a node first needs one: with 2048·d entries
    each they are most of the generator. Adam does not change a slot that never had a gradient, so the result
    is the same as with all slots from the start.
    """

    def __init__(self, method: "FedSagePlus", clients: int) -> None:
        """All clients have the same initial parameters; every draw comes from the run's seed."""
        self.clients, self.width, self.device = clients, method.federation.width, method.device
        self.options, self.seed = method.options, method.setting.seed
        options = self.options
        self.random = torch.Generator().manual_seed(self.seed)
        self.encoder = GraphSAGE(Architecture("graphsage", (options.latent, options.latent), dropout=0.0))
        start = self.encoder.initial(self.width, 1, self.random)
        # z is never negative. With random signs about every second start has d̂ < 0 for all nodes, so that
        # its ReLU has no gradient and stays dead.
        start |= {name: start[name].abs() for name in self.encoder.head}
        start |= prefixed("narrow", linear_start(options.latent, options.narrow, self.random))
        start |= prefixed("wide", linear_start(options.narrow, options.wide, self.random))
        self.parameters = stack(start, clients, self.device)
        self.slots: list[Parameters] = []
        self.optimiser = make_adam(list(self.parameters.values()), options.generator_learning_rate, 0.0)
        self.steps = 0

    def _slot(self, slot: int) -> Parameters:
        """The last layer's part for the neighbour number `slot`; each slot has its own seed."""
        while len(self.slots) <= slot:
            random = torch.Generator().manual_seed(self.seed + 1 + len(self.slots))
            # These are the largest weights: aligned, they need no padding in every grouped product.
            start = prefixed("slot", linear_start(self.options.wide, aligned(self.width), random))
            made = stack(start, self.clients, self.device)
            self.optimiser.add_param_group({"params": list(made.values())})
            for value in made.values():
                # Adam's bias correction counts steps from the start of training, as for other parameters.
                self.optimiser.state[value] = {
                    "step": torch.tensor(float(self.steps), device=self.device),
                    "exp_avg": torch.zeros_like(value),
                    "exp_avg_sq": torch.zeros_like(value),
                }
            self.slots.append(made)
        return self.slots[slot]

    def step(self) -> None:
        """Take one step of Adam; parameters that no node used in this epoch have gradient zero."""
        for group in self.optimiser.param_groups:
            for value in group["params"]:
                # Adam's step count of a skipped parameter would fall behind.
                if value.grad is None:
                    value.grad = torch.zeros_like(value)
        self.optimiser.step()
        self.steps += 1

    def generate(self, inputs: Inputs, allowed: Tensor, dropout: Dropout | None) -> tuple[Generated, Tensor]:
        """Generate n̂ = round(d̂), at most p, neighbours for each node of `allowed`, (n,) bool; return them,
        none if all n̂ are 0, and d̂ of every node, (n,)."""
        latent = self.encoder.embed(inputs, self.parameters, None)
        missing = self.encoder.classify(inputs, latent, self.parameters).relu().squeeze(1)
        counts = missing.detach().nan_to_num(0).clamp(0, self.options.neighbours).round().long() * allowed
        node = counts.nonzero().squeeze(1)
        if not len(node):
            return Generated(latent.new_empty(0, self.width), node), missing
        runs = inputs.segments.among(node)
        noise = torch.randn(len(node), latent.shape[1], generator=self.random).to(latent.device)
        h = latent[node] + self.options.noise * noise
        for name, drop in (("narrow", None), ("wide", dropout)):
            summed = segment_product(h, self.parameters[f"{name}.weight"], runs)
            h = activate(summed, self.parameters[f"{name}.bias"], runs, drop)
        pieces, owners = [], []
        for slot in range(int(counts.max())):
            row = (counts[node] > slot).nonzero().squeeze(1)
            runs = inputs.segments.among(node[row])
            part = self._slot(slot)
            summed = segment_product(h[row], part["slot.weight"], runs)
            pieces.append(add_bias(summed, part["slot.bias"], runs)[:, : self.width].tanh())
            owners.append(node[row])
        owner, order = torch.cat(owners).sort(stable=True)
        return Generated(torch.cat(pieces)[order], owner), missing


def client_chunks(clients: int, width: int, options: FedSagePlusOptions) -> Iterator[range]:
    """Chunks of consecutive clients that are trained together."""
    step = max(1, CHUNK_BYTES // (16 * options.wide * width * options.neighbours))
    return (range(clients)[start : start + step] for start in range(0, clients, step))


class GeneratorTraining:
    """Trains the generators of a chunk of clients on their impaired graphs.

    All node ids are the chunk's own, 0…n−1; `first` is its first row in the federation.
    """

    def __init__(self, method: "FedSagePlus", chosen: range) -> None:
        self.method, self.chosen, self.task, self.device = method, chosen, method.task, method.device
        federation, device, seed = method.federation, method.device, method.setting.seed
        self.segments = Segments(federation.sizes[chosen.start : chosen.stop], device)
        self.first = int(federation.sizes[: chosen.start].sum())
        rows = torch.arange(self.first, self.first + self.segments.rows)
        chunk = dgl.node_subgraph(federation.graph, rows, store_ids=False)
        self.graph = use_kernel(chunk, kernel_of(federation.graph))
        raw = select_features(federation.features, rows.numpy())
        self.features = Features(raw, self.segments, device)
        self.generator = NeighbourGenerator(method, len(chosen))
        drawn_with = seed
        if chosen.start > 0:
            # The first chunk continues the stream from which its parameters were drawn.
            drawn_with = int(np.random.SeedSequence([seed, chosen.start]).generate_state(1)[0])
            self.generator.random.manual_seed(drawn_with)
        self.dropout = Dropout(method.setting.architecture.dropout, drawn_with, device)
        # The classifier on the mended impaired graph has the widths and dropout of the method's setting.
        self.classifier = GraphSAGE(Architecture("graphsage", method.setting.architecture.hidden))
        random = torch.Generator().manual_seed(seed)
        start = self.classifier.initial(self.features.width, self.task.width, random)
        self.class_parameters = stack(start, len(chosen), device)
        """Parameters of the classifier, name → (K, …)."""
        self.generator.optimiser.add_param_group({"params": list(self.class_parameters.values())})
        self._impair(method.hidden[rows], raw)

    def _impair(self, hidden: Tensor, raw: Tensor) -> None:
        """Leave out the edges of the `hidden` nodes, (n,) bool, and prepare the search among their features;
        `raw` are those of all nodes, (n, d)."""
        source, target = self.graph.edges()
        lost = hidden[source] & ~hidden[target]
        kept = ~(hidden[source] | hidden[target])
        impaired = dgl.graph((source[kept], target[kept]), num_nodes=self.segments.rows)
        self.impaired = use_kernel(impaired, kernel_of(self.graph))
        missing = torch.bincount(target[lost], minlength=self.segments.rows)
        # Hidden neighbours by the remaining node, as lost_first counts them.
        neighbour = source[lost][torch.argsort(target[lost], stable=True)]
        self.inputs = self._inputs(self.generator.encoder, self.impaired)
        """Inputs of the generators' encoder on the impaired graph."""
        self.missing, self.remains = missing.to(self.device), (~hidden).to(self.device)
        """(n,) int64, number of hidden neighbours of each node; (n,) bool, nodes that are not hidden."""
        self.lost_first = self.missing.cumsum(0) - self.missing
        """(n,) int64, index in `lost_row` of each node's first hidden neighbour."""
        found, self.lost_row = neighbour.to(self.device).unique(return_inverse=True)
        """(Σ missing,) int64, rows of `lost_features`."""
        self.lost_features = select_features(raw, found.cpu().numpy()).to_dense().to(self.device)
        """(hidden nodes with a remaining neighbour, d) dense."""
        remaining = self.segments.sum(self.remains.float().unsqueeze(1)).clamp(min=1)
        self.share = self.remains.float() / remaining.squeeze(1)[self.segments.client]
        """(n,) 1 / number of remaining nodes of the node's client, 0 for a hidden node."""

    def _inputs(self, backbone: Backbone, graph: dgl.DGLGraph) -> Inputs:
        convolution = backbone.convolution(graph, self.device)
        return Inputs(self.segments, self.features, convolution, self.task.width)

    def epoch(self) -> Tensor:
        """Take one step of every generator; return the loss summed over clients, ()."""
        self.generator.optimiser.zero_grad(set_to_none=True)
        self.features.renew_gradients()
        generated, predicted = self.generator.generate(self.inputs, self.remains, self.dropout)
        # Σ_k 1/|remaining nodes| Σ_v smooth-L1(d̂_v, d_v).
        away = functional.smooth_l1_loss(predicted, self.missing.float(), reduction="none")
        loss = torch.dot(away, self.share) + self.own_loss(generated)
        loss = loss + self.class_loss(generated)
        if len(generated.owner) and self.method.others is not None:
            gradient = self.others_gradient(generated)
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

    def others_gradient(self, generated: Generated) -> Tensor:
        """Gradients that the other clients return, weighted as in `own_loss`; (S, d).

        Each generated row is sent to the server and on to the K − 1 others. Each of them returns a gradient,
        and the server sends their sum down: 2 K rows in all.
        """
        features = generated.features.detach()
        client = self.segments.client[generated.owner] + self.chosen.start
        channel, rivals = self.method.channel, self.method.federation.clients - 1
        channel.once_up(generated=features, gradients=[features] * rivals)
        channel.once_down(generated=[features] * rivals, gradients=features)
        share = self.share[generated.owner] / features.shape[1]
        return cast(OtherClients, self.method.others).gradient(features, client) * share.unsqueeze(1)

    def class_loss(self, generated: Generated) -> Tensor:
        """Loss of the task for a classifier on the mended impaired graph, summed over the chunk's clients."""
        if not len(generated.owner):
            inputs = self._inputs(self.classifier, self.impaired)
        else:
            mended, rows = generated.mend(self.impaired, self.segments.sizes), generated.features
            inputs = mended_inputs(self.classifier, mended, self.features, rows, self.task.width)
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
