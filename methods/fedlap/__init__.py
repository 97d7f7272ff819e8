"""FedLap and FedLap+: every node has learned features, regularised to be similar at joined nodes.

Aliakbari et al., Subgraph Federated Learning via Spectral Methods, NeurIPS 2025; FedStruct's successor. For
node v of client k, with f and g LayerNorm → Linear → ReLU → dropout → Linear, A and D of the whole graph,
A_k and D_k of the client's graph, and D̃ = D + I:

    logits_v = [(D̃_k⁻¹ (A_k + I))^L f(X_k)]_v + g(s_v)
    loss = Σ_k p_k CE_k + λ R

    FedLap:   s_v learned, S (nodes, d_s):   R = tr(Sᵀ (D − A) S) / tr(Sᵀ S)
              = Σ_k Σ_{v ∈ V_k} s_v · Σ_{u ∈ N(v)} (s_v − s_u) / ‖S‖²
    FedLap+:  s_v = relu(U_v W), W (r, d_s) learned:   R = tr(Wᵀ Λ W) / tr(Wᵀ W)
              U, Λ: the r smallest eigenpairs of I − D̃^−½ (A + I) D̃^−½, found once, before training

The server averages the clients' gradients in every epoch and steps Adam (see `methods.fedsgd`). A client
needs the rows of S at V_k ∪ N(V_k), and its own rows of U. Only these bytes are counted, and one number each
way for the fraction in R. Clients find U and Λ together by Arnoldi's iteration. Its products (the values at
N(V_k)) and inner products (a part from each client, the sum to each) are counted. An absent client adds no
gradient: rows of S that only it needs change by weight decay, Adam's moments and R's denominator.

Departures: the paper was read in summaries and in the authors' code (github.com/JavadAliakbari/FedLap). λ, r,
d_s, L, the layers and the iteration's steps are the code's for Cora, the only graph that it configures for
this method. In the code a client's part of R is weighted by p_k, as its loss is, so that λ is divided by
about K; cross-entropy is computed from softmax outputs (the setting's `outputs = "probabilities"`).
Departures in U and Λ are in `methods.fedlap.spectrum`. Paper and code only have node classification. Links
are not predicted, since the Laplacian that every client sees contains the edges that would be scored.
"""

from dataclasses import replace
from functools import partial

import dgl
import scipy.sparse as sp
import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.datasets.graph import as_graph
from fedsub.datasets.seeding import stream
from fedsub.methods.core.base import register
from fedsub.methods.core.channel import Message, unformed
from fedsub.methods.fedlap.options import FedLapPlusOptions, SmoothOptions
from fedsub.methods.fedlap.spectrum import misread_eigenpairs, roughness, smallest_eigenpairs
from fedsub.methods.fedsgd import GRADIENT, FedSGD
from fedsub.methods.stacked.activation import Dropout
from fedsub.methods.stacked.architecture import NETWORKS
from fedsub.methods.stacked.backbones import Backbone, make_backbone
from fedsub.methods.stacked.features import DenseFeatures
from fedsub.methods.stacked.inputs import Inputs
from fedsub.methods.stacked.parameters import Parameters, prefixed, stack, unprefixed
from fedsub.methods.stacked.propagation import mean_weight, propagate, use_kernel, with_self_loops
from fedsub.methods.structure import global_graph, random_start
from fedsub.methods.tasks import NodeClassification

LEARNED = "smooth"
"""Name of the parameter S, or W in FedLap+."""
PREFIX = "structure"
"""Prefix of g's parameters."""


