"""FedIIH: features are split into factors, and every factor is averaged among clients that are similar in it.

Yu et al., Modeling Inter-Intra Heterogeneity for Graph Federated Learning, AAAI 2025. A client's network has
F factors of D numbers. It is a linear layer with leaky ReLU and dropout; L' neighbourhood routings
(`routing.py`), each followed by leaky ReLU and dropout; and a linear classifier. L' = 1 for L ≤ 2 layers,
else L − 2. One more routing (two for L > 2) gives every node a mean, and a second one with its own dropout a
log variance. μ_kf and s_kf, (D,) each, are their means over the client's nodes. Server:

    S^f_ij = 1 − JS(i, j) / ln 2,  JS = ½ KL(i ‖ m) + ½ KL(j ‖ m),  m with the averages of means and variances
    Ω^f = softmax over j of (scale · S^f)
    client i receives Σ_j Ω^f_ij w_j of the first layer's weights for factor f, and of the classifier's
    weights that read it; the classifier's bias is the plain mean

i, j and m are normal distributions without covariances. Model, μ and s go up; a separate model for each
client comes down. An absent client is in no other client's average. It comes back to the model last made for
it, or to its initial model if there is none; the authors' code then sends the plain mean. Clients with equal
statistics receive the plain mean, as does every client if `scale` is 0.

Departures: the formulas were read in the authors' code (github.com/blgpb/FedIIH). F, D, L and the number of
routings are the code's for Cora without overlap, which also sets dropout 0.3, learning rate 0.02 and weight
decay 0.005. With two classes the code has one output and binary cross-entropy; here there are two. JS is not
bounded by ln 2, so that S may be far below 0. Routing has no weights: mean and log variance differ only by
dropout. The code evaluates after every epoch, so it sends statistics without dropout if a round has more than
one epoch, as here; mean and log variance are then equal. The paper's variational bound has no effect in the
code: its optimiser holds only the prior's means, and its gradient on the network is cleared before the next
step. So it is left out by default. `variational` > 0 is the weight of the negative bound in the client's
loss,

    mean over pairs of the cross-entropy of σ(z_i · z_j) with the edges, z drawn from the nodes' distributions
    + Σ_f mean KL(node's ‖ N(m_f, ¼)) + mean KL(N(m_f, ¼) ‖ N(m⁰_f, ¼)) − mean log N(m_f; 0, 1)

where m_f is learned and never sent, and m⁰_f = Σ_k μ_kf / (K + ¼) comes down; in the first round it is drawn
from N(0, 1). The code adds the last term with the opposite sign. The network is always FedIIH's own.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.datasets.limits import Count, NonNegative, tunable
from fedsub.methods.core.base import BOTH_TASKS, FederatedMethod, Message, Options, register
from fedsub.methods.fediih.pairs import PairwiseSoftplus
from fedsub.methods.fediih.routing import Routing
from fedsub.methods.stacked.activation import Dropout, add_bias
from fedsub.methods.stacked.architecture import NETWORKS
from fedsub.methods.stacked.inputs import Inputs
from fedsub.methods.stacked.mixing import for_clients
from fedsub.methods.stacked.parameters import Parameters, linear_start, prefixed, stack, uniform
from fedsub.methods.stacked.propagation import propagate


@dataclass(frozen=True)
class FedIIHOptions(Options):
    factors: Count = tunable(2, choices=(1, 2, 4))
    """F, number of factors."""
    width: Count = 128
    """D, width of a factor."""
    layers: Count = tunable(4, choices=(2, 3, 4))
    """L, number of layers, which determines the number of routings."""
    iterations: Count = tunable(6, choices=(3, 6))
    """Assignments of neighbours to factors in one routing; with one factor all are equal."""
    scale: NonNegative = 10.0
    """Scale of the clients' similarities in the server's softmax."""
    variational: NonNegative = 0.0
    """Weight of the negative variational bound in a client's loss."""

    def unused(self, backbone: str) -> Mapping[str, str]:
        return {"backbone": "another method, as this one has its own network"}


PRIOR = "prior"
"""The parameter m, (K, F, D), which is never sent."""
VARIANCE = 0.25
"""Variance of the prior."""


