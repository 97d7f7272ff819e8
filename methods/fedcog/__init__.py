"""FedCog: exact graph convolution over coupled graphs.

Lei et al., Federated Learning over Coupled Graphs, IEEE TPDS 2023. A propagation has three steps:
    internal: ĥ_u = Σ_{v ∈ N_i(u)} β_v h_v at the nodes (self-loop included) and at the stand-ins
              that a client keeps for its neighbours at other clients, β_v = (1 + d_v)^(−1/2)
    travel:   a stand-in's value is sent to the client that owns the node
    border:   h_u = (1 + d_u)^(−1/2) (ĥ_u + Σ arrived)
Together they give Â h on the whole graph (theorem 1). Variants (section 4.3), L hops, X the features:
    sgc     H = Â^L X, once before training
    appnp   h ← (1 − α) Â h + α X, once
    gbp     H = Σ_l α (1 − α)^l P^l X, P = D̃^(−r) Ã D̃^(r−1), once
    gprgnn  H = Σ_l γ_l Â^l X, propagated once, γ learned and averaged like the weights
    gcn     relu(Â h W) in every layer, with an exchange in every step, forwards and backwards: client
            k's weights get the gradient of K Σ_j p_j F_j, F_j client j's loss, and are averaged evenly
Except with gcn, the propagated rows need no neighbours: clients train a linear model (or one hidden layer)
under FedAvg, FedDyn, FedAdagrad or FedAdam.

Departures:
- The sum over l with weights α (1 − α)^l is GBP's own (Chen et al. 2020, eq. 2).
- An absent client sends neither models nor values; values that were propagated once stay available.
  With gcn its stand-ins keep in training, layer by layer, the values of its last step (at first zero), and no
  gradient flows back through them. Evaluation uses every client.
- Theorem 2 holds while β is secret (section 4.5). A stand-in with one neighbour v carries β_v x_v: the
  receiver knows x_v up to a factor, and x_v itself if the sum or the largest entry of its row is known, as
  with row-normalised or 0/1 features. LNNC does not prevent this. With `input_norm` and propagated features
  β_v itself is sent, as the propagated column of ones.
LNNC (joins nearest neighbours) and others: `FedCogOptions`, `CoupledConvolution`, `coupling.exposed`.
"""

import math
import time
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from fedsub.datasets.federation import Federation
from fedsub.datasets.graph import as_feature_tensor, select_features
from fedsub.methods.core.base import BOTH_TASKS, prepare, register
from fedsub.methods.core.channel import size_of, unformed
from fedsub.methods.core.steps import begin_round
from fedsub.methods.fedcog.coupling import CoupledConvolution, connect, exposed
from fedsub.methods.fedcog.features import FeaturePropagation, as_matrix, folded, mixed_hops, plain_seconds
from fedsub.methods.fedcog.options import FedCogOptions
from fedsub.methods.fedopt import ServedMethod
from fedsub.methods.stacked.activation import Dropout, trains
from fedsub.methods.stacked.inputs import Inputs
from fedsub.methods.stacked.networks.gprgnn import start_of_hops
from fedsub.methods.stacked.parameters import Parameters, stack

MEBI = 2**20
"""Bytes of one MB in the paper's Table 4."""


