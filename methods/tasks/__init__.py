"""Tasks of the clients: each defines a training loss and scores per client."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from copy import copy
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.datasets.errors import UserError, unknown
from fedsub.datasets.federation import Federation
from fedsub.datasets.links import NAME as LINKS
from fedsub.datasets.links import LinkOptions, Links, Pairs, draw_links, merged_links
from fedsub.datasets.options import Spec
from fedsub.datasets.paths import PLUGIN
from fedsub.datasets.seeding import torch_stream
from fedsub.datasets.sets import among
from fedsub.methods.stacked.kernels import cross_entropy
from fedsub.methods.tasks import metrics
from fedsub.methods.tasks.metrics import Items, Metric, Score

NEGATIVES = "pairs drawn in training"
"""Purpose of the random stream that draws the negative pairs."""


class Evaluation(NamedTuple):
    """Scores of one output."""

    validation: Score
    """Score of the validation items by the task's first metric."""
    test: Mapping[str, Score]
    """Name of each metric of the task → its score of the test items."""
    validation_loss: float
    """Mean loss over all validation items, pooled."""

    @classmethod
    def of(cls, kept: Any) -> "Evaluation":
        """Return the evaluation that a checkpoint holds as plain data."""
        validation, test, loss = kept
        return cls(Score(*validation), {name: Score(*each) for name, each in test.items()}, loss)


class Task(ABC):
    """A training loss and scores for the outputs of n nodes over K clients."""

    name: ClassVar[str]
    """The task's name in methods, protocols and records."""
    default: ClassVar[tuple[str, ...]]
    """Metrics of every record; the first one selects the round, unless the protocol names another."""

    state: ClassVar[tuple[str, ...]] = ()
    """Names of the attributes that draw random numbers in training; a checkpoint saves them."""

    version: ClassVar[int] = 1
    """Raise when the task's results change: results of another version belong to another cell."""

    federation: Federation
    """The clients' data that a method may see."""
    metrics: tuple[Metric, ...]
    """The default metrics and those that a protocol adds; the first one selects the round."""
    width: int
    """Number of columns of the output."""
    train_count: Tensor
    """(K,) number of training items of each client."""
    read: Tensor | None = None
    """(t,) rows whose outputs the loss reads; None: all."""
    validation: Items
    test: Items

    @abstractmethod
    def __init__(self, data: Any, seed: int = 0, device: torch.device | str = "cpu") -> None:
        """`data` comes from `hold_out` or `merge`; `seed` seeds the draws in training."""

    @classmethod
    @abstractmethod
    def check(cls, spec: Spec) -> None:
        """Raise UserError for options that the task does not take."""

    @classmethod
    @abstractmethod
    def hold_out(cls, federation: Federation, spec: Spec, seed: int) -> Any:
        """Return the task's data on these clients; `seed` draws the items held out besides the split."""

    @classmethod
    @abstractmethod
    def merge(cls, data: Any, seed: int) -> tuple[Any, Tensor]:
        """Return the data of one client that holds every node and edge, and its row for each of the clients'
        nodes, (n,)."""

    @abstractmethod
    def client_loss(self, output: Tensor) -> Tensor:
        """Each client's mean training loss, (K,); output (n, width)."""

    def loss(self, output: Tensor) -> Tensor:
        """Sum over clients of each client's mean training loss, (); output (n, width)."""
        return self.client_loss(output).sum()

    @abstractmethod
    def evaluate(self, output: Tensor) -> Evaluation:
        """Scores of `output` (n, width) on validation and test items."""

    def restarted(self) -> "Task":
        """Return the task with its random generators reset."""
        return self

    def score(self, validation: Tensor, test: Tensor, validation_loss: float) -> Evaluation:
        """Score the validation items by the first metric and the test items by every metric."""
        scores = {each.name: each(test, self.test) for each in self.metrics}
        return Evaluation(self.metrics[0](validation, self.validation), scores, validation_loss)

    @classmethod
    def metrics_with(cls, further: Iterable[str] = (), first: str = "") -> tuple[Metric, ...]:
        """Return the default metrics and the `further` ones, preceded by `first` if it is given. Raises
        UserError for a metric of another task, and for two of one name."""
        named = filter(None, (first, *cls.default, *further))
        found = [metrics.find(name) for name in dict.fromkeys(named)]
        for each in found:
            if cls.name not in each.tasks:
                raise UserError(f"{each.name} scores {', '.join(each.tasks)}, not {cls.name}: leave it out")
        # The same file may have several paths.
        if len({each.name for each in found}) < len({*map(id, found)}):
            raise UserError("two metrics have one name: rename the file and its function")
        return tuple(found)


