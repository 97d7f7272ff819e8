"""FedCog: exact graph convolution over coupled graphs.

Lei et al., Federated Learning over Coupled Graphs, IEEE TPDS 2023. A propagation is split in three:
    internal: ĥ_u = Σ_{v ∈ N_i(u)} β_v h_v at the nodes (self-loop included) and at the stand-ins
              that a client keeps for its neighbours at other clients, β_v = (1 + d_v)^(−1/2)
    travel:   a stand-in's value goes to the client that owns the node
    border:   h_u = (1 + d_u)^(−1/2) (ĥ_u + Σ arrived)
which is Â h on the whole graph (theorem 1). The variants (section 4.3), L hops, X the features:
    sgc     H = Â^L X, once before training
    appnp   h ← (1 − α) Â h + α X, once
    gbp     H = Σ_l α (1 − α)^l P^l X, P = D̃^(−r) Ã D̃^(r−1), once
    gprgnn  H = Σ_l γ_l Â^l X, propagated once, γ learned and averaged like the weights
    gcn     relu(Â h W) in every layer, with an exchange in every step, forwards and backwards: client
            k's weights get the gradient of K Σ_j p_j F_j, F_j client j's loss, and are averaged evenly
Once propagated, a client's rows need no neighbour: training is a linear model (or one hidden layer)
under FedAvg, FedDyn, FedAdagrad or FedAdam.

Departures and readings:
- P follows the printed eqs. (16) and (17); the paper's text names D̃^(r−1) Ã D̃^(−r), the same with r
  turned into 1 − r. The sum over l with weights α (1 − α)^l is GBP's own (Chen et al. 2020, eq. 2).
- GPR-GNN's γ_l start at α (1 − α)^l, the last at (1 − α)^L; the paper gives no start.
- The update sizes of Table 4 are, to the digit, those of a network d → 100 → C sent both ways by 100
  clients: `hidden = 100`. The paper does not say whether a ReLU stands between; here one does.
- LNNC joins nodes that have neighbours, all elsewhere; `lnnc_isolated` also joins nodes that have none.
  A client of one node has nothing to join it to: such a node stays exposed to Theorem 2, and
  `extras["lnnc_alone"]` counts them.
- With `input_norm` features are normalised before they are propagated, as a network on the whole graph does;
  a column of ones travels with them, for the bias.
- Of a client that is absent in a round neither models nor values travel. What was propagated once is there.
  With gcn the stand-ins that it computes keep in training the values that they had in its last step (at first
  zero), layer by layer, and nothing flows back through them. Evaluation asks every client.
- Clients may overlap here, see `methods.fedcog.coupling.couple`.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace

import torch
from torch import Tensor

from fedsub.datasets.graph import select_features
from fedsub.methods.core.base import BOTH_TASKS, prepare, register
from fedsub.methods.core.participation import begin_round
from fedsub.methods.core.server_rules import ServedMethod, ServerRule
from fedsub.methods.core.sizes import size_of, unformed
from fedsub.methods.fedcog.coupling import CoupledConvolution, Coupling, couple
from fedsub.methods.fedcog.features import (
    FeaturePropagation,
    Matrix,
    PlainPropagation,
    as_features,
    as_matrix,
    mixed_hops,
    normalised,
)
from fedsub.methods.fedcog.lnnc import Protected, connect
from fedsub.methods.fedcog.options import FedCogOptions
from fedsub.methods.feddyn import DynamicRegularisation
from fedsub.methods.fedopt import AdaptiveServer, FedAdagradOptions, FedAdamOptions
from fedsub.methods.stacked.activation import Dropout, trains
from fedsub.methods.stacked.architecture import Architecture
from fedsub.methods.stacked.inputs import Inputs
from fedsub.methods.stacked.parameters import Parameters, stack

MEBI = 2**20
"""Bytes of one MB in the paper's Table 4."""
SMALLEST = 1e-12
"""Least sum of weights that is divided by."""
DEEP_HOPS = 10
"""Hops of APPNP, GBP and GPR-GNN in their papers."""


