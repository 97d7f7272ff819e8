"""FedStruct: every client predicts from the global structure and its own features, which it never sends.

Aliakbari, Östman & Graell i Amat, FedStruct: Federated Decoupled Learning over Interconnected Graphs.
For node v of client i (eq. 20), with the structure features s_u of `methods.structure`:
    logits_v = Σ_{u ∈ V} ā_vu g(s_u) + Σ_{u ∈ V_i} ā⁽ⁱ⁾_vu f(x_u),    Ā = (D̃⁻¹(A + I))^L
f and g are LayerNorm → Linear → ReLU → dropout → Linear. Hop2Vec learns the s_u with the model. The
server averages the clients' gradients and steps Adam: one shared model (see `methods.fedsgd`).

Version a: the server knows all edges, propagates g(S) and sends each client its rows and their
Jacobians (algorithms 1 and 2). Version b: nobody knows all edges; clients build their rows of Ā with
algorithm 3 (`methods.fedstruct.rows`), pruned or not. Without pruning both versions give the same numbers.

Departures: Ā is the last power alone, as in the reference code; the paper adds up all, with weights β that it
does not give. If version b's rows for all labelled and evaluated nodes would exceed 2.5 GiB, Ā g(S) is
propagated instead, with the same result. Hop2Vec keeps g, as in table 4; `transform=none` is eq. 23, without
g. Clients' mean gradients are weighted by labelled nodes in eq. (8) (`training-nodes`), by all nodes in the
reference code and the protocols `fedstruct-…` (`nodes`). `methods.fedstruct.bytes` says which bytes count.

An absent client adds no gradient (FedSGD). Its nodes and their s_u stay: Ā is known before the first round.
"""

from dataclasses import replace
from functools import partial

import dgl
import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.datasets.errors import UserError
from fedsub.datasets.graph import as_graph
from fedsub.methods.core.base import Message, register
from fedsub.methods.core.setting import Setting
from fedsub.methods.fedsgd import FedSGD
from fedsub.methods.fedstruct.bytes import Traffic
from fedsub.methods.fedstruct.options import FedStructOptions
from fedsub.methods.fedstruct.rows import behind_last_edge, pruned_blocks, pruned_rows, unpruned_rows
from fedsub.methods.stacked.activation import Dropout, trains
from fedsub.methods.stacked.architecture import NETWORKS, Architecture
from fedsub.methods.stacked.backbones import Backbone, make_backbone
from fedsub.methods.stacked.features import DenseFeatures
from fedsub.methods.stacked.inputs import Inputs
from fedsub.methods.stacked.parameters import Parameters, prefixed, stack, unprefixed
from fedsub.methods.stacked.propagation import mean_weight, propagate, use_kernel, with_self_loops
from fedsub.methods.structure import global_graph, one_hot_degrees, random_start
from fedsub.methods.structure.graphlets import graphlet_degrees, standardised
from fedsub.methods.structure.node2vec import node2vec
from fedsub.methods.tasks import NodeClassification


