"""Models scored on the whole graph, every node and edge included (FederatedScope's `make_global_eval`)."""

from __future__ import annotations

import torch
from torch import Tensor

from fedsub.datasets.errors import UserError
from fedsub.datasets.federation import repeated
from fedsub.methods.core.base import FederatedMethod, prepare
from fedsub.methods.core.tasks import NodeClassification
from fedsub.methods.stacked.inputs import Inputs


class WholeGraph:
    """The graph of all K clients with each of its m nodes once; every client is scored on all of it."""

    def __init__(self, method: FederatedMethod) -> None:
        """Raises UserError for a task or a method that cannot be scored so."""
        scoring = method.setting.scoring
        plain = all(
            getattr(type(method), name) is getattr(FederatedMethod, name)
            for name in ("predict", "make_inputs")
        )
        if not isinstance(scoring, NodeClassification):
            raise UserError("evaluate=whole-graph scores node classification alone")
        if method.info.predicts_with or not plain:
            why = method.info.predicts_with or "inputs or outputs of its own"
            raise UserError(
                f"{method.info.title} predicts with {why}: evaluate=whole-graph scores parameters alone"
            )
        self.federation, _ = scoring.federation.merged()
        everyone = repeated(self.federation, scoring.federation.clients)
        self.task = NodeClassification(everyone, device=method.device)
        self.task.metrics = scoring.metrics
        self._inputs: dict[int, Inputs] = {}

    def predict(self, method: FederatedMethod) -> Tensor:
        """Outputs of each client's model, (K·m, C): what it received last, and what it keeps to itself.

        One model that all have is run once.
        """
        models = {name: method.received.get(name, value) for name, value in method.parameters.items()}
        copies = max(map(len, models.values()))
        own = method.inputs, method.parameters
        dropout = method.dropout.scoring() if method.schedule.evaluate_dropout else None
        try:
            method.inputs = self._inputs_of(method, copies)
            method.parameters = {
                name: value.expand(copies, *value.shape[1:]) for name, value in models.items()
            }
            with torch.no_grad():
                outputs = method.setting.architecture.outputs_of(method.logits(dropout))
        finally:
            method.inputs, method.parameters = own
        return outputs.repeat(self.task.clients // copies, 1)

    def _inputs_of(self, method: FederatedMethod, copies: int) -> Inputs:
        """Of so many models, each on the whole graph."""
        if copies not in self._inputs:
            held = repeated(self.federation, copies)
            self._inputs[copies] = prepare(method, held.graph, held.features, held.sizes)
        return self._inputs[copies]
