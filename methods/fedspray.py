"""FedSpray: class-wise structure proxies, aligned by the server, guide each client's personal GNN.

Fu et al., Federated Graph Learning with Structure Proxy Alignment, KDD 2024. Every client keeps its
GNN θ_k. Clients share a feature-structure encoder ω = (g_e, g_p, g_q) and one proxy s_c for each class:

    e = relu(x W_e + b_e),  q = softmax g_q(e),  p = softmax g_p(e + s)                     eqs. (9), (10)
    s = a training node's own proxy; Σ_c q_c s_c for every other node
    phase 1, θ_k:         CE(y, ŷ) + λ₁ KL(p ‖ ŷ)                                           eqs. (5)–(7)
    phase 2, ω and s_i:   CE(y, q) + λ₂ KL(ŷ ‖ p) over training nodes, ŷ fixed            eqs. (11)–(13)
    server:               ω ← Σ_k w_k ω_k,   s_c ← Σ_k a_c^k s_c^k / Σ_k a_c^k            eqs. (14), (15)

w_k is client k's weight, s_c^k the mean proxy of its training nodes of class c, a_c^k the share of c in its
training labels.

Departures: by default `lambda1`, `confidence` and `targets` follow the authors' public code, not the paper;
`projector` and `initialisation` do in `fedspray-2`, as on the same clients the code's figures are only
reproduced with them (results/notes/fedspray-2.md). The paper gives no initial values; as in the code, nodes'
proxies start at 0.1, those of class c at 0.01·c, and ω uniform in ±1/√outputs. ω has the schedule's weight
decay, as θ has; the code has none.

A client that is absent in a round keeps θ, ω and its s_i, and is in no mean. s_c does not change if no
present client holds class c. A present client sends C proxies, also of classes that it does not hold
(Algorithm 1, line 24), and their bytes count. With its first message a client also sends its a_c^k, 4·C bytes
once in a run, since the server has no other source for them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedsub.datasets.graph import select_features
from fedsub.datasets.limits import Count, NonNegative, Share, tunable
from fedsub.methods.core.base import FederatedMethod, Message, Options, register
from fedsub.methods.core.steps import client_optimiser, local_epochs
from fedsub.methods.stacked.activation import activate, add_bias
from fedsub.methods.stacked.features import Features
from fedsub.methods.stacked.mixing import for_clients, weighted_mean
from fedsub.methods.stacked.optimiser import MaskedOptimiser, make_adam
from fedsub.methods.stacked.parameters import Parameters, stack, uniform
from fedsub.methods.stacked.segments import Segments, segment_product
from fedsub.methods.tasks import NodeClassification


@dataclass(frozen=True)
class FedSprayOptions(Options):
    lambda1: NonNegative = tunable(1.0, log=(0.1, 10))
    """λ₁, weight of the soft targets in the GNN's loss, eq. (7); 5 in the paper, 1 in its code; 0 is Local. A
    larger value improves the minority nodes and worsens the others."""
    lambda2: NonNegative = tunable(1.0, log=(0.1, 10))
    """λ₂, weight of the GNN's predictions in the encoder's loss, eq. (11)."""
    proxies: bool = True
    """Whether proxies are used; false keeps them at zero (Table 3): soft targets only use features."""
    width: Count = 64
    """d_s, width of proxies and feature embeddings (Fig. 5)."""
    proxy_learning_rate: NonNegative = tunable(0.02, log=(1e-3, 0.1))
    """Adam's learning rate for the nodes' proxies."""
    confidence: Share = 0.7
    """Unlabelled nodes guide the GNN if max q exceeds this; 0 takes all, as eq. (6)."""
    targets: Literal["own", "aligned"] = "own"
    """A training node's proxy in a new round: its own (public code) or its class's (Algorithm 1, line 4)."""
    projector: Literal["received", "classifier"] = "received"
    """g_q at the start of phase 2: the received average (Algorithm 1), or g_p's weights (public code)."""
    initialisation: Literal["glorot", "uniform"] = "glorot"
    """Initial weights of the GNN: the backbone's own, or every entry uniform in [0, 1] (public code)."""

    def unused(self, backbone: str) -> Mapping[str, str]:
        if self.lambda1 == 0:
            others = ("lambda2", "confidence", "targets", "projector", "proxy_learning_rate")
            return dict.fromkeys(others, "lambda1 above 0")
        return {} if self.proxies else dict.fromkeys(("proxy_learning_rate", "targets"), "proxies=true")


def log_probabilities(outputs: Tensor) -> Tensor:
    """log softmax of each row, (n, C) → (C, n): torch is several times slower along a short last axis."""
    if outputs.requires_grad:
        # The gradient arrives transposed: one copy here saves a copy in each earlier backward pass.
        outputs.register_hook(Tensor.contiguous)
    return outputs.t().log_softmax(dim=0)


