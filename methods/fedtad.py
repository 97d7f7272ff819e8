"""FedTAD: after averaging, the server distils the clients' most reliable knowledge on generated graphs.

Zhu et al., FedTAD: Topology-aware Data-free Knowledge Distillation for Subgraph Federated Learning, IJCAI
2024. Clients train as in FedAvg. Client k's reliability r_kc on class c, over its training nodes T_kc, is

    κ_kc = Σ_{v ∈ T_kc} (1 + Σ_{u ∈ N(v)} cos(f_v, f_u)) / (|N(v)| + 1),   r_kc = κ_kc / Σ_l κ_lc

f is a node's features with an embedding of its position in the graph. A generator makes features x of m nodes
from noise ζ and balanced labels y; a node is joined to its nearest nodes by cosine. On that graph z^k are
client k's logits, z the server model's. D_c and CE_c are the means over the nodes of class c of a divergence
and of the cross-entropy. In each round the server repeats several times

    a step of the generator on  Σ_k [λ₁ Σ_c r_kc CE_c(z^k, y) − Σ_c r_kc D_c(z^k, z) + λ₂ V]
    steps of its model on       Σ_k Σ_c r_kc D_c(z^k, z)
    V = exp(−mean_ij (‖ζ_i − ζ_j‖² / width of ζ) (‖x_i − x_j‖₁ / d))

beginning at the average Σ_k p_k w_k, and sends the model to the clients. No gradient passes through the
graph's edges or through z^k in D. Models are exchanged as in FedAvg, κ once. An absent client teaches nothing
in that round. Without server steps this is FedAvg.

Departures: the paper builds f's embedding from random walks; here it is the probability that a walk returns
after 1 to 5 steps. In its code (github.com/zyl24/FedTAD) T = A ⊙ D⁺ keeps only its diagonal, walks are drawn
over all nodes, and the visited nodes' ids are the coordinates. Every cosine is then near one, and κ near a
class count (`reliability = "count"`). If no client trains on a class, the code divides zero by zero; here r
is 0. The paper tunes λ₁ and λ₂ in {0.1, 0.01, 0.001}; 1 is the code's, and searches here go from 0.1 to 10.
The code's dropout in evaluation is the schedule's `evaluate_dropout`. The teachers' logits on generated
graphs have dropout in the code, never here. The code's other mode, which generates hidden layers instead of
features, is left out. Links are not predicted, since the server distils classes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import dgl
import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.datasets.errors import UserError
from fedsub.datasets.graph import as_scipy, unit_rows
from fedsub.datasets.limits import Count, NonNegative, Positive, Size, tunable
from fedsub.methods.core.base import FederatedMethod, Message, Options, register
from fedsub.methods.stacked.activation import Dropout
from fedsub.methods.stacked.features import SharedFeatures
from fedsub.methods.stacked.inputs import Convolution, Inputs
from fedsub.methods.stacked.optimiser import make_adam
from fedsub.methods.stacked.parameters import Parameters, Weights, linear_start, prefixed
from fedsub.methods.stacked.propagation import return_probabilities, use_kernel
from fedsub.methods.tasks import NodeClassification

HIDDEN = (64, 128, 256)
"""Widths of the generator's hidden layers."""


@dataclass(frozen=True)
class FedTADOptions(Options):
    reliability: Literal["walk", "count"] = "walk"
    """Reliability κ: by cosines of neighbours' features and walks, or counts of training nodes."""
    shared_over: Literal["clients", "classes"] = "clients"
    """Axis over which r sums to one: the clients for each class, or each client's classes (OpenFGL)."""
    divergence: Literal["kl", "l1"] = "kl"
    """D: KL(softmax z^k ‖ softmax z), or the mean absolute difference of logits (the authors' code)."""
    semantic: NonNegative = tunable(1.0, log=(0.1, 10))
    """λ₁, weight of the generator's cross-entropy, at least 0."""
    diversity: NonNegative = tunable(1.0, log=(0.1, 10))
    """λ₂, weight of the generator's diversity term V, at least 0."""
    server_rounds: Size = 5
    """Number of noise draws, each with server steps, in a round, at least 0; 0 is FedAvg."""
    model_steps: Count = 5
    """Steps of the server's model on one graph, at least 1."""
    rate: Positive = tunable(1e-3, log=(1e-4, 1e-2))
    """Learning rate of generator and server model, positive; both use the schedule's weight decay."""
    nodes: Count = 100
    """m, number of nodes of a generated graph, at least the number of classes."""
    noise: Count = 32
    """Width of the generator's noise ζ."""
    neighbours: Count = 5
    """Number of nearest nodes, itself included, that a generated node is joined to; at least 1."""

    def unused(self, backbone: str) -> Mapping[str, str]:
        if self.server_rounds > 0:
            return {}
        others = set(self.__dataclass_fields__) - {"server_rounds"}
        return dict.fromkeys(sorted(others), "server_rounds above 0")


