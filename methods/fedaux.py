"""FedAux: every client learns a vector that orders its nodes; the server compares clients by these vectors.

Zhuo et al., Personalized Subgraph Federated Learning via Differentiable Auxiliary Projections, NeurIPS 2025.
h_i is the hidden layer of a client's graph network at node i, a the client's auxiliary vector, σ a width:

    s_i = ⟨h_i / max_v ‖h_v‖, a⟩                                    position of node i along a
    z_i = Σ_j κ_ij h_j / Σ_j κ_ij,  κ_ij = exp(−(s_i − s_j)² / σ²)    over all of the client's nodes
    logits_i = classifier of [h_i ‖ z_i]
    w_k ← Σ_l W_kl w_l,  a_k ← Σ_l W_kl a_l,  W_k = softmax_l(β cos(a_k, a_l))      server

The network is FED-PUB's with masks: clients compute with w ⊙ μ. The masks μ start at one, are trained with w,
and are never sent. Weights and a go up, averages of both come down. An absent client is in no average, keeps
its state, and comes back to the average last made for it. β = 0 is FedAvg with equal weights.

Departures: β is the paper's α. Its code (github.com/JhuoW/FedAux) uses s_i = cos(h_i, a) and σ = 10, with
which z is nearly the client's mean (`score = "cosine"`, `sigma = 10`). It draws a from [0, 1] (`start =
"uniform"`). FED-PUB's two regularisers are commented out in that code and absent here. Its masked classifier
starts at Glorot's values, bias included; here it starts as in FedAvg. SGC, without hidden layer, is left out.

All a_k start equal. Adam changes an entry by about its rate in a step, and averaging brings the a_k together
again. With one step of 0.01 a round they stay nearly parallel, and W nearly uniform (`vector_cosine`).
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from fedsub.datasets.limits import NonNegative, Positive, tunable
from fedsub.methods.core.base import BOTH_TASKS, FederatedMethod, Message, Options, register
from fedsub.methods.fedpub.pruning import PREFIX, apply_masks, with_masks
from fedsub.methods.stacked.activation import Dropout, add_bias
from fedsub.methods.stacked.backbones import make_backbone
from fedsub.methods.stacked.mixing import cosine, for_clients, gram, mix
from fedsub.methods.stacked.parameters import Parameters, stack
from fedsub.methods.stacked.segments import Segments, segment_product

VECTOR = "auxiliary"
REACH = math.sqrt(53 * math.log(2))
"""r of the kernel: exp(−r²) = 2⁻⁵³, the rounding error of double precision."""
SMALLEST = 1e-8
"""Lower bound of lengths in denominators, as in torch's cosine similarity."""


@dataclass(frozen=True)
class FedAuxOptions(Options):
    beta: NonNegative = tunable(10.0, log=(1, 100))
    """β, scale of the clients' similarities in the server's softmax, at least 0."""
    sigma: Positive = tunable(1.0, log=(0.1, 10))
    """σ, width of the kernel, positive."""
    score: Literal["max-norm", "cosine"] = "max-norm"
    """Node score s_i: ⟨h_i, a⟩ over the length of the client's longest h, or the cosine of h_i and a."""
    start: Literal["normal", "uniform"] = "normal"
    """Distribution of the initial auxiliary vector a: N(0, 1), or uniform in [0, 1]."""
    masks: bool = tunable(True, choices=(True, False))
    """Whether weights are masked."""


