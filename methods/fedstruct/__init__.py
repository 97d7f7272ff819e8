"""FedStruct: the global structure enters every client's prediction, its features stay at home.

Aliakbari, Östman & Graell i Amat, FedStruct: Federated Decoupled Learning over Interconnected Graphs.
For node v of client i (eq. 20), with the structure features s_u of `methods.structure`:
    logits_v = Σ_{u ∈ V} ā_vu g(s_u) + Σ_{u ∈ V_i} ā⁽ⁱ⁾_vu f(x_u),    Ā = Σ_l β_l (D̃⁻¹(A + I))^l
f and g are LayerNorm → Linear → ReLU → dropout → Linear. Hop2Vec learns the s_u with the model. The
server averages the clients' gradients and steps Adam: one shared model (see `methods.fedsgd`).

Version a: the server knows all edges, propagates g(S) and sends each client its rows and their
Jacobians (algorithms 1 and 2). Version b: nobody does; clients build their rows of Ā with algorithm 3
(`methods.fedstruct.rows`), pruned or not. Unpruned, both give the same numbers.

Departures: Ā takes its last power alone by default, as the reference code does; `beta=all` weighs every
power 1/L (the paper leaves the β open). Where the rows of version b for all labelled and evaluated nodes
would exceed `rows_limit_gb`, Ā g(S) is propagated, which equals them. Hop2Vec keeps g (table 4 gives its
layers, eq. 23 has none: `transform=none`). Clients' mean gradients are weighted by the schedule: eq. (8),
1/|labelled| for every labelled node, is `training-nodes`; the reference code and the protocols `fedstruct-…`
weigh by all nodes of a client, `nodes`. `methods.fedstruct.bytes` says which bytes count.

A client that is absent in a round adds no gradient in it, as in FedSGD. Its nodes stay in Ā, which is known
before the first round, and their structure features stay with whoever propagates them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import dgl
import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.datasets.errors import UserError
from fedsub.datasets.federation import as_graph
from fedsub.methods.core.base import register
from fedsub.methods.core.channel import Message
from fedsub.methods.core.setting import Setting
from fedsub.methods.fedsgd import FedSGD
from fedsub.methods.fedstruct.bytes import Traffic
from fedsub.methods.fedstruct.features import behind_last_edge, combined, hop_weights, structure_features
from fedsub.methods.fedstruct.options import FedStructOptions
from fedsub.methods.fedstruct.rows import acquire
from fedsub.methods.stacked.activation import Dropout, trains
from fedsub.methods.stacked.architecture import NETWORKS, Architecture
from fedsub.methods.stacked.backbones import Backbone, make_backbone
from fedsub.methods.stacked.features import DenseFeatures
from fedsub.methods.stacked.inputs import Inputs
from fedsub.methods.stacked.parameters import Parameters, prefixed, stack, unprefixed
from fedsub.methods.stacked.propagation import mean_weight, propagate, use_kernel, with_self_loops
from fedsub.methods.structure import global_graph
from fedsub.methods.tasks import NodeClassification


@register(
    "fedstruct",
    title="FedStruct",
    paper="Aliakbari et al. 2024",
    options=FedStructOptions,
    backbones=NETWORKS,
    exchanges="a: gradients, structure embeddings and their Jacobians; b: gradients, once powers of the "
    "adjacency matrix and structure features (private: sums of them)",
    breaks_privacy="version a, gdv and n2v need a server that knows every edge; version b with h2v or deg "
    "does not",
    simulation_only="clients use structure embeddings of each other's nodes",
)
class FedStruct(FedSGD):
    """One model over two inputs: the clients' own features, and everybody's structure."""

    labelled_outputs_only = False

    options: FedStructOptions
    task: NodeClassification

    adjacency: sp.csr_matrix
    """(m, m) of the global graph: all nodes that some client holds."""
    owner: np.ndarray
    """(m,) a client that holds the node."""
    owned: Tensor
    """(m, K), 1 at each node's owner; in the private variant."""
    position: Tensor
    """(n,) row of each of the federation's nodes in the global graph."""
    features: Tensor
    """(m, d_s) S; for Hop2Vec its start."""
    structure_backbone: Backbone
    """g."""
    structure_inputs: Inputs
    global_graph: dgl.DGLGraph
    spread_global: partial[Tensor]
    """Multiplication by the global Â, or by the pruned Ā."""
    spread_local: partial[Tensor]
    """Multiplication by the clients' own Â."""
    structure_weights: np.ndarray
    """β of the global powers, (L_s,)."""
    local_weights: np.ndarray
    """β of the local powers, (L,)."""
    used: Tensor
    """(u,) nodes with a role; in version b."""
    rows: Tensor | None = None
    """(u, m) their rows of Ā in version b, where they fit in memory."""
    train_rows: Tensor
    """Those of the training nodes."""
    acquired: int = 0
    """Bytes that algorithm 3 sends."""
    traffic: Traffic

    def __init__(self, options: FedStructOptions, setting: Setting) -> None:
        if options.dropout >= 0:
            setting = replace(setting, architecture=replace(setting.architecture, dropout=options.dropout))
        super().__init__(options, setting)

    # ------------------------------------------------------------------ set-up

    def build(self) -> None:
        """Prepare both parts, and count what the algorithms will send."""
        self.architecture = self._network(self.options.feature_hidden)
        super().build()
        self.traffic = Traffic.of(self, torch.ones(self.federation.clients, dtype=torch.bool))
        self.channel.once(*self.traffic.once)

    def _network(self, hidden: str) -> Architecture:
        """A network of the method's own, with the protocol's dropout."""
        kind = "graphsage" if self.options.network == "graphsage" else "mlp"
        return self.architecture.perceptron(hidden, kind)

    def make_inputs(self) -> Inputs:
        """Client features for f; besides, everything that the structure part reads."""
        federation = self.federation
        self.adjacency, row = global_graph(federation)
        self.position, nodes = row.to(self.device), self.adjacency.shape[0]
        if self.options.version == "b" and nodes < federation.nodes:
            raise UserError("FedStruct's version b needs clients that share no node: use version=a")
        self.owner = np.zeros(nodes, dtype=np.int64)
        self.owner[row.numpy()] = federation.client.numpy()
        if self.options.private:
            owned = self.owner[:, np.newaxis] == np.arange(federation.clients)
            self.owned = torch.from_numpy(owned.astype(np.float32)).to(self.device)
        self._prepare_graphs()
        self.structure_backbone = make_backbone(self._network(self.options.structure_hidden))
        self.features = structure_features(
            self.adjacency, self.options, self.task.width, self.generator, self.setting.seed
        )
        self.structure_inputs = self.structure_backbone.prepare(
            self.global_graph, self.features, torch.tensor([nodes]), self.task.width, self.device
        )
        return super().make_inputs()

    def _prepare_graphs(self) -> None:
        self.global_graph = use_kernel(as_graph(self.adjacency.tocoo()), self.setting.kernel)
        whole = with_self_loops(self.global_graph)
        local = with_self_loops(self.federation.graph)
        self.spread_global = partial(propagate, whole, weight=mean_weight(whole).to(self.device))
        local_weight = mean_weight(local)
        if self.options.self_loops == "to-last-edge":
            # The loops are the last edges, and the only ones of these nodes.
            local_weight[-self.federation.nodes :][behind_last_edge(self.federation)] = 0
        self.spread_local = partial(propagate, local, weight=local_weight.to(self.device))
        self.structure_weights = hop_weights(self.options.beta, self.options.structure_hops)
        self.local_weights = hop_weights(self.options.beta, self.options.hops)
        if self.options.version == "b":
            self._acquire_rows()

    def _acquire_rows(self) -> None:
        """Version b: algorithm 3 for every node with a role."""
        federation = self.federation
        self.used = (federation.train | federation.validation | federation.test).nonzero().squeeze(1)
        rows, weights = self.position.cpu()[self.used].numpy(), self.structure_weights
        held, self.acquired = acquire(self.adjacency, self.owner, rows, weights, self.options)
        if held is None:
            return
        if isinstance(held, Tensor):
            self.rows = held.to(self.device)
            self.train_rows = self.rows[federation.train[self.used].to(self.device)]
            return
        entries = held.tocoo()
        graph = use_kernel(as_graph(entries.T), self.setting.kernel)
        self.spread_global = partial(propagate, graph, weight=torch.from_numpy(entries.data).to(self.device))
        self.structure_weights = np.ones(1, dtype=np.float32)

    def initial_parameters(self) -> Parameters:
        """f's and g's parameters, and Hop2Vec's S; each with a leading axis of length 1."""
        parameters = prefixed("feature", super().initial_parameters())
        if self.options.transform == "mlp":
            start = self.structure_backbone.initial(self.features.shape[1], self.task.width, self.generator)
            parameters |= prefixed("structure", stack(start, 1, self.device))
        if self.options.features == "h2v":
            parameters |= stack({"hop2vec": self.features}, 1, self.device)
        return parameters

    # ------------------------------------------------------------------- round

    def logits(self, dropout: Dropout | None) -> Tensor:
        """Eq. (20), (n, C). In training, where version b holds rows of Ā, other than labelled nodes get
        their own client's part alone: no loss reads them."""
        own = self.backbone.forward(self.inputs, unprefixed("feature", self.parameters), dropout)
        if self.options.inference == "structure" and not trains(dropout):
            own = torch.zeros_like(own)
        structure = self._structure(dropout)
        if self.options.network == "graphsage":
            return own + structure[self.position]
        own = combined(own, self.spread_local, self.local_weights)
        if self.options.private:
            structure = self._kept_apart(structure)
        if self.rows is None:
            spread = combined(structure, self.spread_global, self.structure_weights)
            return own + self._summed(spread[self.position])
        if not trains(dropout):
            return own.index_add(0, self.used.to(self.device), self._summed(self.rows @ structure))
        return own.index_add(0, self.task.train, self._summed(self.train_rows @ structure))

    def _kept_apart(self, structure: Tensor) -> Tensor:
        """g(S) in columns of its owner's own, zero in the others', (m, K·C): what is summed over these are
        the clients' sums over their own nodes, eq. (49)."""
        return (self.owned.unsqueeze(2) * structure.unsqueeze(1)).flatten(1)

    def _summed(self, spread: Tensor) -> Tensor:
        """A client's prediction from the sums that it was sent, (r, K·C) → (r, C); else as it is."""
        if not self.options.private:
            return spread
        return spread.view(len(spread), self.federation.clients, -1).sum(dim=1)

    def _structure(self, dropout: Dropout | None) -> Tensor:
        """g(S), (m, C), before propagation."""
        inputs = self.structure_inputs
        if self.options.features == "h2v":
            learned = self.parameters["hop2vec"].squeeze(0)
            if self.options.transform == "none":
                return learned
            normalised = functional.layer_norm(learned, learned.shape[1:])
            inputs = replace(inputs, features=DenseFeatures(normalised, inputs.segments, self.device))
        return self.structure_backbone.forward(inputs, unprefixed("structure", self.parameters), dropout)

    def send(self) -> Message:
        """The gradients, and what the version sends besides in every epoch."""
        if not self.channel.everyone:
            self.traffic = Traffic.of(self, self.working.cpu())
        self.channel.rows_up(*self.traffic.up)
        return super().send()

    def aggregate(self, sent: Message) -> Message:
        """The parameters after the server's step, and what the version answers besides; of Hop2Vec's S a
        client gets what it reads alone."""
        self.channel.rows_down(*self.traffic.down)
        answer = super().aggregate(sent)
        whole = self.options.version == "b" and not self.options.private
        return {name: value for name, value in answer.items() if whole or name != "hop2vec"}