@register(
    "fedtad",
    title="FedTAD",
    paper="Zhu et al. 2024",
    options=FedTADOptions,
    backbones=("gcn", "sgc", "graphsage", "mlp", "gprgnn"),
    simulation_only="the server needs the clients' class reliabilities before the first round",
)
class FedTAD(FederatedMethod):
    """FedAvg with distillation at the server."""

    options: FedTADOptions
    server_state = ("server", "server_optimiser", "maker", "maker_optimiser")
    task: NodeClassification
    found: Tensor
    """κ, (K, C)."""
    reliability: Tensor
    """r, (K, C), among the clients present in a round."""
    labels: Tensor
    """Labels y of the generated nodes, (m,)."""
    server: Parameters
    """The server's model, name → (1, …) leaves."""
    server_optimiser: torch.optim.Optimizer
    maker: Parameters
    """The generator's parameters, by name."""
    maker_optimiser: torch.optim.Optimizer

    def build(self) -> None:
        """Prepare κ, generator and server model. Raises UserError for fewer generated nodes than classes."""
        super().build()
        options, classes = self.options, self.task.width
        if options.nodes < classes:
            raise UserError(f"FedTAD's nodes={options.nodes} is below the number of classes, {classes}")
        counted = options.reliability == "count"
        self.found = self.task.held.float() if counted else by_walks(self.task).to(self.device)
        self.channel.once_up(reliability=self.found)
        # Equally many nodes of each class, the remainder in the last class.
        labels = (torch.arange(options.nodes) // (options.nodes // classes)).clamp(max=classes - 1)
        self.labels = labels.to(self.device)
        self.server = {name: value.clone().requires_grad_() for name, value in self.received.items()}
        start = {"embedding": torch.randn(classes, classes, generator=self.generator)}
        widths = (options.noise + classes, *HIDDEN, self.federation.width)
        for index, (inner, outer) in enumerate(pairwise(widths)):
            start |= prefixed(f"layers.{index}", linear_start(inner, outer, self.generator))
        self.maker = {name: value.to(self.device).requires_grad_() for name, value in start.items()}
        decay = self.schedule.weight_decay
        self.server_optimiser = make_adam(list(self.server.values()), options.rate, decay)
        self.maker_optimiser = make_adam(list(self.maker.values()), options.rate, decay)

    def aggregate(self, sent: Message) -> Message:
        """Σ_k p_k w_k after the server's steps; name → (1, …)."""
        clients = {name: value.detach() for name, value in sent.items()}
        found = self.found * self.present.unsqueeze(1)
        total = found.sum(dim=0 if self.options.shared_over == "clients" else 1, keepdim=True)
        # 0 where a sum is 0.
        self.reliability = torch.where(total > 0, found / total.clamp(min=torch.finfo(total.dtype).tiny), 0.0)
        for name, value in super().aggregate(sent).items():
            self.server[name].copy_(value)
        for _ in range(self.options.server_rounds):
            noise = torch.randn(len(self.labels), self.options.noise, generator=self.generator)
            self.distil(noise.to(self.device), clients)
        return {name: value.detach().clone() for name, value in self.server.items()}

    def distil(self, noise: Tensor, clients: Message) -> None:
        """Take one step of the generator and `model_steps` of the server's model, with noise (m, ·);
        `clients` are the clients' models, name → (K, …)."""
        self.maker_optimiser.zero_grad(set_to_none=True)
        with torch.enable_grad():
            self.maker_loss(noise, clients).backward()
        self.maker_optimiser.step()
        with torch.no_grad():
            features, convolution = self.make(noise)
            teachers = self.outputs(features, convolution, clients)
        for _ in range(self.options.model_steps):
            self.server_optimiser.zero_grad(set_to_none=True)
            with torch.enable_grad():
                student = self.outputs(features, convolution, self.server, self.dropout)
                self.divergence(teachers, student).backward()
            self.server_optimiser.step()

    def maker_loss(self, noise: Tensor, clients: Message) -> Tensor:
        """The generator's loss, (); `clients` are the clients' models, name → (K, …)."""
        options, count = self.options, self.federation.clients
        features, convolution = self.make(noise)
        frozen = {name: torch.cat([value, self.server[name].detach()]) for name, value in clients.items()}
        outputs = self.outputs(features, convolution, frozen)
        teachers, student = outputs[:count], outputs[count:]
        losses = functional.cross_entropy(teachers.flatten(0, 1), self.labels.repeat(count), reduction="none")
        semantic = self._weighed(losses.view(count, -1))
        apart = torch.cdist(noise, noise, compute_mode="donot_use_mm_for_euclid_dist").square()
        unlike = manhattan(features) / features.shape[1]
        diversity = torch.exp(-(apart * unlike).mean() / noise.shape[1])
        divergence = self.divergence(teachers.detach(), student)
        teaching = int(self.present.sum())
        return options.semantic * semantic - divergence + options.diversity * teaching * diversity

    def make(self, noise: Tensor) -> tuple[Tensor, Convolution]:
        """Features, (m, d), of the graph generated from noise (m, ·), and a propagation over its edges."""
        features = torch.cat([self.maker["embedding"][self.labels], noise], dim=1)
        for index in range(len(HIDDEN) + 1):
            features = features @ self.maker[f"layers.{index}.weight"] + self.maker[f"layers.{index}.bias"]
            features = features.tanh() if index < len(HIDDEN) else features
        graph = nearest_graph(features, self.options.neighbours, self.setting.kernel)
        return features, self.backbone.convolution(graph, features.device)

    def outputs(
        self, features: Tensor, convolution: Convolution, parameters: Weights, dropout: Dropout | None = None
    ) -> Tensor:
        """Logits of R networks on a generated graph, (R, m, C); parameters are (R, …). `dropout` None means
        evaluation."""
        networks = len(next(iter(parameters.values())))
        if self.backbone.architecture.input_norm:
            features = functional.layer_norm(features, features.shape[1:])
        shared = SharedFeatures(features, networks, features.device)

        def convolve(h: Tensor) -> Tensor:
            """One propagation for all networks at once; (R·m, width) → (R·m, width)."""
            width = h.shape[1]
            wide = h.view(networks, -1, width).transpose(0, 1).reshape(-1, networks * width)
            return convolution(wide).view(-1, networks, width).transpose(0, 1).reshape(-1, width)

        inputs = Inputs(shared.segments, shared, convolve, self.task.width)
        return self.backbone.forward(inputs, parameters, dropout).view(networks, len(features), -1)

    def divergence(self, teachers: Tensor, student: Tensor) -> Tensor:
        """Σ_k Σ_c r_kc D_c, (), of logits: constant `teachers` (K, m, C) and `student` (1, m, C)."""
        if self.options.divergence == "l1":
            return self._weighed((student - teachers).abs().mean(dim=2))
        known = teachers.log_softmax(dim=2)
        return self._weighed((known.exp() * (known - student.log_softmax(dim=2))).sum(dim=2))

    def _weighed(self, losses: Tensor) -> Tensor:
        """Σ_k Σ_c r_kc · mean of losses (K, m) over the generated nodes of class c, ()."""
        count = torch.bincount(self.labels, minlength=self.task.width)
        weight = (self.reliability / count)[:, self.labels]
        return (weight * losses).sum()


def by_walks(task: NodeClassification) -> Tensor:
    """κ, (K, C) float32: sums of (1 + Σ_{u ∈ N(v)} cos(f_v, f_u)) / (|N(v)| + 1), with f_v = [x_v ‖ t_v].

    t_v are the probabilities that a walk from v returns after 1…5 steps. A row of zeros has cosine 0.
    """
    federation = task.federation
    walk = return_probabilities(federation.graph, federation.sizes, 5)
    parts = as_scipy(federation.features), sp.csr_matrix(walk.numpy())
    unit = unit_rows(sp.hstack(parts, format="csr"))
    source, target = federation.graph.edges()
    cosines = np.asarray(unit[source.numpy()].multiply(unit[target.numpy()]).sum(axis=1)).ravel()
    likeness = torch.ones(federation.nodes).index_add(0, target, torch.from_numpy(cosines).float())
    reliability = likeness / (federation.graph.in_degrees() + 1)
    total = torch.zeros(task.held.numel()).index_add(0, task.cell.cpu(), reliability[federation.train])
    return total.view(task.held.shape)


def manhattan(features: Tensor) -> Tensor:
    """‖x_i − x_j‖₁ for all pairs of rows, (m, d) → (m, m); `torch.cdist` would compute all of them twice."""
    first, second = torch.triu_indices(len(features), len(features), offset=1, device=features.device)
    distance = features.new_zeros(len(features), len(features))
    distance[first, second] = torch.pdist(features, p=1)
    return distance + distance.T


def nearest_graph(features: Tensor, neighbours: int, kernel: str) -> dgl.DGLGraph:
    """Graph that joins each node to its `neighbours` nearest by cosine, itself counted; edges in both
    directions, no self-loops. `features` is (m, d)."""
    unit = functional.normalize(features.detach(), dim=1)
    nearest = (unit @ unit.T).topk(min(neighbours, len(unit)), dim=1).indices
    joined = torch.zeros(len(unit), len(unit), dtype=torch.bool, device=unit.device)
    joined.scatter_(1, nearest, True)
    joined = (joined | joined.T).fill_diagonal_(False)
    source, target = joined.nonzero(as_tuple=True)
    return use_kernel(dgl.graph((source.cpu(), target.cpu()), num_nodes=len(unit)), kernel)