@register(
    "fediih",
    title="FedIIH",
    paper="Yu et al. 2025",
    options=FedIIHOptions,
    backbones=NETWORKS,
    tasks=BOTH_TASKS,
    lacks=("norm", "residual", "input_norm", "head"),
)
class FedIIH(FederatedMethod):
    """Personalised averages, factor by factor.

    `extras`: `own_weight`, mean over factors and clients of Ω^f_ii.
    """

    options: FedIIHOptions
    client_state = ("center",)
    route: Routing
    center: Tensor
    """m⁰, (F, D)."""

    def build(self) -> None:
        # The inputs are prepared as for an MLP: without convolution and normalisation.
        self.architecture = replace(self.architecture, backbone="mlp", head="linear")
        self.unshared = (PRIOR,) if self.options.variational > 0 else ()
        super().build()
        options = self.options
        self.center = torch.randn(options.factors, options.width, generator=self.generator).to(self.device)

    def make_inputs(self) -> Inputs:
        self.route = Routing(self.federation.graph, self.device)
        return super().make_inputs()

    def initial_parameters(self) -> Parameters:
        """Uniform in ±1/√(F·D), biases too; the prior's means from N(0, 1)."""
        shape, generator = (self.options.factors, self.options.width), self.generator
        hidden = math.prod(shape)
        first = {"first.weight": (self.federation.width, hidden), "first.bias": (hidden,)}
        start = {name: uniform(size, 1 / math.sqrt(hidden), generator) for name, size in first.items()}
        start |= prefixed("head", linear_start(hidden, self.task.width, generator))
        if self.options.variational > 0:
            start[PRIOR] = torch.randn(shape, generator=generator)
        return stack(start, self.federation.clients, self.device)

    def logits(self, dropout: Dropout | None) -> Tensor:
        return self.backbone.classify(self.inputs, self.embed(dropout), self.parameters)

    def embed(self, dropout: Dropout | None) -> Tensor:
        """Input of the classifier, (n, F·D)."""
        first = self.inputs.features.times(self.parameters["first.weight"])
        h = _activate(add_bias(first, self.parameters["first.bias"], self.inputs.segments), dropout)
        return self._layers(h, max(1, self.options.layers - 2), dropout)

    def distributions(self, dropout: Dropout | None) -> tuple[Tensor, Tensor]:
        """Means and log variances of the nodes' factors, (n, F·D) each; they are equal without dropout."""
        # Both share the first routing and differ from its dropout on.
        routed = self._routed(self.embed(dropout))
        times = int(self.options.layers > 2)
        mean = self._layers(_activate(routed, dropout), times, dropout)
        if dropout is None:
            return mean, mean
        return mean, self._layers(_activate(routed, dropout), times, dropout)

    def _layers(self, h: Tensor, times: int, dropout: Dropout | None) -> Tensor:
        """`times` routings, each with leaky ReLU and dropout; (n, F·D) → (n, F·D)."""
        for _ in range(times):
            h = _activate(self._routed(h), dropout)
        return h

    def _routed(self, h: Tensor) -> Tensor:
        """One routing, (n, F·D) → (n, F·D)."""
        factors = h.view(len(h), self.options.factors, -1)
        return self.route(factors, self.options.iterations).flatten(1)

    def objective(self, logits: Tensor) -> Tensor:
        """Σ_k F_k and the negative variational bounds, ()."""
        loss = super().objective(logits)
        if self.options.variational == 0:
            return loss
        mean, log_variance = self.distributions(self.dropout)
        noise = torch.randn(mean.shape, generator=self.generator).to(self.device)
        sample = mean + noise * (log_variance / 2).exp()
        return loss + self.options.variational * self.negative_bound(mean, log_variance, sample).sum()

    def negative_bound(self, mean: Tensor, log_variance: Tensor, sample: Tensor) -> Tensor:
        """Each client's negative bound, (K,); its nodes' distributions and a sample of them are (n, F·D)."""
        segments, prior = self.inputs.segments, self.parameters[PRIOR]
        neighbours = propagate(self.federation.graph, sample)
        joined = segments.sum((sample * neighbours).sum(dim=1, keepdim=True)).squeeze(1)
        losses = PairwiseSoftplus.apply(sample, segments) - joined
        reconstruction = losses / segments.sizes.square().to(losses)
        fixed = prior.new_full((), math.log(VARIANCE))
        at_node = prior.flatten(1).index_select(0, segments.client)
        divergence = gaussian_kl(mean, log_variance, at_node, fixed)
        nodes = segments.mean(divergence).view_as(prior).mean(dim=2).sum(dim=1)
        drift = gaussian_kl(prior, fixed, self.center, fixed)
        unlikely = (math.log(2 * math.pi) + prior.square()) / 2
        return reconstruction + nodes + (drift + unlikely).mean(dim=2).sum(dim=1)

    def send(self) -> Message:
        """The model, and μ and s as `mean` and `log_variance`."""
        dropout = self.dropout if self.schedule.local_epochs == 1 else None
        mean, log_variance = (
            self.inputs.segments.mean(rows).view(self.federation.clients, self.options.factors, -1)
            for rows in self.distributions(dropout)
        )
        return {**super().send(), "mean": mean, "log_variance": log_variance}

    def aggregate(self, sent: Message) -> Message:
        """Each client's average, for an absent client the last one made for it; and m⁰ as `center`."""
        matrix = mixing_matrices(sent["mean"], sent["log_variance"], self.options.scale, self.present)
        mixed = {name: mix_factors(matrix, sent[name], dim=-1) for name in ("first.weight", "first.bias")}
        mixed["head.weight"] = mix_factors(matrix, sent["head.weight"], dim=1)
        mixed["head.bias"] = sent["head.bias"][self.present].mean(dim=0, keepdim=True)
        answer = {name: for_clients(new, self.received[name], self.present) for name, new in mixed.items()}
        if self.options.variational > 0:
            total = sent["mean"][self.present].sum(dim=0, keepdim=True)
            answer["center"] = total / (int(self.present.sum()) + VARIANCE)
        own = float(matrix.diagonal(dim1=1, dim2=2).mean() / self.present.float().mean())
        self.by_round.setdefault("own_weight", []).append(own)
        return answer

    def receive(self, answer: Message) -> None:
        super().receive(answer)
        if self.options.variational > 0:
            self.center = answer["center"][0]