@register(
    "fedstruct",
    title="FedStruct",
    paper="Aliakbari et al. 2024",
    options=FedStructOptions,
    backbones=NETWORKS,
    breaks_privacy="version a, gdv and n2v need a server that knows every edge; version b with h2v or deg "
    "does not",
    simulation_only="clients use structure embeddings of each other's nodes",
)
class FedStruct(FedSGD):
    """One model over two inputs: the client's own features, and the structure of the whole graph."""

    labelled_outputs_only = False
    options: FedStructOptions
    task: NodeClassification
    adjacency: sp.csr_matrix
    """(m, m) of the global graph: all nodes that some client holds."""
    owner: np.ndarray
    """(m,) a client that holds the node."""
    owned: Tensor
    """(m, K), 1 at each node's owner; only in the private variant."""
    position: Tensor
    """(n,) row of each of the federation's nodes in the global graph."""
    features: Tensor
    """(m, d_s) S; for Hop2Vec its initial values."""
    structure_backbone: Backbone
    """The structure network g."""
    structure_inputs: Inputs
    global_graph: dgl.DGLGraph
    spread_global: partial[Tensor]
    """Multiplication by the global Â, or by the pruned Ā."""
    spread_local: partial[Tensor]
    """Multiplication by the clients' own Â."""
    global_steps: int
    """Number of multiplications by `spread_global`: L_s, or one by the pruned Ā."""
    used: Tensor
    """(u,) training, validation and test nodes; only in version b."""
    rows: Tensor | None = None
    """(u, m) rows of Ā at `used` in version b; None if they do not fit in memory."""
    train_rows: Tensor
    """Rows of Ā at the training nodes, in version b."""
    acquired: int = 0
    """Bytes that algorithm 3 sends."""
    traffic: Traffic

    def __init__(self, options: FedStructOptions, setting: Setting) -> None:
        if options.dropout >= 0:
            setting = replace(setting, architecture=replace(setting.architecture, dropout=options.dropout))
        super().__init__(options, setting)

    def build(self) -> None:
        """Prepare both parts, and count the bytes that the algorithms send."""
        self.architecture = self._network(self.options.feature_hidden)
        super().build()
        self.traffic = Traffic.of(self, torch.ones(self.federation.clients, dtype=torch.bool))
        self.channel.once_up(**self.traffic.once)

    def _network(self, hidden: str) -> Architecture:
        """Architecture of f or g with the `hidden` widths and the setting's dropout."""
        kind = "graphsage" if self.options.network == "graphsage" else "mlp"
        return self.architecture.perceptron(hidden, kind)

    def make_inputs(self) -> Inputs:
        """Return the client features for f; prepare all inputs of the structure part."""
        federation = self.federation
        self.adjacency, row = global_graph(federation)
        self.position, nodes = row.to(self.device), self.adjacency.shape[0]
        if self.options.version == "b" and nodes < federation.nodes:
            raise UserError("FedStruct's version b needs clients that share no node: use version=a")
        self.owner = np.zeros(nodes, dtype=np.int64)
        self.owner[row.numpy()] = federation.client.numpy()
        if self.options.private:
            owned = functional.one_hot(torch.from_numpy(self.owner), federation.clients)
            self.owned = owned.float().to(self.device)
        self._prepare_graphs()
        self.structure_backbone = make_backbone(self._network(self.options.structure_hidden))
        self.features = self._structure_features()
        self.structure_inputs = self.structure_backbone.prepare(
            self.global_graph, self.features, torch.tensor([nodes]), self.task.width, self.device
        )
        return super().make_inputs()

    def _structure_features(self) -> Tensor:
        """S, (m, d_s); for Hop2Vec its initial values.

        Every graphlet orbit is standardised over the nodes; the paper states no scale.
        """
        options, adjacency = self.options, self.adjacency
        if options.features == "h2v":
            width = self.task.width if options.transform == "none" else options.structure_width
            return random_start(adjacency.shape[0], width, self.generator)
        if options.features == "deg":
            return one_hot_degrees(adjacency, options.structure_width)
        if options.features == "gdv":
            return torch.from_numpy(standardised(graphlet_degrees(adjacency)))
        return torch.from_numpy(node2vec(adjacency, options.structure_width, self.setting.seed))

    def _prepare_graphs(self) -> None:
        self.global_graph = use_kernel(as_graph(self.adjacency.tocoo()), self.setting.kernel)
        whole = with_self_loops(self.global_graph)
        local = with_self_loops(self.federation.graph)
        self.spread_global = partial(propagate, whole, weight=mean_weight(whole).to(self.device))
        local_weight = mean_weight(local)
        if self.options.self_loops == "to-last-edge":
            # Loops are the last edges; these nodes have no others.
            local_weight[-self.federation.nodes :][behind_last_edge(self.federation)] = 0
        self.spread_local = partial(propagate, local, weight=local_weight.to(self.device))
        self.global_steps = self.options.structure_hops
        if self.options.version == "b":
            self._acquire_rows()

    def _acquire_rows(self) -> None:
        """Version b: run algorithm 3 for every training, validation and test node."""
        federation, options, hops = self.federation, self.options, self.options.structure_hops
        self.used = (federation.train | federation.validation | federation.test).nonzero().squeeze(1)
        whole, rows = (self.adjacency, self.owner), self.position.cpu()[self.used].numpy()
        if options.pruning and options.pruning_of == "rows":
            pruned, self.acquired = pruned_rows(*whole, hops, options.pruning)
            entries = pruned.tocoo()
            graph = use_kernel(as_graph(entries.T), self.setting.kernel)
            values = torch.from_numpy(entries.data).to(self.device)
            self.spread_global = partial(propagate, graph, weight=values)
            self.global_steps = 1
            return
        if options.pruning:
            self.rows, self.acquired = pruned_blocks(*whole, rows, hops, options.pruning)
        else:
            self.rows, self.acquired = unpruned_rows(*whole, rows, hops)
        if self.rows is not None:
            self.rows = self.rows.to(self.device)
            self.train_rows = self.rows[federation.train[self.used].to(self.device)]

    def initial_parameters(self) -> Parameters:
        """Parameters of f and g, and Hop2Vec's S, each with a leading axis of length 1."""
        parameters = prefixed("feature", super().initial_parameters())
        if self.options.transform == "mlp":
            start = self.structure_backbone.initial(self.features.shape[1], self.task.width, self.generator)
            parameters |= prefixed("structure", stack(start, 1, self.device))
        if self.options.features == "h2v":
            parameters |= stack({"hop2vec": self.features}, 1, self.device)
        return parameters

    def logits(self, dropout: Dropout | None) -> Tensor:
        """Eq. (20), (n, C). In training with version b's rows of Ā, unlabelled nodes only get f's part."""
        own = self.backbone.forward(self.inputs, unprefixed("feature", self.parameters), dropout)
        if self.options.inference == "structure" and not trains(dropout):
            own = torch.zeros_like(own)
        structure = self._structure(dropout)
        if self.options.network == "graphsage":
            return own + structure[self.position]
        for _ in range(self.options.hops):
            own = self.spread_local(own)
        if self.options.private:
            structure = self._kept_apart(structure)
        if self.rows is None:
            for _ in range(self.global_steps):
                structure = self.spread_global(structure)
            return own + self._summed(structure[self.position])
        at, rows = (self.task.train, self.train_rows) if trains(dropout) else (self.used, self.rows)
        return own.index_add(0, at.to(self.device), self._summed(rows @ structure))

    def _kept_apart(self, structure: Tensor) -> Tensor:
        """g(S) in the C columns of each node's owner, zero in the others', (m, K·C). Sums over nodes are then
        the clients' sums over their own nodes, eq. (49)."""
        return (self.owned.unsqueeze(2) * structure.unsqueeze(1)).flatten(1)

    def _summed(self, spread: Tensor) -> Tensor:
        """Add up the clients' sums, (r, K·C) → (r, C), in the private variant; else return `spread`."""
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
        """Return the gradients, and count what else the version sends up in every epoch."""
        if not self.channel.everyone:
            self.traffic = Traffic.of(self, self.working.cpu())
        self.channel.rows_up(**self.traffic.up)
        return super().send()

    def aggregate(self, sent: Message) -> Message:
        """Return the parameters after the server's step, and count what else the version sends down. All of
        Hop2Vec's S is only sent in version b without `private`."""
        self.channel.rows_down(**self.traffic.down)
        answer = super().aggregate(sent)
        whole = self.options.version == "b" and not self.options.private
        return {name: value for name, value in answer.items() if whole or name != "hop2vec"}
