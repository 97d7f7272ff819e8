"""FedSage+'s neighbour generator: it predicts the number and the features of a node's missing neighbours.

Zhang et al., NeurIPS 2021, section 4.1 (dGen, fGen) and 4.3 (the federated part); sizes as in the public
code. For K clients at once, each with its own generator:

    z = SAGE₂(X, impaired graph),   d̂ = relu(z w + b),   n̂ = round(d̂) up to p
    x̂¹…x̂ⁿ̂ = tanh of slots 1…n̂ of MLP(z + noise),   MLP: latent – 256 – 2048 – p·d
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Literal

import dgl
import torch
from torch import Tensor

from fedsub.datasets.limits import Count, NonNegative, Share, Size
from fedsub.datasets.ranges import tunable
from fedsub.methods.core.base import Options
from fedsub.methods.stacked.activation import Dropout, activate, add_bias
from fedsub.methods.stacked.architecture import Architecture
from fedsub.methods.stacked.backbones import GraphSAGE
from fedsub.methods.stacked.growth import Grown, grow
from fedsub.methods.stacked.inputs import Inputs
from fedsub.methods.stacked.optimiser import make_adam
from fedsub.methods.stacked.parameters import Parameters, linear_start, prefixed, stack
from fedsub.methods.stacked.segments import aligned, segment_product


@dataclass(frozen=True)
class FedSagePlusOptions(Options):
    generator_epochs: Size = 20
    """Full-batch steps of every generator before the federation trains."""
    generator_learning_rate: NonNegative = tunable(0.001, log=(1e-4, 0.01))
    """Adam's learning rate for the generator."""
    hidden_share: Share = tunable(0.5, linear=(0.1, 0.9))
    """h, the share of the sampled nodes that is hidden, in [0, 1]."""
    neighbours: Size = tunable(5, choices=(1, 5, 10))
    """p, maximum number of neighbours generated for one node; 0 is FedAvg on the unchanged graph."""
    noise: NonNegative = 1.0
    """Standard deviation of the noise added to the latent vectors."""
    latent: Count = 128
    """Width of both layers of the generator's encoder."""
    narrow: Count = 256
    """Width of the generator's first layer."""
    wide: Count = 2048
    """Width of the generator's second layer."""
    feature_weight: NonNegative = 1.0
    """Weight of the distances to true features, of the own client and of others."""
    hidden_from: Literal["validation", "all"] = "validation"
    """Nodes of which a share is hidden: a client's validation nodes (public code) or all (paper)."""
    average: Literal["models", "gradients"] = "models"
    """Server's average: of `models` (FedAvg), or of `gradients` in every epoch, with one step (FedStruct)."""
    generated: Literal["as-generated", "row-normalised"] = "as-generated"
    """Rows that mend the graphs: the generator's, or each divided by the sum of its absolute values. If true
    features are row-normalised, the generator's rows are about thirty times as long and dominate the true
    neighbours (results/notes/fedpub-2.md). The generator always trains on its rows as generated."""

    def unused(self, backbone: str) -> Mapping[str, str]:
        if self.neighbours:
            return {}
        kept = ("neighbours", "average")
        return {item.name: "neighbours above 0" for item in fields(self) if item.name not in kept}


@dataclass(frozen=True)
class FedSageTrueOptions(Options):
    average: Literal["models", "gradients"] = "models"
    """Server's average: of `models` (FedAvg), or of `gradients` in every epoch, with one step (FedStruct)."""


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

    def __init__(
        self,
        clients: int,
        width: int,
        options: FedSagePlusOptions,
        seed: int,
        device: torch.device | str,
    ) -> None:
        """`width` is d. All clients have the same initial parameters; every draw comes from `seed`."""
        self.clients, self.width, self.options, self.seed = clients, width, options, seed
        self.device = torch.device(device)
        self.random = torch.Generator().manual_seed(seed)
        self.encoder = GraphSAGE(Architecture("graphsage", (options.latent, options.latent), dropout=0.0))
        start = self.encoder.initial(width, 1, self.random)
        # z is never negative. With random signs about every second start has d̂ < 0 for all nodes, so that
        # its ReLU has no gradient and stays dead.
        start |= {name: start[name].abs() for name in self.encoder.head}
        start |= prefixed("narrow", linear_start(options.latent, options.narrow, self.random))
        start |= prefixed("wide", linear_start(options.narrow, options.wide, self.random))
        self.parameters = stack(start, clients, device)
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
        missing = torch.relu(self.encoder.classify(inputs, latent, self.parameters)).squeeze(1)
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
            pieces.append(torch.tanh(add_bias(summed, part["slot.bias"], runs)[:, : self.width]))
            owners.append(node[row])
        owner, order = torch.cat(owners).sort(stable=True)
        return Generated(torch.cat(pieces)[order], owner), missing