def soft_cross_entropy(targets: Tensor, outputs: Tensor) -> Tensor:
    """−Σ_ic w_i p_ic log ŷ_ic, (), of targets w_i p_ic, (C, n), and outputs ŷ, (n, C); Σ_i w_i KL(p_i ‖ ŷ_i)
    is more by Σ_ic w_i p_ic log p_ic, which has no gradient."""
    return -torch.dot(targets.flatten(), log_probabilities(outputs).flatten())


@register(
    "fedspray",
    title="FedSpray",
    paper="Fu et al. 2024",
    options=FedSprayOptions,
    backbones=("gcn", "sgc", "graphsage", "gat", "gprgnn"),
)
class FedSpray(FederatedMethod):
    """Personal GNNs regularised by a federated feature-structure encoder; t training nodes in all."""

    options: FedSprayOptions
    client_state = (
        "encoder",
        "encoder_optimiser",
        "node_proxies",
        "proxy_optimiser",
        "class_proxies",
        "shares_sent",
    )
    server_state = ("class_shares", "aligned")

    task: NodeClassification
    train_segments: Segments
    """Segments of the t training nodes over the K clients."""
    train_features: Features
    """(t, d) features of the training nodes."""
    shares_sent: Tensor
    """(K,) bool, clients that have sent their a_c^k."""
    class_shares: Tensor
    """(K, C) a_c^k of eq. (15) as the server knows them; zero for a client that has not sent them yet."""

    encoder: Parameters
    """ω, name → (K, …); `encoder`, `classifier` and `projector` are g_e, g_p and g_q."""
    encoder_optimiser: torch.optim.Optimizer
    node_proxies: Tensor
    """(t, d_s), s_i of the training nodes."""
    class_proxies: Tensor
    """(C, d_s), s_c as the clients know it."""
    aligned: Tensor
    """(C, d_s), s_c as the server knows it."""
    proxy_optimiser: torch.optim.Optimizer | None = None
    """None if all proxies stay at zero."""

    labels: Tensor
    """(C, t) y of the training nodes, weighted as in their clients' means."""
    targets: Tensor
    """(C, n) targets of phase 1: `labels`, and λ₁ p of the reliable nodes."""
    constant: Tensor
    """() Σ λ₁ p log p, weighted in the same way."""

    def shared(self) -> list[str]:
        return []

    def initial_parameters(self) -> Parameters:
        """The GNN's start; drawn before the encoder's, so that λ₁ = 0 trains exactly as Local."""
        parameters = super().initial_parameters()
        if self.options.initialisation == "uniform":
            start = self.backbone.initial(self.federation.width, self.task.width, self.generator)
            for value in start.values():
                value.uniform_(0, 1, generator=self.generator)
            parameters = stack(start, self.federation.clients, self.device)
        return parameters

    def build(self) -> None:
        super().build()
        self.train_segments = Segments(self.task.train_count, self.device)
        rows = select_features(self.federation.features, self.task.train.cpu().numpy())
        self.train_features = type(self.inputs.features)(rows, self.train_segments, self.device)
        self.shares_sent = torch.zeros_like(self.present)
        self.class_shares = torch.zeros(self.federation.clients, self.task.width, device=self.device)
        column = torch.arange(self.task.width, device=self.device).unsqueeze(1)
        self.labels = (column == self.task.train_labels) * self.task.train_weight
        self._build_encoder()

    def _build_encoder(self) -> None:
        width, classes = self.options.width, self.task.width
        start: Parameters = {}
        head = (width, classes)
        shapes = {"encoder": (self.federation.width, width), "classifier": head, "projector": head}
        for name, shape in shapes.items():
            # As in the public code, the range depends on a layer's outputs, not its inputs.
            bound = 1 / math.sqrt(shape[1])
            start[f"{name}.weight"] = uniform(shape, bound, self.generator)
            start[f"{name}.bias"] = uniform(shape[1:], bound, self.generator)
        self.encoder = stack(start, self.federation.clients, self.device)
        self.encoder_optimiser = client_optimiser(self, list(self.encoder.values()))
        scale = 1.0 if self.options.proxies else 0.0
        nodes = torch.full((len(self.task.train), width), 0.1 * scale, device=self.device)
        self.node_proxies = nodes.requires_grad_(self.options.proxies)
        ramp = torch.arange(classes, device=self.device, dtype=torch.float32).unsqueeze(1)
        self.class_proxies = self.aligned = (0.01 * scale * ramp).repeat(1, width)
        rate, client = self.options.proxy_learning_rate, self.train_segments.client
        if self.options.proxies and self.channel.everyone:
            self.proxy_optimiser = make_adam([self.node_proxies], rate, 0.0)
        elif self.options.proxies:
            self.proxy_optimiser = MaskedOptimiser(
                [self.node_proxies], rate, 0.0, lambda: self.working[client]
            )

    def train_round(self) -> Tensor:
        """Phase 1 on the GNNs, phase 2 on encoder and proxies; returns phase 1's last loss."""
        self.set_targets()
        loss = super().train_round()
        self.train_encoder()
        return loss

    def objective(self, logits: Tensor) -> Tensor:
        """Σ_k CE + λ₁ KL(p ‖ ŷ), eq. (7)."""
        if self.options.lambda1 == 0:
            return super().objective(logits)
        return self.constant + soft_cross_entropy(self.targets, logits)

    def embed(self, features: Features, segments: Segments) -> Tensor:
        """e of every row, (rows, d_s)."""
        product = features.times(self.encoder["encoder.weight"])
        return activate(product, self.encoder["encoder.bias"], segments, None)

    def apply(self, name: str, h: Tensor, segments: Segments) -> Tensor:
        """Logits of `classifier` or `projector`, (rows, C), of `h` (rows, d_s)."""
        product = segment_product(h, self.encoder[f"{name}.weight"], segments)
        return add_bias(product, self.encoder[f"{name}.bias"], segments)

    def set_targets(self) -> None:
        """Set `targets` and `constant` for this round's phase 1."""
        segments = self.inputs.segments
        with torch.no_grad():
            if self.options.targets == "aligned" and self.options.proxies:
                aligned, client = self.class_proxies[self.task.train_labels], self.train_segments.client
                self.node_proxies.copy_(for_clients(aligned, self.node_proxies, self.present[client]))
            embedding = self.embed(self.inputs.features, segments)
            guess = log_probabilities(self.apply("projector", embedding, segments)).exp_()
            proxies = guess.t() @ self.class_proxies
            proxies[self.task.train] = self.node_proxies
            log_p = log_probabilities(self.apply("classifier", proxies.add_(embedding), segments))
            reliable = (guess.amax(dim=0) > self.options.confidence).float()
            reliable[self.task.train] = 1
            count = segments.sum(reliable.unsqueeze(1)).squeeze(1).clamp(min=1)
            weight = self.options.lambda1 * reliable / count[segments.client]
            self.targets = log_p.exp() * weight
            self.constant = torch.dot(self.targets.flatten(), log_p.flatten())
            self.targets[:, self.task.train] += self.labels

    def train_encoder(self) -> None:
        """Phase 2, eqs. (11)–(13): E epochs on ω and the training nodes' proxies."""
        with torch.no_grad():
            outputs = self.setting.architecture.outputs_of(self.logits(None))
            weight = self.options.lambda2 * self.task.train_weight
            predicted = log_probabilities(outputs[self.task.train]).exp() * weight
            if self.options.projector == "classifier":
                for part in ("weight", "bias"):
                    own = self.encoder[f"projector.{part}"]
                    own.copy_(for_clients(self.encoder[f"classifier.{part}"], own, self.present))
        optimisers = [each for each in (self.encoder_optimiser, self.proxy_optimiser) if each is not None]
        for _ in local_epochs(self):
            for each in optimisers:
                each.zero_grad(set_to_none=True)
            self.train_features.renew_gradients()
            self.encoder_loss(predicted).backward()
            for each in optimisers:
                each.step()

    def encoder_loss(self, predicted: Tensor) -> Tensor:
        """Σ_k CE(y, q) + λ₂ CE(ŷ, p), (), with the gradient of eq. (11); `predicted`, (C, t), is λ₂ ŷ of the
        training nodes, weighted as in clients' means."""
        segments = self.train_segments
        embedding = self.embed(self.train_features, segments)
        guess = self.apply("projector", embedding, segments)
        logits = self.apply("classifier", embedding + self.node_proxies, segments)
        return soft_cross_entropy(self.labels, guess) + soft_cross_entropy(predicted, logits)

    def send(self) -> Message:
        """ω, s_c^k as `proxies`, and with a client's first message its a_c^k as `shares`."""
        count = self.task.train_count.to(self.device).clamp(min=1)
        shares = (self.task.held.float() / count.unsqueeze(1)).unsqueeze(1)
        message = self.encoder | {"shares": shares, "kept.shares": ~self.shares_sent.unsqueeze(1)}
        self.shares_sent = self.shares_sent | self.present
        if self.options.proxies:
            message["proxies"] = self.task.class_means(self.node_proxies.detach())
        return message

    def aggregate(self, sent: Message) -> Message:
        """Average the encoders and align the proxies."""
        new = sent["kept.shares"].squeeze(1)
        self.class_shares = for_clients(sent["shares"].squeeze(1), self.class_shares, new)
        answer = {name: weighted_mean(sent[name], self.weights) for name in self.encoder}
        if self.options.proxies:
            # Σ_k a_c^k s_c^k / Σ_k a_c^k, eq. (15); a class that no present client holds keeps its proxy.
            shares = (self.class_shares * self.present.unsqueeze(1)).unsqueeze(2)
            total = shares.sum(dim=0)
            mean = (shares * sent["proxies"]).sum(dim=0) / total.clamp(min=torch.finfo(total.dtype).tiny)
            self.aligned = torch.where(total > 0, mean, self.aligned)
            answer["proxies"] = self.aligned.unsqueeze(0)
        return answer

    def receive(self, answer: Message) -> None:
        for name, value in self.encoder.items():
            value.copy_(for_clients(answer[name], value, self.receiving))
        if self.options.proxies:
            self.class_proxies = answer["proxies"][0]