@register(
    "fedcog",
    title="FedCog",
    paper="Lei et al. 2023",
    options=FedCogOptions,
    tasks=BOTH_TASKS,
    backbones=("sgc", "gcn"),
    breaks_privacy="lnnc=false: clients can solve for features of nodes whose neighbours are all theirs",
    exposes=(
        "lnnc_alone",
        "nodes with external neighbours only: each is its client's only node, so that LNNC has nothing to "
        "join it to (Theorem 2 applies)",
    ),
    simulation_only="clients sum over neighbours at other clients",
)
class FedCog(ServedMethod):
    """A coupled convolution trained with a server rule.

    `extras`: `lnnc_edges` and `lnnc_alone`; `lnnc_pct` and `intra_edge_pct`, in % of the undirected edges;
    `propagation_seconds` and `propagation_mb` (MB of 2^20 bytes that the channel carried before training;
    `…_dense`, `…_sparse` and `…_nonzero` for each `wire`), with gcn `propagation_mb_per_round`; per round
    `update_seconds` (local epochs and exchange) and `update_mb` (parameters up and down);
    `seconds_ratio_to_update`, `seconds_ratio_to_central` (with `timing`) and `mb_ratio_to_update`.
    """

    labelled_outputs_only = False
    client_state = ("last_values", "travelled")
    convolution: CoupledConvolution
    training: tuple[Inputs, Tensor] | None = None
    """Inputs and rows, (t,), of the training nodes, if training reads only these; else None."""
    loss_weights: Tensor
    """(K,) K p_k, weights of the clients' losses with gcn."""
    travelled: int = 0
    """Bytes sent between clients in training steps so far."""
    last_values: list[Tensor]
    """Of every layer (S, width), stand-ins' values in their client's last step, the layer first whose turn is
    next; only if some clients are absent."""

    @property
    def kind(self) -> str:
        return self.options.kind(self.setting.architecture.backbone)

    def build(self) -> None:
        """Prepare rule and the network that follows the propagation; with gcn the setting's own."""
        given, hidden = self.setting.architecture, self.options.hidden
        # If propagated, the input is normalised before that; its gain and bias are part of the weights.
        if self.kind == "gcn":
            network = replace(given, backbone="gcn")
        elif hidden > 0:
            network = replace(given, backbone="mlp", hidden=(hidden,), head="linear", input_norm=False)
        else:
            network = replace(given, backbone="sgc", hops=0, input_norm=False)
        self.architecture = network
        super().build()
        if self.kind == "gcn":
            # Every client's step minimises Σ p_k F_k, even if it has no training nodes.
            self.loss_weights = self.shares * len(self.shares)
            self.shares = torch.full_like(self.shares, 1 / len(self.shares))
            begin_round(self, 1)

    @property
    def normalises(self) -> bool:
        """Whether features are layer-normalised before propagation, with a column of ones appended."""
        return self.setting.architecture.input_norm and self.kind != "gcn"

    def make_inputs(self) -> Inputs:
        """Couple the graphs and propagate the features; with gcn every step propagates instead."""
        federation = self._coupled()
        graph, features, sizes = federation.graph, federation.features, federation.sizes
        if self.kind == "gcn":
            self.last_values = []
            convolution = partial(self.convolution, on_travel=self._travel)
            return prepare(self, graph, features, sizes, convolution=convolution)
        features = self.propagated()
        # The features have been propagated already.
        further = {"convolution": lambda h: h}
        if self.task.name == "node-classification":
            rows = federation.train.nonzero().squeeze(1)
            chosen, labelled = select_features(features, rows.numpy()), federation.count(federation.train)
            self.training = prepare(self, graph, chosen, labelled, **further), rows.to(self.device)
        return prepare(self, graph, features, sizes, **further)

    def _coupled(self) -> Federation:
        """Apply LNNC and build the coupled graphs; return the federation after LNNC."""
        options, given = self.options, self.federation
        federation = connect(given, options.lnnc_isolated) if options.lnnc else given
        exponent = options.exponent if self.kind == "gbp" else 0.5
        device = self.device if self.kind == "gcn" else "cpu"
        self.convolution = CoupledConvolution(federation, exponent, device)
        inside = given.graph.num_edges() // 2
        original = max(inside + self.convolution.external / 2, 1)
        added = federation.graph.num_edges() // 2 - inside
        alone = int(exposed(federation, options.lnnc_isolated).sum()) if options.lnnc else 0
        self.extras |= {
            "lnnc_edges": added,
            "lnnc_alone": alone,
            "lnnc_pct": 100 * (added / original),
            "intra_edge_pct": 100 * (inside / original),
        }
        return federation

    def propagated(self) -> Tensor:
        """The classifier's constant input, (n, d), with gprgnn (n, (L + 1) d), hop after hop."""
        features = as_matrix(self.federation.features, self.normalises)
        step = FeaturePropagation(self.convolution)
        start = time.perf_counter()
        result = mixed_hops(self.kind, features, step, self.hops, self.options.restart)
        self.extras["propagation_seconds"] = time.perf_counter() - start
        forms = step.sent()
        self.channel.once_up(sums=forms[self.options.wire])
        self.extras["propagation_mb"] = self.channel.bytes_once / MEBI
        self.extras |= {f"propagation_mb_{form}": size_of(*sent) / MEBI for form, sent in forms.items()}
        if self.options.timing:
            self.extras |= plain_seconds(self.federation, features, self.hops)
        return as_feature_tensor(result)

    @property
    def hops(self) -> int:
        return self.options.hops or (self.setting.architecture.hops if self.kind == "sgc" else 10)

    def initial_parameters(self) -> Parameters:
        further: Parameters = {}
        if self.normalises:
            width = self.federation.width
            further = {"norm.gain": torch.ones(width), "norm.bias": torch.zeros(width)}
        if self.kind == "gprgnn":
            further["hops"] = start_of_hops(self.options.restart, self.hops)
        return super().initial_parameters() | stack(further, self.federation.clients, self.device)

    def logits(self, dropout: Dropout | None) -> Tensor:
        """Outputs, (n, C). If training reads only training nodes, the other rows are then zero."""
        parameters = self.parameters if self.kind == "gcn" else folded(self.parameters)
        if self.training is None or not trains(dropout):
            return self.backbone.forward(self.inputs, parameters, dropout)
        inputs, rows = self.training
        inputs.features.renew_gradients()
        out = self.backbone.forward(inputs, parameters, dropout)
        return out.new_zeros(self.federation.nodes, out.shape[1]).index_copy(0, rows, out)

    def objective(self, logits: Tensor) -> Tensor:
        """The clients' losses and the rule's penalty, (); with gcn the losses are K Σ p_k F_k, whose gradient
        reaches every client that contributed to client k's outputs."""
        if self.kind != "gcn":
            return super().objective(logits)
        weights = self.loss_weights
        if not self.channel.everyone:
            weights = weights * self.working
            weights = weights * (self.working.sum() / weights.sum().clamp(min=1e-12))
        losses = torch.dot(weights, self.task.client_loss(logits))
        return losses + self.rule.penalty(self.parameters, self.received)

    def _travel(self, values: Tensor) -> Tensor:
        """In a training step, count each value sent to its owner and its gradient sent back."""
        if not values.requires_grad:
            return values
        sent = unformed(*values.shape)
        if not self.channel.everyone:
            working = self.working[self.convolution.ends]
            sent = unformed(int(working.all(dim=1).sum()), values.shape[1])
            known = len(self.last_values) == self.backbone.hops
            last = self.last_values.pop(0) if known else torch.zeros_like(values)
            values = torch.where(working[:, :1], values, last)
            self.last_values.append(values.detach())
        self.travelled += 2 * size_of(sent)
        self.channel.rows_up(hidden=sent, gradients=sent)
        return values

    def finish(self) -> None:
        extras, channel, rounds = self.extras, self.channel, self.schedule.rounds
        extras["update_seconds"] = update = self.seconds["train"] / rounds
        extras["update_mb"] = (channel.bytes_up + channel.bytes_down - self.travelled) / rounds / MEBI
        if self.kind == "gcn":
            extras["propagation_mb_per_round"] = self.travelled / rounds / MEBI
            return
        seconds = extras["propagation_seconds"]
        extras["seconds_ratio_to_update"] = seconds / update if update else math.nan
        extras["mb_ratio_to_update"] = extras["propagation_mb"] / extras["update_mb"]
        if self.options.timing:
            extras["seconds_ratio_to_central"] = seconds / extras["propagation_seconds_central"]