@register(
    "fedaux",
    title="FedAux",
    paper="Zhuo et al. 2025",
    options=FedAuxOptions,
    tasks=BOTH_TASKS,
    backbones=("gcn", "graphsage", "mlp", "gat"),
)
class FedAux(FederatedMethod):
    """Masks are parameters named `mask.<weight>`, never sent; a is the parameter `auxiliary`, (K, width).

    `extras`: `vector_cosine`, mean cosine of the sent a over all pairs of clients.
    """

    options: FedAuxOptions

    def build(self) -> None:
        self.unshared = (PREFIX,) if self.options.masks else ()
        super().build()

    def initial_parameters(self) -> Parameters:
        """FedAvg's start with a classifier of twice the inputs; the same a for all, masks of ones."""
        parameters = super().initial_parameters()
        width = self.architecture.hidden[-1]
        # The backbone draws the classifier, so that its initialisation is the backbone's.
        doubled = make_backbone(replace(self.architecture, hidden=(2 * width,))).initial(
            1, self.task.width, self.generator
        )
        further = {name: doubled[name] for name in self.backbone.head}
        draw = torch.randn if self.options.start == "normal" else torch.rand
        vector = draw(width, generator=self.generator)
        parameters |= stack(further | {VECTOR: vector}, self.federation.clients, self.device)
        return with_masks(parameters) if self.options.masks else parameters

    def logits(self, dropout: Dropout | None) -> Tensor:
        weights, segments = apply_masks(self.parameters), self.inputs.segments
        h = self.backbone.embed(self.inputs, weights, dropout)
        places = self.places(h, weights[VECTOR])
        if self.architecture.head == "convolution":
            z = gaussian_means(h, places, segments)
            return self.backbone.classify(self.inputs, torch.cat([h, z], dim=1), weights)
        # The classifier is linear, so means may be taken of its C outputs, which are fewer columns than h's.
        upper, lower = weights["head.weight"].chunk(2, dim=1)
        z_classified = gaussian_means(segment_product(h, lower, segments), places, segments)
        h_classified = segment_product(h, upper, segments)
        return add_bias(h_classified + z_classified, weights["head.bias"], segments)

    def places(self, h: Tensor, vector: Tensor) -> Tensor:
        """s / σ, (n,), from h (n, width) and a (K, width)."""
        client = self.inputs.segments.client
        products = (h * vector.index_select(0, client)).sum(dim=1)
        length = torch.linalg.vector_norm(h, dim=1)
        if self.options.score == "cosine":
            scale = length * torch.linalg.vector_norm(vector, dim=1).index_select(0, client)
        else:
            longest = length.new_zeros(len(vector)).scatter_reduce(0, client, length, "amax")
            scale = longest.index_select(0, client)
        return products / (self.options.sigma * scale.clamp(min=SMALLEST))

    def aggregate(self, sent: Message) -> Message:
        """Each client's average of weights and vectors; for an absent client the last one made for it."""
        similarity = cosine(gram([sent[VECTOR]]))
        matrix = (self.options.beta * similarity).masked_fill(~self.present, -torch.inf).softmax(dim=1)
        mixed = mix(matrix.float(), sent)
        among = similarity.fill_diagonal_(0)[self.present][:, self.present]
        mean = among.sum() / max(len(among) * (len(among) - 1), 1)
        self.by_round.setdefault("vector_cosine", []).append(float(mean))
        return {name: for_clients(value, self.received[name], self.present) for name, value in mixed.items()}


def gaussian_means(h: Tensor, places: Tensor, segments: Segments) -> Tensor:
    """Σ_j κ_ij h_j / Σ_j κ_ij with κ_ij = exp(−(s_i − s_j)²) over the rows j of i's client, (n, width).

    h is (n, width), `places` s are (n,). Time is linear in the rows. For differences x of at most L, the
    kernel exp(−x²) equals a Fourier series of period T to within 2⁻⁵³:

        exp(−x²) = Σ_m c_m cos(ω_m x),  ω_m = 2πm / T,  c_0 = √π / T,  c_m = 2 √π exp(−ω_m² / 4) / T

    Repetitions are T − L away; terms vanish beyond a frequency that does not depend on L. So T = L + r and
    r T / π terms are enough, r² = 53 ln 2. As cos(ω (s − t)) = cos ωs cos ωt + sin ωs sin ωt, the sum over j
    is a product of features √c cos ωs and √c sin ωs of i with sums over j of features of j. Only if that is
    more work are the weights κ computed. Sums are in double precision: a node far from all others has only
    its own weight, 1, beside terms that grow with the client's size.
    """
    s = segments.pad(places.unsqueeze(1)).double()
    # Positions are relative to the client's mean; padding rows are put at the mean.
    centre = s.detach().sum(dim=1) / segments.sizes.clamp(min=1).to(s.device).unsqueeze(1)
    s = (s - centre.unsqueeze(1)) * segments.filled.unsqueeze(2)
    # The last column sums the weights; padding rows are zero and add nothing to any sum.
    counted = segments.pad(torch.cat([h, h.new_ones(len(h), 1)], dim=1)).double()
    # If a run diverges the span is NaN and set to 0; the outputs and the loss are NaN all the same.
    span = float((s.detach().amax(dim=1) - s.detach().amin(dim=1)).max().nan_to_num(0, 0))
    period = span + REACH
    terms = math.ceil(REACH * period / math.pi)
    if 2 * terms + 1 < segments.longest:
        features = _features(s, period, terms)
        sums = features @ (features.transpose(1, 2) @ counted)
    else:
        sums = (-(s - s.transpose(1, 2)).square()).exp() @ counted
    rows = segments.unpad(sums)
    return (rows[:, :-1] / rows[:, -1:]).to(h.dtype)


def _features(s: Tensor, period: float, terms: int) -> Tensor:
    """√c cos(ωs) and √c sin(ωs), (K, m, 2 · terms + 1), for s (K, m, 1)."""
    frequencies = torch.arange(1, terms + 1, dtype=s.dtype, device=s.device) * (2 * math.pi / period)
    c_0 = math.sqrt(math.pi) / period
    sizes = (2 * c_0 * torch.exp(-frequencies.square() / 4)).sqrt()
    angles = s * frequencies
    return torch.cat([torch.full_like(s, math.sqrt(c_0)), sizes * angles.cos(), sizes * angles.sin()], dim=2)
