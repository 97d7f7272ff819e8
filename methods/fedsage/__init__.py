"""FedSage, FedSage+ and FedSage-true: subgraph federated learning with missing neighbours.

Zhang, Yang, Li, Sun, Yiu, Subgraph Federated Learning with Missing Neighbor Generation, NeurIPS 2021.

- FedSage: FedAvg of GraphSAGE on the clients' own graphs.
- FedSage+: each client i first trains a neighbour generator on its impaired graph (half of a sample of
  its nodes hidden). It then adds the generated neighbours to its whole graph, and FedAvg follows on the
  mended graphs. With V̄_i its remaining nodes, d_v the number and N_h(v) the set of v's hidden neighbours,
  δ the squared distance divided by the number of features:

      L_i = 1/|V̄_i| Σ_v smooth-L1(d̂_v, d_v)
          + 1/|V̄_i| Σ_v Σ_{p ≤ n̂_v} [ min_{u ∈ N_h(v)} δ(x̂_v^p, x_u), 0 if N_h(v) is empty,
                                      + Σ_{j ≠ i} min_{u ∈ V_j} δ(x̂_v^p, x_u) ]
          + task loss of a GraphSAGE on the impaired graph mended with all x̂_v^p

  Other clients do not send their terms of the sum: they return its gradient for the generated rows. A client
  that knows its rows and δ can compute from it the sum of the nearest true rows.
- FedSage-true (FedStruct, section 6): the graph is mended with the true features of the missing one-hop
  neighbours, an upper bound for FedSage+.

Departures: nodes are hidden among validation nodes, as in the public code; the paper says among all
(`hidden_from`). The public code replaces the minima over V_j by random neighbours at j, and takes all losses
only over training nodes; here both are the paper's. The paper does not divide distances by the number of
features; the code also divides by p. The weight of the other clients' part, a parameter in the paper, is 1 as
in the code. One phase trains everything with the federated part; the code first trains locally, then the last
layers in the federation. d̂ is rounded, in the code truncated; the whole graph is mended, in the code the
impaired one. The generators of all clients start equal. The layer of d̂ starts without negative weights (else
its ReLU is dead in every second run). No generator has weight decay. Added nodes are joined in both
directions. FedSage+ and FedSage-true use the setting's backbone (FED-PUB runs FedSage+ with GCN); the
generator's encoder and classifier are always GraphSAGE. FedStruct averages gradients instead of models
(`average`). If a protocol divides features by their row sums, generated rows can be divided too
(`generated`); FED-PUB does not say whether it does.
"""

import math
import time
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.datasets.graph import select_features
from fedsub.methods.core.base import BOTH_TASKS, PAPER_COMMUNICATION, Options, prepare, register
from fedsub.methods.core.channel import FLOAT, size_of
from fedsub.methods.core.training import DivergedError
from fedsub.methods.fedavg import FedAvg
from fedsub.methods.fedsage.generator import FedSagePlusOptions, Generated, GeneratorTraining, client_chunks
from fedsub.methods.fedsage.matching import OtherClients
from fedsub.methods.fedsage.mending import choose_hidden, mended_inputs
from fedsub.methods.fedsgd import FedSGD
from fedsub.methods.stacked.features import Features, NormalisedFeatures, is_dense
from fedsub.methods.stacked.inputs import Inputs, grow
from fedsub.methods.stacked.memory import return_freed_memory
from fedsub.methods.stacked.segments import Segments

PAPER = "Zhang et al. 2021"
BACKBONES = ("gcn", "sgc", "graphsage", "gat", "gprgnn")


@register("fedsage", title="FedSage", paper=PAPER, tasks=BOTH_TASKS, backbones=("graphsage",))
class FedSage(FedAvg):
    """FedAvg of GraphSAGE; absent clients are treated as in FedAvg."""


class Mended(FedSGD):
    """FedAvg, or with averaged gradients FedSGD, on graphs with additional nodes.

    All clients mend their graphs before the first round, also those that are absent later.
    """

    def build(self) -> None:
        self.one_model = self.options.average == "gradients"
        super().build()