def _activate(h: Tensor, dropout: Dropout | None) -> Tensor:
    h = functional.leaky_relu(h)
    return h if dropout is None else dropout(h)


def gaussian_kl(mean: Tensor, log_variance: Tensor, other: Tensor, other_log_variance: Tensor) -> Tensor:
    """KL(N(mean, variance) ‖ N(other, other variance)) of each entry; the shapes broadcast."""
    ratio = (log_variance.exp() + (mean - other).square()) / other_log_variance.exp()
    return (other_log_variance - log_variance + ratio - 1) / 2


def mixing_matrices(mean: Tensor, log_variance: Tensor, scale: float, present: Tensor) -> Tensor:
    """Ω of every factor, (F, K, K), from the clients' μ and s, (K, F, D) each. Columns are 0 for clients that
    are not `present`, (K,) bool; rows sum to 1."""
    mean, log_variance = (value.double().transpose(0, 1) for value in (mean, log_variance))
    middle = (mean.unsqueeze(2) + mean.unsqueeze(1)) / 2
    variance = log_variance.exp()
    mixed = ((variance.unsqueeze(2) + variance.unsqueeze(1)) / 2).log()
    apart = gaussian_kl(mean.unsqueeze(2), log_variance.unsqueeze(2), middle, mixed).sum(dim=3)
    # KL(j ‖ m) is the transpose of KL(i ‖ m).
    divergence = (apart + apart.transpose(1, 2)) / 2
    similarity = scale * (1 - divergence / math.log(2))
    return similarity.masked_fill(~present, -torch.inf).softmax(dim=2).float()


def mix_factors(matrix: Tensor, value: Tensor, dim: int) -> Tensor:
    """Σ_j Ω^f_ij w_j for every block f of a stacked parameter w; its axis `dim` has F blocks; (K, …)."""
    blocks = torch.stack(value.detach().chunk(len(matrix), dim=dim))
    mixed = (matrix @ blocks.flatten(2)).view_as(blocks)
    return torch.cat(list(mixed), dim=dim)