@register(
    "fedlap",
    title="FedLap",
    paper="Aliakbari et al. 2025",
    options=SmoothOptions,
    backbones=NETWORKS,
    simulation_only="node features are learned from the edges of all clients",
)
class FedLap(FedSGD):
    """One model over the clients' features and learned features of every node."""

    labelled_outputs_only = False
    task: NodeClassification
    adjacency: sp.csr_matrix
    """(m, m) of the global graph: all nodes that some client holds."""
    position: Tensor
    """(n,) row of each of the federation's nodes in the global graph."""
    spread_local: partial[Tensor]
    """Multiplication by D̃⁻¹ (A + I) of the clients' own graphs."""
    neighbours: Tensor
    """|N(V_k)|, number of neighbours that each client does not hold, (K,)."""
    structure_backbone: Backbone
    """The structure network g."""
    global_graph: dgl.DGLGraph
    degree: Tensor
    """(m, 1) degrees in the global graph."""

    def build(self) -> None:
        self.architecture = self.architecture.perceptron(self.options.feature_hidden)
        super().build()
        self._prepare_smoothing()

    def make_inputs(self) -> Inputs:
        """Return the clients' features and graphs; prepare the global graph and g."""
        federation = self.federation
        self.adjacency, row = global_graph(federation)
        self.position, nodes = row.to(self.device), self.adjacency.shape[0]
        local = with_self_loops(federation.graph)
        self.spread_local = partial(propagate, local, weight=mean_weight(local).to(self.device))
        source, target = federation.inter.edges()
        seen = federation.client[target] * nodes + row[source]
        of_client = seen.unique() // nodes
        self.neighbours = torch.bincount(of_client, minlength=federation.clients)
        network = self.setting.architecture.perceptron(self.options.structure_hidden)
        self.structure_backbone = make_backbone(network)
        return super().make_inputs()

    def initial_parameters(self) -> Parameters:
        """Parameters of f and g and the learned features, each with a leading axis of length 1."""
        parameters = super().initial_parameters()
        width = self.options.structure_width
        g = self.structure_backbone.initial(width, self.task.width, self.generator)
        learned = {LEARNED: random_start(self.learned_rows(), width, self.generator)}
        return parameters | stack(prefixed(PREFIX, g) | learned, 1, self.device)

    def learned_rows(self) -> int:
        """Number of rows of the learned features S."""
        return self.adjacency.shape[0]

    def _prepare_smoothing(self) -> None:
        self.global_graph = use_kernel(as_graph(self.adjacency.tocoo()), self.setting.kernel)
        self.degree = self.global_graph.in_degrees().float().unsqueeze(1).to(self.device)

    def logits(self, dropout: Dropout | None) -> Tensor:
        own = super().logits(dropout)
        for _ in range(self.options.hops):
            own = self.spread_local(own)
        return own + self.structure(dropout)

    def structure(self, dropout: Dropout | None) -> Tensor:
        """g(s_v), (n, C)."""
        s = self.node_features()
        normalised = functional.layer_norm(s, s.shape[1:])
        features = DenseFeatures(normalised, self.inputs.segments, self.device)
        inputs = replace(self.inputs, features=features, propagated=None)
        return self.structure_backbone.forward(inputs, unprefixed(PREFIX, self.parameters), dropout)

    def node_features(self) -> Tensor:
        """s_v, (n, d_s)."""
        return self.parameters[LEARNED][0].index_select(0, self.position)

    def objective(self, logits: Tensor) -> Tensor:
        """Σ_k p_k CE_k + λ R, ()."""
        loss = super().objective(logits)
        return loss + self.options.smoothing * self.regulariser() if self.options.smoothing else loss

    def regulariser(self) -> Tensor:
        """R, ()."""
        s = self.parameters[LEARNED][0]
        energy = (s * (self.degree * s - propagate(self.global_graph, s))).sum(dim=1)
        return torch.dot(self.node_weights(), energy) / s.square().sum()

    def node_weights(self) -> Tensor:
        """Weight of each node's part of R, (m,): 1 if a client that trains in this epoch holds it, else 0."""
        held = self.working.float()[self.task.client]
        return held.new_zeros(len(self.degree)).scatter_reduce(0, self.position, held, "amax")

    def send(self) -> Message:
        """Gradients of the networks; those of the learned rows that clients need are only counted."""
        self.channel.rows_up(node_gradients=self._rows())
        return {name: value for name, value in super().send().items() if name != f"{GRADIENT}.{LEARNED}"}

    def aggregate(self, sent: Message) -> Message:
        self.channel.rows_down(node_features=self._rows())
        return {name: value for name, value in super().aggregate(sent).items() if name != LEARNED}

    def _rows(self) -> Tensor:
        """Stand-in for the learned features that training clients send and receive in an epoch."""
        return unformed(int((self.exchanged_features() * self.working.cpu()).sum()))

    def exchanged_features(self) -> Tensor:
        """Number of values that each client sends in an epoch for the learned features, (K,)."""
        smoothing = int(self.options.smoothing > 0)
        rows = self.federation.sizes.cpu() + smoothing * self.neighbours
        return rows * self.options.structure_width + smoothing


@register(
    "fedlap+",
    title="FedLap+",
    paper="Aliakbari et al. 2025",
    options=FedLapPlusOptions,
    backbones=NETWORKS,
    simulation_only="node features are learned from the edges of all clients",
    # Since version 2 random draws fix all signs, and the vectors of equal eigenvalues.
    version=2,
)
class FedLapPlus(FedLap):
    """FedLap with features that are combinations of the graph's smoothest eigenvectors.

    `extras`: `roughness`, the mean of uᵀLu / uᵀu over these eigenvectors u.
    """

    eigenvalues: Tensor
    """Λ, (r,)."""
    eigenvectors: Tensor
    """Rows of U at the federation's nodes, (n, r)."""

    def learned_rows(self) -> int:
        """Number of rows of W."""
        return min(self.options.rank, self.adjacency.shape[0])

    def _prepare_smoothing(self) -> None:
        rank, generator = self.learned_rows(), stream(self.setting.seed, "fedlap+ start of the iteration")
        steps = max(rank, min(self.options.steps, self.adjacency.shape[0]))
        if self.options.basis == "exact":
            values, vectors = smallest_eigenpairs(self.adjacency, rank, generator)
        else:
            values, vectors = misread_eigenpairs(self.adjacency, rank, steps, generator)
        self.extras["roughness"] = roughness(self.adjacency, vectors)
        self.eigenvalues = torch.from_numpy(values).float().to(self.device)
        self.eigenvectors = torch.from_numpy(vectors).float().to(self.device)[self.position]
        # Step j sends a vector's values at N(V_k), and computes j inner products and a length.
        products = unformed(self.federation.clients * (steps - 1) * (steps + 2) // 2)
        heard = unformed((steps - 1) * int(self.neighbours.sum()))
        self.channel.once_up(vectors=heard, products=products)
        self.channel.once_down(products=products)

    def node_features(self) -> Tensor:
        """relu(U W), (n, d_s)."""
        return functional.relu(self.eigenvectors @ self.parameters[LEARNED][0])

    def regulariser(self) -> Tensor:
        energy = self.parameters[LEARNED][0].square().sum(dim=1)
        return torch.dot(self.eigenvalues, energy) / energy.sum()

    def exchanged_features(self) -> Tensor:
        """Number of values of W that each client sends in an epoch, (K,)."""
        return torch.full((self.federation.clients,), self.parameters[LEARNED].numel())
