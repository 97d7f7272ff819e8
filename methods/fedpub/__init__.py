"""FED-PUB: personalised averages of models with similar outputs, and sparse masks on the weights.

Baek et al., Personalized Subgraph Federated Learning, ICML 2023.

- Every client trains weights w and masks μ (initially one) together and computes with w ⊙ μ (section
  4.2). Its loss is eq. (4): L + λ₁ ‖μ‖₁ + λ₂ ‖w − w̄‖², w̄ the received weights.
- Functional embedding h̃_i: the mean output of its GCN layers on a proxy graph (section 4.1).
- Server, eq. (3): w̄_i = Σ_j α_ij w_j, α_i = softmax_j(τ S(i, j)), S(i, j) = cos(h̃_i, h̃_j).
- Mask entries below λ₁ count as zero in evaluation, in the embedding and in messages.

Departures: the authors' code computes both regularisers on detached tensors, so that they have no
gradient. With gradients, as printed, the masks collapse and Cora (METIS, 10 clients) falls from 81.5 to 72.
`regularizer` chooses; `reference` is the default. The code sends every parameter whatever its mask. Here
masked entries are not sent: the average is over the clients that sent an entry, and a client keeps its own
value of an entry that it masks out. SGC has no hidden layer: its embedding is its mean logits without the
bias. The code's proxy graph has no edges between blocks; the paper has probability 0.01, as here. The code's
masked classifier starts at Glorot's values, bias included, unlike its FedAvg's: worth two points on Cora with
20 METIS clients (`classifier`).

A client that is absent in a round keeps weights and masks and is in no average. It comes back to the last
average that the server made for it, as with the code's `--frac`. A client that has not taken part yet has the
common start, and with similarity=none the last average; the code gives it the plain mean of the last round's
models. Mask figures are over all clients.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from fedsub.methods.core.base import BOTH_TASKS, PAPER_COMMUNICATION, FederatedMethod, register
from fedsub.methods.core.channel import FLOAT, INDEX, Message, unformed
from fedsub.methods.fedpub.options import FedPubOptions
from fedsub.methods.fedpub.proxy import make_proxy, mean_output, mean_output_on
from fedsub.methods.fedpub.pruning import PREFIX, Pruning, apply_masks, mix_kept, with_masks
from fedsub.methods.fedpub.similarity import correlation, label_similarity, mixing_matrix
from fedsub.methods.stacked.activation import Dropout, trains
from fedsub.methods.stacked.architecture import NETWORKS
from fedsub.methods.stacked.mixing import cosine, for_clients, gram, squared_distance
from fedsub.methods.stacked.parameters import Parameters, Weights, glorot, prefixed, unprefixed


@register(
    "fedpub",
    title="FED-PUB",
    paper="Baek et al. 2023",
    options=FedPubOptions,
    backbones=NETWORKS,
    tasks=BOTH_TASKS,
    breaks_privacy="similarity=label: the server sees every client's class distribution",
)
class FedPub(FederatedMethod):
    """Masks are parameters named `mask.<weight>`, trained with the weights and never sent."""

    options: FedPubOptions
    client_state = ("counts",)
    server_state = ("heard", "similarity", "answered", "bytes_before", "bytes_of_fedavg")
    pruning: Pruning
    embedding: Callable[[Weights], Tensor]
    """Weights with masks applied → h̃, (K, hidden): on the proxy, or on clients' graphs with proxy=feature."""
    label_similarity: Tensor
    """(K, K), similarity of the class distributions."""
    similarity: Tensor | None = None
    """(K, K), S of the last exchange; None if similarity is not used."""
    heard: Parameters
    """Last values that the server received from each client, if some are absent: masks by parameter,
    (K, in, out) bool, and `embedding`, (K, hidden)."""
    answered: Message
    """With similarity=gradient the server's last answer, at first the common start."""
    counts: Tensor
    """(K,) number of parameters that each client sent in the last exchange."""
    size: int
    """Number of parameters of one client without its masks."""
    bytes_before: int = 0
    """Bytes sent up to the last exchange, both ways."""
    bytes_of_fedavg: int = 0
    """Bytes that FedAvg would have sent up to then among the same clients."""

    def build(self) -> None:
        self.unshared = (PREFIX,) if self.options.masks else ()
        super().build()
        self.channel.refuse(self.options.masks)
        self.pruning = Pruning(self.options.lambda1)
        self.heard = {}
        self.answered = dict(self.received) if self.options.similarity == "gradient" else {}
        self.size = sum(self.parameters[name][0].numel() for name in self.shared())
        # All masks are one at the start.
        self.counts = torch.full_like(self.epochs, self.size)
        federation = self.federation
        shares, alike = label_similarity(federation)
        self.label_similarity = alike.to(self.device)
        if self.options.similarity == "label":
            self.channel.once_up(class_shares=shares.float())
        self.embedding = partial(mean_output, self.backbone, self.inputs)
        if self.options.similarity == "function" and self.options.proxy != "feature":
            generator = np.random.default_rng(self.setting.seed)
            proxy = make_proxy(self.options.proxy, federation.width, generator)
            graph, features = proxy
            self.embedding = mean_output_on(
                proxy, self.backbone, federation.clients, self.task.width, self.device, self.setting.kernel
            )
            ends = unformed(2, graph.num_edges(), dtype=torch.int32)
            self.channel.once_down(proxy=[features, ends] * federation.clients)

    def initial_parameters(self) -> Parameters:
        """FedAvg's start except for the classifier's, with masks of ones."""
        parameters = super().initial_parameters()
        if not self.options.masks:
            return parameters
        if self.options.classifier == "reference" and self.setting.architecture.head == "linear":
            inner, outer = parameters["head.weight"].shape[1:]
            with torch.no_grad():
                parameters["head.weight"].copy_(glorot((inner, outer), self.generator))
                parameters["head.bias"].copy_(glorot((1, outer), self.generator).squeeze(0))
        return with_masks(parameters)

    def logits(self, dropout: Dropout | None) -> Tensor:
        """Outputs with w ⊙ μ, in evaluation with the pruned masks; (n, C)."""
        own = self.parameters
        weights = apply_masks(own) if trains(dropout) else self.pruning(own).weights
        return self.backbone.forward(self.inputs, weights, dropout)

    def objective(self, logits: Tensor) -> Tensor:
        """Eq. (4) summed over clients, ()."""
        loss = super().objective(logits)
        if self.options.regularizer == "printed":
            for name in self.shared():
                drift = squared_distance(self.parameters[name], self.received[name])
                loss = loss + self.options.lambda2 * drift
            for mask in unprefixed(PREFIX, self.parameters).values():
                loss = loss + self.options.lambda1 * mask.abs().sum()
        return loss

    def send(self) -> Message:
        """The unmasked weights, and h̃ as `embedding`."""
        message, kept = super().send(), self.pruning(self.parameters).kept()
        masked = [self.channel.count(mask) - mask[0].numel() for mask in kept.values()]
        self.counts = sum(masked, torch.full_like(self.epochs, self.size))
        message = {**message, **prefixed("kept", kept)}
        if self.options.similarity == "function":
            message["embedding"] = self.embedding(self.pruning(self.parameters).weights)
        return message

    def aggregate(self, sent: Message) -> Message:
        """Each client's average by similarity; for an absent client the last one made for it. An answer
        contains an entry if the client keeps it and any client sent it."""
        models, kept = {name: sent[name] for name in self.received}, unprefixed("kept", sent)
        self.similarity = self.compare(sent, models, kept)
        # Absent clients' masks count, also if all others send every entry.
        unmasked = {n: torch.ones_like(mask) for n, mask in self.heard.items() if n != "embedding"}
        kept = self._heard(unmasked | kept, True)
        if self.similarity is None:
            alike = self.weights.unsqueeze(0)
            return mix_kept(alike, models, kept) if kept else super().aggregate(models)
        explicit = self.options.community == "explicit"
        present = None if self.channel.everyone else self.present
        matrix = mixing_matrix(self.similarity, self.options.tau, explicit, present)
        last = {**self.received, **prefixed("kept", kept)}
        answer = {
            name: for_clients(value, last[name], self.present)
            for name, value in mix_kept(matrix, models, kept).items()
        }
        if self.options.similarity == "gradient":
            self.answered = answer
        return answer

    def _heard(self, sent: Parameters, unheard: bool) -> Parameters:
        """Last values sent by each client, (K, …); `unheard` for a client that has not sent any."""
        if self.channel.everyone:
            return sent
        for name, new in sent.items():
            old = self.heard.get(name, torch.full_like(new, unheard))
            self.heard[name] = for_clients(new, old, self.present)
        return {name: self.heard[name] for name in sent}

    def receive(self, answer: Message) -> None:
        """Set the received average; a client keeps its own value of an entry that it did not receive."""
        own = self.pruning(self.parameters).kept() if not self.channel.everyone else {}
        for name, mask in unprefixed("kept", answer).items():
            # The server does not know the masks of a client that has never sent.
            mask = mask & own[name] if name in own else mask
            self.received[name] = torch.where(mask, answer[name], self.parameters[name].detach())
        super().receive(self.received)
        self._report()

    def compare(self, sent: Message, models: Message, kept: Parameters) -> Tensor | None:
        """S, (K, K), of what the server knows; None if similarity is not used."""
        kind = self.options.similarity
        if kind == "none":
            return None
        if kind == "label":
            return self.label_similarity
        if kind == "function":
            return cosine(gram(self._heard({"embedding": sent["embedding"]}, False).values()))
        if kind == "gradient":
            models = {name: value - self.answered[name] for name, value in models.items()}
            known = unprefixed("kept", self.answered)
            kept = known | {name: mask & known.get(name, mask) for name, mask in kept.items()}
        return cosine(gram(torch.where(kept[n], v, 0) if n in kept else v for n, v in models.items()))

    def _report(self) -> None:
        """Add the figures of the paper's Tables 3, 5 and 9 and Figure 6 for this round's exchange.

        `mask_sparsity_pct`: masked share of the entries that have a mask; `model_size_pct`: remaining share
        of all parameters; `communication_pct_of_fedavg` and its mean: both ways, by the shorter of a
        message's two encodings, which an answer shares; `paper_communication_pct`: every entry has an index,
        3/2 of the model's size, as in Table 3, even if sending all values would be shorter;
        `similarity_label_correlation`: correlation of S with the label similarity over pairs of clients,
        absent ones with their last values or, if models are compared, left out.
        """
        whole, counted = self.federation.clients * self.size, int(self.counts.sum())
        maskable = sum(mask.numel() for mask in unprefixed(PREFIX, self.parameters).values())
        sent = self.channel.bytes_up + self.channel.bytes_down
        fedavg = FLOAT * self.size * (int(self.present.sum()) + int(self.receiving.sum()))
        figures = {
            "mask_sparsity_pct": 100 * (whole - counted) / max(maskable, 1),
            "model_size_pct": 100 * (1 - (whole - counted) / whole),
            "communication_pct_of_fedavg": 100 * (sent - self.bytes_before) / fedavg,
            PAPER_COMMUNICATION: 100 * counted * (2 * FLOAT + INDEX) / (2 * FLOAT * whole),
        }
        self.bytes_before, self.bytes_of_fedavg = sent, self.bytes_of_fedavg + fedavg
        if self.similarity is not None:
            models_only = self.options.similarity in ("parameter", "gradient")
            compared = self.present if models_only else torch.ones_like(self.present)
            similarities = self.similarity, self.label_similarity
            pairs = (each[compared][:, compared].double() for each in similarities)
            figures["similarity_label_correlation"] = correlation(*pairs)
            if str(self.round_number) in self.options.keep_similarity.split("+"):
                kept = self.similarity.cpu().round(decimals=4)
                self.extras[f"similarity_of_round_{self.round_number}"] = kept
        for name, value in figures.items():
            self.by_round.setdefault(name, []).append(value)

    def finish(self) -> None:
        self.extras["communication_pct_of_fedavg_mean"] = 100 * self.bytes_before / self.bytes_of_fedavg
        if self.options.keep_similarity:
            self.extras["label_similarity"] = self.label_similarity.cpu().numpy().round(4)
            self.extras["missing_edges"] = self.federation.missing_edges().numpy()