class NodeClassification(Task):
    """Predict the class of every node; outputs are logits, (n, C)."""

    name = "node-classification"
    default = ("accuracy", "minority_accuracy")

    def __init__(self, data: Federation, seed: int = 0, device: torch.device | str = "cpu") -> None:
        self.federation = federation = data
        self.metrics = self.metrics_with()
        self.width = federation.classes
        self.clients = federation.clients
        self.train_count = federation.count(federation.train)
        self.labels = federation.labels.to(device)
        self.client = federation.client.to(device)
        self.train = federation.train.nonzero().squeeze(1).to(device)
        """(training nodes,) rows of the training nodes."""
        self.read = self.train
        self.train_labels = self.labels[self.train]
        share = 1 / self.train_count.clamp(min=1).float()
        self.train_weight = share.to(device)[self.client[self.train]]
        """(training nodes,) 1 / number of training nodes of the node's client."""
        self.cell = self.client[self.train] * self.width + self.train_labels
        """(training nodes,) client · C + class."""
        held = torch.bincount(self.cell, minlength=self.clients * self.width)
        self.held = held.view(self.clients, self.width)
        """(K, C) number of training nodes of each class at each client."""
        self.majority = torch.where(self.held.any(dim=1), self.held.argmax(dim=1), -1)
        """(K,) the commonest class among each client's training nodes, −1 without any."""
        self.validation = self._items(federation.validation)
        self.test = self._items(federation.test)

    @classmethod
    def check(cls, spec: Spec) -> None:
        if spec.options:
            raise UserError(f"{cls.name} takes no options: remove the brackets of {str(spec)!r}")

    @classmethod
    def hold_out(cls, federation: Federation, spec: Spec, seed: int) -> Federation:
        cls.check(spec)
        return federation

    @classmethod
    def merge(cls, data: Federation, seed: int) -> tuple[Federation, Tensor]:
        return data.merged()

    def class_means(self, values: Tensor) -> Tensor:
        """Mean of `values` over each client's training nodes of each class; (training nodes, width) →
        (K, C, width), zero for a class that a client lacks."""
        total = values.new_zeros(self.clients * self.width, values.shape[1]).index_add(0, self.cell, values)
        return total.view(self.clients, self.width, -1) / self.held.clamp(min=1).unsqueeze(2)

    def _items(self, mask: Tensor) -> Items:
        rows = mask.nonzero().squeeze(1).to(self.labels.device)
        return Items(self.labels[rows], self.client[rows], self.clients, rows, self.majority)

    def _check(self, output: Tensor) -> None:
        # The compiled kernels would read and write out of bounds.
        if output.shape != (len(self.labels), self.width):
            shape = " × ".join(map(str, output.shape))
            raise UserError(
                f"the method's outputs have the shape {shape}: logits() must return one row for each of the "
                f"{len(self.labels)} nodes and one column for each of the {self.width} classes"
            )

    def loss(self, output: Tensor) -> Tensor:
        """Σ_k mean cross-entropy over client k's training nodes; a client without any adds 0. Raises
        UserError for outputs that are not (n, C)."""
        self._check(output)
        return cross_entropy(output, self.train, self.train_labels, self.train_weight)

    def client_loss(self, output: Tensor) -> Tensor:
        """Each client's mean training cross-entropy, (K,). Raises UserError as `loss` does."""
        self._check(output)
        losses = functional.cross_entropy(output[self.train], self.train_labels, reduction="none")
        total = torch.zeros(self.clients, device=output.device)
        return total.index_add(0, self.client[self.train], losses * self.train_weight)

    def evaluate(self, output: Tensor) -> Evaluation:
        """Score `output`; the validation loss is pooled cross-entropy. Raises UserError as `loss` does."""
        self._check(output)
        loss, held = float("nan"), self.validation
        if count := len(held.rows):
            weight = torch.full((count,), 1 / count, device=output.device)
            loss = float(cross_entropy(output.detach(), held.rows, held.labels, weight))
        return self.score(output, output, loss)