@register(
    "fedsage+",
    title="FedSage+",
    paper=PAPER,
    options=FedSagePlusOptions,
    tasks=BOTH_TASKS,
    backbones=BACKBONES,
    version=2,
    scored_plain=True,
    simulation_only="clients train each other's generators on their nodes",
)
class FedSagePlus(Mended):
    """FedAvg on graphs mended with generated neighbours."""

    options: FedSagePlusOptions
    hidden: Tensor
    """(n,) bool, nodes hidden in the impaired graphs."""
    others: OtherClients | None
    """Search among the other clients' features; None if there is one client, and after the generators."""

    def make_inputs(self) -> Inputs:
        """Train the generators, then mend every client's graph."""
        start = time.perf_counter()
        generated = self.train_generators()
        self.extras["generator_seconds"] = time.perf_counter() - start
        self.extras["generated_neighbours"] = float(len(generated.owner))
        if not len(generated.owner):
            return super().make_inputs()
        federation = self.federation
        mended = generated.mend(federation.graph, federation.sizes)
        if is_dense(federation.features):
            known = federation.features.to_dense()
            features = torch.cat([known, generated.features.cpu()])[mended.order]
            sizes = self.model_sizes(mended.sizes)
            return prepare(self, mended.graph, features, sizes, position=mended.position)
        kind = NormalisedFeatures if self.setting.architecture.input_norm else Features
        segments = Segments(self.model_sizes(federation.sizes), self.device)
        own = kind(federation.features, segments, self.device)
        return mended_inputs(self.backbone, mended, own, generated.features, self.task.width)

    def finish(self) -> None:
        """Set `paper_communication_pct` as FED-PUB's Table 3: the model both ways, and the training nodes'
        features in four transfers a round. (Its 276.84 is 1 + 4·124·1,433 / (2·200,967): 124 training nodes a
        client.) Here features are only sent before training, and the channel counts them."""
        models = self.federation.clients if self.one_model else 1
        model = 2 * models * size_of(*self.parameters.values())
        rows = 4 * int(self.federation.train.sum()) * self.federation.width * FLOAT
        self.extras[PAPER_COMMUNICATION] = 100 * (1 + rows / model)

    def hide(self) -> None:
        """Draw the hidden nodes, and prepare the search among the other clients' features."""
        federation, options = self.federation, self.options
        validation = federation.validation
        sample = validation if options.hidden_from == "validation" else torch.ones_like(validation)
        random = np.random.default_rng(self.setting.seed)
        self.others = None
        if federation.clients > 1:
            features, client = federation.features.to(self.device), federation.client.to(self.device)
            self.others = OtherClients(features, client, federation.clients)
        self.hidden = choose_hidden(sample, federation.client, options.hidden_share, random)

    def train_generators(self) -> Generated:
        """Neighbours for every client's whole graph. Raises DivergedError if a loss is not finite."""
        self.hide()
        federation = self.federation
        found, predicted = [], []
        for chosen in client_chunks(federation.clients, federation.width, self.options):
            generated, missing = self._train_run(chosen)
            # Every epoch generates more rows, so that memory freed by earlier ones is in too small pieces.
            return_freed_memory()
            found.append(generated)
            predicted.append(missing)
        # Dense features take memory that the rounds need.
        self.others = None
        self.extras["predicted_missing_neighbours"] = float(torch.cat(predicted).mean())
        features = torch.cat([part.features for part in found])
        if self.options.generated == "row-normalised":
            features = functional.normalize(features, p=1.0)
        return Generated(features, torch.cat([part.owner for part in found]))

    def _train_run(self, chosen: range) -> tuple[Generated, Tensor]:
        """Neighbours, and d̂, for one chunk of clients; its generators are freed before the next chunk's."""
        training = GeneratorTraining(self, chosen)
        loss = torch.zeros(())
        for _ in range(self.options.generator_epochs):
            loss = training.epoch()
        if not math.isfinite(float(loss)):
            raise DivergedError(
                "fedsage+'s neighbour generator diverged: lower generator_learning_rate "
                f"(now {self.options.generator_learning_rate})"
            )
        return training.whole_graph()


@dataclass(frozen=True)
class FedSageTrueOptions(Options):
    average: Literal["models", "gradients"] = "models"
    """Server's average: of `models` (FedAvg), or of `gradients` in every epoch, with one step (FedStruct)."""


@register(
    "fedsage-true",
    title="FedSage-true",
    paper="Aliakbari et al. 2024",
    options=FedSageTrueOptions,
    tasks=BOTH_TASKS,
    backbones=BACKBONES,
    breaks_privacy="clients receive the true features of other clients' nodes",
    simulation_only="clients receive each other's features",
)
class FedSageTrue(Mended):
    """FedAvg on graphs mended with the true missing neighbours."""

    options: FedSageTrueOptions

    def make_inputs(self) -> Inputs:
        """Build every client's graph with one stand-in for each external node, however many copies of it
        other clients hold."""
        federation = self.federation
        source, node = federation.inter.edges()
        nodes, external = federation.source.nodes, federation.origin[source]
        # Each inter-edge once, by the node and the external node that it joins.
        chosen = np.unique((node * nodes + external).numpy(), return_index=True)[1]
        source, node, external = source[chosen], node[chosen], external[chosen]
        far = (federation.client[node] * nodes + external).numpy()
        _, first, stand_in = np.unique(far, return_index=True, return_inverse=True)
        # `node` and `stand_in` are (E,); `row`, (m,), is a row of the federation per stand-in, by client.
        row, ends = source[torch.from_numpy(first)], (torch.from_numpy(stand_in), node)
        mended = grow(federation.graph, federation.sizes, len(row), ends)
        neighbours = select_features(federation.features, row.numpy())
        self.channel.once_up(features=neighbours)
        self.channel.once_down(features=neighbours)
        self.extras["stand_ins"] = float(len(row))
        rows = mended.rows(row)
        return prepare(
            self,
            mended.graph,
            federation.features if self.one_model else select_features(federation.features, rows.numpy()),
            self.model_sizes(mended.sizes),
            position=mended.position,
            copied=rows if self.one_model else None,
        )