@register(
    "fedcog",
    title="FedCog",
    paper="Lei et al. 2023",
    options=FedCogOptions,
    tasks=BOTH_TASKS,
    backbones=("sgc", "gcn"),
    exchanges="sums over neighbours at the border (once, or in every step with gcn), model parameters",
    breaks_privacy="lnnc=false: clients can solve for features of nodes whose neighbours are all theirs",
    exposes=(
        "lnnc_alone",
        "nodes with external neighbours only: each is its client's only node, so that LNNC has nothing to "
        "join it to (Theorem 2 applies)",
    ),
    simulation_only="clients sum over neighbours at other clients",
)
class FedCog(ServedMethod):
    """A server rule over a coupled convolution.

    `extras`: `lnnc_edges`, `lnnc_share` (of the graph's undirected edges), `lnnc_alone`,
    `intra_edge_share`, `stand_ins`; the two shares in percent, `lnnc_pct` and `intra_edge_pct`;
    `propagation_seconds` and `propagation_mb` (of 2^20 bytes, before training, what the channel carried;
    `…_dense`, `…_sparse` and `…_nonzero` by `wire`), with gcn `propagation_mb_per_round`; per round
    `update_seconds` (local epochs and exchange) and `update_mb` (parameters up and down);
    `seconds_ratio_to_update`, `seconds_ratio_to_central` (with `timing`), `mb_ratio_to_update` and
    `mb_…_ratio_to_update`.
    """

    client_state = ("last_values", "travelled")
    transient = ("layer",)
    protected: Protected
    coupling: Coupling
    convolution: CoupledConvolution
    training: tuple[Inputs, Tensor] | None = None
    """What a training step reads where training nodes alone count, and their rows, (t,)."""
    loss_weights: Tensor
    """(K,) K p_k, weights of the clients' losses with gcn."""
    travelled: int = 0
    """Bytes between clients in the training steps so far."""
    last_values: list[Tensor]
    """(S, width) of every layer, what each stand-in's client sent in its last step; if some are absent."""
    layer: int = 0
    """Layers passed in this step."""

    # ------------------------------------------------------------------ set-up

    @property
    def kind(self) -> str:
        """The convolution that runs."""
        chosen = self.options.convolution
        return self.setting.architecture.backbone if chosen == "backbone" else chosen

    def build(self) -> None:
        """The rule and the network; with gcn the p_k move into the losses and the average is a plain one."""
        self.architecture = self._after_propagation()
        super().build()
        if self.kind == "gcn":
            # The step is one of Σ p_k F_k, also for a client without training nodes of its own.
            self.loss_weights = self.shares * len(self.shares)
            self.shares = torch.full_like(self.shares, 1 / len(self.shares))
            begin_round(self, 1)

    def _after_propagation(self) -> Architecture:
        """What follows the propagation; with gcn the setting's own network."""
        given = self.setting.architecture
        if self.kind == "gcn":
            return replace(given, backbone="gcn")
        # The input is normalised before it is propagated, its gain and bias belong to the weights.
        if self.options.hidden > 0:
            hidden = (self.options.hidden,)
            return replace(given, backbone="mlp", hidden=hidden, head="linear", input_norm=False)
        return replace(given, backbone="sgc", hops=0, input_norm=False)

    @property
    def normalises(self) -> bool:
        """Whether propagated features were layer-normalised first, with a column of ones beside them."""
        return self.setting.architecture.input_norm and self.kind != "gcn"

    def make_rule(self) -> ServerRule:
        """The rule that `server` names."""
        options = self.options
        if options.server == "feddyn":
            return DynamicRegularisation(options.alpha)
        if options.server == "fedavg":
            return ServerRule()
        default = FedAdamOptions() if options.server == "fedadam" else FedAdagradOptions()
        rate = options.server_learning_rate or default.server_learning_rate
        return AdaptiveServer(replace(default, server_learning_rate=rate, tau=options.tau or default.tau))

    def make_inputs(self) -> Inputs:
        """Couple the graphs, then propagate the features (or, with gcn, leave that to every step)."""
        self.couple()
        federation = self.protected.federation
        graph, features, sizes = federation.graph, federation.features, federation.sizes
        if self.kind == "gcn":
            self.last_values = []
            convolution = replace(self.convolution, device=self.device, on_travel=self._travel)
            return prepare(self, graph, features, sizes, convolution=convolution)
        features = as_features(self.propagated())
        if self.task.name == "node-classification":
            rows = federation.train.nonzero().squeeze(1)
            chosen, labelled = select_features(features, rows.numpy()), federation.count(federation.train)
            self.training = (
                prepare(self, graph, chosen, labelled, convolution=_identity),
                rows.to(self.device),
            )
        return prepare(self, graph, features, sizes, convolution=_identity)

    def couple(self) -> None:
        """Apply LNNC, build the coupled graphs, and note their sizes in `extras`."""
        options = self.options
        self.protected = Protected(self.federation, 0, 0)
        if options.lnnc:
            self.protected = connect(self.federation, options.lnnc_isolated)
        self.coupling = couple(self.protected.federation)
        exponent = options.exponent if self.kind == "gbp" else 0.5
        self.convolution = CoupledConvolution(self.coupling, exponent)
        inside, between = self.coupling.edges
        original = inside - self.protected.edges + between / 2
        self.extras["lnnc_edges"] = self.protected.edges
        self.extras["lnnc_share"] = self.protected.edges / max(original, 1)
        self.extras["lnnc_alone"] = self.protected.alone
        self.extras["intra_edge_share"] = (inside - self.protected.edges) / max(original, 1)
        self.extras["lnnc_pct"] = 100 * self.extras["lnnc_share"]
        self.extras["intra_edge_pct"] = 100 * self.extras["intra_edge_share"]
        self.extras["stand_ins"] = self.coupling.stand_ins

    def propagated(self) -> Matrix:
        """The constant input of the classifier, (n, d), with gprgnn (n, (L + 1) d), hop after hop."""
        features = as_matrix(self.federation.features)
        if self.normalises:
            features = normalised(features)
        step = FeaturePropagation(self.convolution)
        start = time.perf_counter()
        result = mixed_hops(self.kind, features, step, self.hops(), self.options.restart)
        self.extras["propagation_seconds"] = time.perf_counter() - start
        forms = step.sent.forms()
        self.channel.once(*forms[self.options.wire])
        self.extras["propagation_mb"] = self.channel.bytes_once / MEBI
        self.extras |= {f"propagation_mb_{form}": size_of(*sent) / MEBI for form, sent in forms.items()}
        if self.options.timing:
            self._time_plain(features)
        return result

    def hops(self) -> int:
        """Number of propagations L."""
        if self.options.hops > 0:
            return self.options.hops
        return self.setting.architecture.hops if self.kind == "sgc" else DEEP_HOPS

    def _time_plain(self, features: Matrix) -> None:
        """Seconds of the same hops without coupling: per client, and on the whole graph."""
        whole, _ = self.federation.merged()
        cases = {
            "fedavg": (self.federation.graph, features),
            "central": (whole.graph, as_matrix(whole.features)),
        }
        for name, (graph, h) in cases.items():
            step = PlainPropagation(graph)
            start = time.perf_counter()
            for _ in range(self.hops()):
                h = step(h)
            self.extras[f"propagation_seconds_{name}"] = time.perf_counter() - start

    def initial_parameters(self) -> Parameters:
        """The network's, and for gprgnn the hops' weights α (1 − α)^l, the last (1 − α)^L."""
        parameters = super().initial_parameters()
        if self.normalises:
            width = self.federation.width
            norm = {"norm.gain": torch.ones(width), "norm.bias": torch.zeros(width)}
            parameters |= stack(norm, self.federation.clients, self.device)
        if self.kind == "gprgnn":
            alpha, hops = self.options.restart, self.hops()
            start = torch.tensor([alpha * (1 - alpha) ** hop for hop in range(hops)] + [(1 - alpha) ** hops])
            weight = start.repeat(self.federation.clients, 1).to(self.device)
            parameters["hops"] = weight.requires_grad_()
        return parameters

    # ------------------------------------------------------------------- round

    def logits(self, dropout: Dropout | None) -> Tensor:
        """Outputs of all nodes, (n, C); in training, where only training nodes count, of those alone,
        and zero elsewhere."""
        self.layer = 0
        parameters = self._network()
        if self.training is None or not trains(dropout):
            return self.backbone.forward(self.inputs, parameters, dropout)
        inputs, rows = self.training
        inputs.features.renew_gradients()
        out = self.backbone.forward(inputs, parameters, dropout)
        return out.new_zeros(self.federation.nodes, out.shape[1]).index_copy(0, rows, out)

    def _network(self) -> Parameters:
        """The backbone's parameters, its first weight W that of the propagated columns.

        With normalisation diag(gain) W and a row biasᵀ W for the propagated ones: (Ŝ X̂ diag(g) + Ŝ 1 bᵀ) W is
        what propagating the normalised features gives. With gprgnn γ_l times that for each hop in turn, so
        that [X, ÂX, …] times it is (Σ_l γ_l Â^l X) W.
        """
        parameters = dict(self.parameters)
        name = "layers.0.weight" if "layers.0.weight" in parameters else "head.weight"
        if self.normalises:
            weight, gain, bias = (parameters.pop(part) for part in (name, "norm.gain", "norm.bias"))
            parameters[name] = torch.cat([gain.unsqueeze(2) * weight, bias.unsqueeze(1) @ weight], dim=1)
        if self.kind == "gprgnn":
            weight, hops = parameters[name], parameters.pop("hops")
            spread = hops[:, :, None, None] * weight.unsqueeze(1)
            parameters[name] = spread.reshape(len(weight), -1, weight.shape[-1])
        return parameters

    def clients_loss(self, logits: Tensor) -> Tensor:
        """The sum of the clients' losses; with gcn K Σ p_k F_k, whose gradient reaches every client
        that had a share in client k's outputs."""
        if self.kind != "gcn":
            return super().clients_loss(logits)
        weights = self.loss_weights
        if not self.channel.everyone:
            weights = weights * self.working
            weights = weights * (self.working.sum() / weights.sum().clamp(min=SMALLEST))
        return torch.dot(weights, self.task.client_loss(logits))

    def _travel(self, values: Tensor) -> Tensor:
        """A training step sends each value to its owner, and its gradient back."""
        if not values.requires_grad:
            return values
        sent = unformed(*values.shape)
        if not self.channel.everyone:
            working = self.working[self.coupling.ends.to(self.device)]
            sent = unformed(int(working.all(dim=1).sum()), values.shape[1])
            if self.layer == len(self.last_values):
                self.last_values.append(torch.zeros_like(values))
            values = torch.where(working[:, :1], values, self.last_values[self.layer])
            self.last_values[self.layer] = values.detach()
            self.layer += 1
        self.travelled += 2 * size_of(sent)
        self.channel.rows_up(sent, sent)
        return values

    def finish(self) -> None:
        """The figures per round."""
        rounds = self.schedule.rounds
        total = self.channel.bytes_up + self.channel.bytes_down
        self.extras["update_seconds"] = self.seconds["train"] / rounds
        self.extras["update_mb"] = (total - self.travelled) / rounds / MEBI
        if self.kind == "gcn":
            self.extras["propagation_mb_per_round"] = self.travelled / rounds / MEBI
            return
        seconds, update = self.extras["propagation_seconds"], self.extras["update_seconds"]
        self.extras["seconds_ratio_to_update"] = seconds / update if update else math.nan
        for form in ("", "_dense", "_sparse", "_nonzero"):
            sent = self.extras[f"propagation_mb{form}"]
            self.extras[f"mb{form}_ratio_to_update"] = sent / self.extras["update_mb"]
        if "propagation_seconds_central" in self.extras:
            self.extras["seconds_ratio_to_central"] = seconds / self.extras["propagation_seconds_central"]


def _identity(h: Tensor) -> Tensor:
    """No propagation: the features have been propagated already."""
    return h