class LinkPrediction(Task):
    """Predict whether pairs of nodes are joined; outputs are embeddings, (n, width).

    As in FedCog (section 5.3) and FED-PUB (Figure 10), a pair's score is the dot product of its nodes'
    embeddings. Written `link-prediction`, or with options `link-prediction[width=100,test=0.1]`;
    `datasets.links` describes which edges are held out.
    """

    name = LINKS
    default = ("roc_auc",)
    version = 2
    state = ("generator",)

    def __init__(self, data: Links, seed: int = 0, device: torch.device | str = "cpu") -> None:
        self.links, self.seed, self.device = data, seed, device
        self.federation, self.metrics = data.federation, self.metrics_with()
        self.width, self.clients = data.options.width, data.federation.clients
        client, sizes = data.federation.client, data.federation.sizes
        self.client, self.train = client.to(device), data.train.to(device)
        self.train_count = torch.bincount(client[data.train.ends[0]], minlength=self.clients)
        # A pair across clients belongs to no client: all pairs get one score, recorded for the first client.
        scored = client if data.options.pairs == "inside" else torch.zeros_like(client)
        self.validation, self.test = self._items(data.validation, scored), self._items(data.test, scored)
        self.ends = data.validation.ends.to(device), data.test.ends.to(device)
        """Rows of the validation pairs' nodes and of the test pairs' nodes, (2, P) each."""
        self.generator = torch_stream(seed, NEGATIVES)
        self.edges = data.train.ends[:, data.train.joined > 0]
        """(2, E) rows of the training edges' nodes."""
        owner = client[self.edges[0]]
        self.edge_sizes = sizes[owner]
        """(E,) number of nodes of each training edge's client."""
        self.starts = (sizes.cumsum(0) - sizes)[owner]
        """(E,) row of the first node of each training edge's client."""

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

    def restarted(self) -> "LinkPrediction":
        """Return the task with the same pairs and the draws of fresh negatives reset."""
        again = copy(self)
        again.generator = torch_stream(self.seed, NEGATIVES)
        return again

    def fresh_pairs(self) -> Pairs:
        """Training pairs of an epoch: every edge, then for each edge one random pair of its client. A draw
        that hits an edge, or one node twice, is dropped, so dense clients get fewer negatives."""
        federation = self.federation
        draw = torch.rand((2, len(self.edge_sizes)), generator=self.generator, dtype=torch.float64)
        ends = (draw * self.edge_sizes).long() + self.starts
        first, second = federation.origin[ends]
        codes = torch.minimum(first, second) * federation.source.nodes + torch.maximum(first, second)
        free = (first != second) & ~torch.from_numpy(among(codes.numpy(), self.links.barred))
        ends = torch.cat([self.edges, ends[:, free]], dim=1)
        joined = (torch.arange(ends.shape[1]) < self.edges.shape[1]).float()
        return Pairs(ends, joined).to(self.device)

    def client_loss(self, output: Tensor) -> Tensor:
        """Each client's mean training cross-entropy, (K,); every call draws the fresh negatives anew."""
        pairs = self.fresh_pairs() if self.links.options.negatives == "fresh" else self.train
        client = self.client[pairs.ends[0]]
        losses = functional.binary_cross_entropy_with_logits(
            dot_products(output, pairs.ends), pairs.joined, reduction="none"
        )
        total = torch.zeros(self.clients, device=output.device).index_add(0, client, losses)
        return total / torch.bincount(client, minlength=self.clients).clamp(min=1)

    def evaluate(self, output: Tensor) -> Evaluation:
        """Score `output`; the validation loss is pooled binary cross-entropy."""
        validation, test = (dot_products(output, ends) for ends in self.ends)
        loss = float("nan")
        if len(validation):
            loss = float(functional.binary_cross_entropy_with_logits(validation, self.validation.labels))
        return self.score(validation, test, loss)


def dot_products(output: Tensor, ends: Tensor) -> Tensor:
    """Score of each pair, (P,): dot product of its nodes' rows in `output` (n, width); `ends` is (2, P)."""
    first = output.index_select(0, ends[0])
    return (first * output.index_select(0, ends[1])).sum(dim=1)


TASKS = MappingProxyType({kind.name: kind for kind in (NodeClassification, LinkPrediction)})


def find(name: str) -> type[Task]:
    """Return the task of this name. Raises UserError with the nearest names for an unknown one."""
    if name not in TASKS:
        raise unknown("task", name, TASKS)
    return TASKS[name]


def check(task: str | Spec) -> None:
    """Raise UserError for an unknown task and for options that it does not take."""
    spec = Spec.of(task)
    find(spec.name).check(spec)


def check_metric(task: str | Spec, name: str) -> None:
    """Raise UserError for a metric that does not exist or scores another task."""
    find(Spec.of(task).name).metrics_with([name])


def further_metrics(task: str | Spec, wanted: Iterable[str]) -> tuple[str, ...]:
    """Return the names in `wanted` that are metrics of the task but not default ones, in order. A file counts
    as a metric and is not read."""
    kind = find(Spec.of(task).name)
    known = {name for name in metrics.names() if kind.name in metrics.find(name).tasks} - {*kind.default}
    return tuple(name for name in dict.fromkeys(wanted) if name in known or name.endswith(PLUGIN))
