"""Node classification: cross-entropy and accuracy on labelled nodes."""

from __future__ import annotations

import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.datasets.errors import UserError
from fedsub.datasets.federation import Federation
from fedsub.datasets.options import Spec
from fedsub.methods.core.metrics import Items
from fedsub.methods.core.tasks.base import Evaluation, Task
from fedsub.methods.stacked.cross_entropy import cross_entropy


class NodeClassification(Task):
    """The class of every node; outputs are logits, (n, C)."""

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
        """(training nodes,) rows."""
        self.read = self.train
        self.train_labels = self.labels[self.train]
        share = 1 / self.train_count.clamp(min=1).float()
        self.train_weight = share.to(device)[self.client[self.train]]
        """(training nodes,) 1 / training nodes of the node's client."""
        self.cell = self.client[self.train] * self.width + self.train_labels
        """(training nodes,) client · C + class."""
        held = torch.bincount(self.cell, minlength=self.clients * self.width)
        self.held = held.view(self.clients, self.width)
        """(K, C) training nodes of each class at each client."""
        self.majority = self.held.argmax(dim=1)
        """(K,) the commonest class among each client's training nodes."""
        self.validation = self._items(federation.validation)
        self.test = self._items(federation.test)
        held_out = len(self.validation.rows)
        self.validation_weight = torch.full((held_out,), 1 / max(held_out, 1), device=device)

    @classmethod
    def check(cls, spec: Spec) -> None:
        if spec.options:
            raise UserError(f"{cls.name} takes no options: leave the brackets of {str(spec)!r} out")

    @classmethod
    def hold_out(cls, federation: Federation, spec: Spec, seed: int) -> Federation:
        cls.check(spec)
        return federation

    @classmethod
    def merge(cls, data: Federation, seed: int) -> tuple[Federation, Tensor]:
        return data.merged()

    def class_means(self, values: Tensor) -> Tensor:
        """Mean over each client's training nodes of each class; (training nodes, width) → (K, C, width), zero
        for a class that a client has not."""
        total = values.new_zeros(self.clients * self.width, values.shape[1]).index_add(0, self.cell, values)
        return total.view(self.clients, self.width, -1) / self.held.clamp(min=1).unsqueeze(2)

    def _items(self, mask: Tensor) -> Items:
        rows = mask.nonzero().squeeze(1).to(self.labels.device)
        return Items(self.labels[rows], self.client[rows], self.clients, rows, self.majority)

    def _check(self, output: Tensor) -> None:
        # The compiled passes would read and write beside the array.
        if output.shape != (len(self.labels), self.width):
            shape = " × ".join(map(str, output.shape))
            raise UserError(
                f"the method's outputs are {shape}, not one row for each of the {len(self.labels)} nodes and "
                f"one column for each of the {self.width} classes: mend its logits()"
            )

    def loss(self, output: Tensor) -> Tensor:
        """Σ_k mean over client k's training nodes of the cross-entropy; a client with none adds 0. Raises
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
        """The validation loss is the pooled cross-entropy. Raises UserError as `loss` does."""
        self._check(output)
        loss, held = float("nan"), self.validation
        if len(held.rows):
            loss = float(cross_entropy(output.detach(), held.rows, held.labels, self.validation_weight))
        return self.score(output, output, loss)
