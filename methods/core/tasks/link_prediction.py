"""Link prediction: which pairs of nodes are joined, scored by ROC-AUC.

FedCog (section 5.3) and FED-PUB (Figure 10): an encoder gives every node `width` numbers, a pair's score is
their dot product. Spelt `link-prediction`, or with options `link-prediction[width=100,test=0.1]`; which
edges are held out is told in `datasets.links`.
"""

from __future__ import annotations

from copy import copy

import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.datasets.federation import Federation
from fedsub.datasets.links import NAME, LinkOptions, Links, Pairs, draw_links, merged_links
from fedsub.datasets.options import Spec
from fedsub.datasets.seeding import torch_stream
from fedsub.methods.core.metrics import Items
from fedsub.methods.core.tasks.base import Evaluation, Task

NEGATIVES = "pairs drawn in training"
"""Purpose of the stream that draws them."""


class LinkPrediction(Task):
    """Whether pairs of nodes are joined; outputs are embeddings, (n, width)."""

    name = NAME
    default = ("roc_auc",)
    version = 2
    state = ("sampler",)

    def __init__(self, data: Links, seed: int = 0, device: torch.device | str = "cpu") -> None:
        self.federation, links = data.federation, data
        self.metrics = self.metrics_with()
        self.links, self.seed, self.device = links, seed, device
        self.width = links.options.width
        self.clients = links.federation.clients
        client = links.federation.client
        self.train = links.train.to(device)
        self.train_client = client[links.train.ends[0]].to(device)
        self.train_count = torch.bincount(client[links.train.ends[0]], minlength=self.clients)
        # Pairs of nodes of several clients are no client's: one AUC, booked with the first.
        scored = client if links.options.pairs == "inside" else torch.zeros_like(client)
        self.validation = self._items(links.validation, scored)
        self.test = self._items(links.test, scored)
        self.ends = links.validation.ends.to(device), links.test.ends.to(device)
        """(2, P) rows each."""
        self.sampler = Sampler(links, seed, device) if links.options.negatives == "fresh" else None

    @classmethod
    def check(cls, spec: Spec) -> None:
        LinkOptions.of(spec)

    @classmethod
    def hold_out(cls, federation: Federation, spec: Spec, seed: int) -> Links:
        return draw_links(federation, LinkOptions.of(spec), seed)

    @classmethod
    def merge(cls, data: Links, seed: int) -> tuple[Links, Tensor]:
        return merged_links(data, seed)

    def _items(self, pairs: Pairs, client: Tensor) -> Items:
        return Items(
            labels=pairs.joined.to(self.device),
            client=client[pairs.ends[0]].to(self.device),
            clients=self.clients,
            rows=torch.arange(len(pairs.joined), device=self.device),
        )

    def restarted(self) -> LinkPrediction:
        """The same pairs; fresh negatives are drawn from the start."""
        again = copy(self)
        if self.sampler is not None:
            again.sampler = Sampler(self.links, self.seed, self.device)
        return again

    def client_loss(self, output: Tensor) -> Tensor:
        """Each client's mean training cross-entropy, (K,); a call with fresh negatives draws anew."""
        pairs = self.train if self.sampler is None else self.sampler()
        client = self.train_client if self.sampler is None else self.sampler.client[pairs.ends[0]]
        losses = functional.binary_cross_entropy_with_logits(
            dot_products(output, pairs.ends), pairs.joined, reduction="none"
        )
        total = torch.zeros(self.clients, device=output.device).index_add(0, client, losses)
        return total / torch.bincount(client, minlength=self.clients).clamp(min=1)

    def evaluate(self, output: Tensor) -> Evaluation:
        """The validation loss is the pooled binary cross-entropy."""
        validation, test = (dot_products(output, ends) for ends in self.ends)
        loss = float("nan")
        if len(validation):
            loss = float(functional.binary_cross_entropy_with_logits(validation, self.validation.labels))
        return self.score(validation, test, loss)


class Sampler:
    """Training pairs of one epoch: every edge, and as many pairs of its client's nodes drawn anew.

    Draws that hit an edge (or a node twice) are left out, so dense clients get fewer negatives.
    """

    state = ("generator",)

    def __init__(self, links: Links, seed: int, device: torch.device | str = "cpu") -> None:
        federation = links.federation
        self.generator = torch_stream(seed, NEGATIVES)
        self.device = device
        self.positives = links.train.ends[:, links.train.joined > 0]
        owner = federation.client[self.positives[0]]
        self.sizes = federation.sizes[owner]
        self.starts = (federation.sizes.cumsum(0) - federation.sizes)[owner]
        self.origin = federation.origin
        self.total = federation.source.nodes
        self.barred = torch.from_numpy(links.barred)
        self.client = federation.client.to(device)

    def __call__(self) -> Pairs:
        """Edges first, then negatives."""
        draw = torch.rand((2, len(self.sizes)), generator=self.generator, dtype=torch.float64)
        ends = (draw * self.sizes).long() + self.starts
        first, second = self.origin[ends[0]], self.origin[ends[1]]
        codes = torch.minimum(first, second) * self.total + torch.maximum(first, second)
        at = torch.searchsorted(self.barred, codes).clamp(max=max(len(self.barred) - 1, 0))
        free = (first != second) & (self.barred[at] != codes)
        ends = torch.cat([self.positives, ends[:, free]], dim=1)
        joined = torch.zeros(ends.shape[1])
        joined[: self.positives.shape[1]] = 1
        return Pairs(ends, joined).to(self.device)


def dot_products(output: Tensor, ends: Tensor) -> Tensor:
    """Score of each pair, (P,): the dot product of its ends' embeddings (n, width); ends (2, P)."""
    first = output.index_select(0, ends[0])
    return (first * output.index_select(0, ends[1])).sum(dim=1)
