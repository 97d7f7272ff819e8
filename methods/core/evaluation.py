"""Evaluation: which model is scored on which nodes, by the schedule's `evaluate`."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from fedsub.datasets.errors import UserError
from fedsub.datasets.federation import Federation, repeated
from fedsub.methods.core.base import FederatedMethod, prepare
from fedsub.methods.stacked.inputs import Inputs
from fedsub.methods.tasks import NodeClassification, Task


def scoring_of(method: FederatedMethod) -> tuple[Task, Callable[[], Tensor]]:
    """Return the scoring task and the function that predicts. Raises UserError for a method that cannot be
    scored as the schedule's `evaluate` says."""
    moment, task = method.schedule.evaluate, method.setting.scoring
    if moment == "whole-graph":
        whole = WholeGraph(method)
        return whole.task, whole.predict
    if moment != "neighbour":
        return task, method.predict
    if why := method.info.predicts_with:
        title = method.info.title
        raise UserError(f"{title} needs {why}, which evaluate=neighbour ignores: set evaluate=local")
    return task, partial(predict_by, method, neighbours(method.federation).to(method.device))


def predict_by(method: FederatedMethod, model: Tensor) -> Tensor:
    """Outputs, (n, C), of client k's nodes with the parameters of client `model[k]`; `model` is (K,)."""
    own = method.parameters
    method.parameters = {
        name: value.detach()[model] if len(value) == len(model) else value for name, value in own.items()
    }
    try:
        return method.predict()
    finally:
        method.parameters = own


def neighbours(federation: Federation) -> Tensor:
    """For each client, the client to which it misses most edges, or itself if it misses none; (K,) int64."""
    missing = federation.missing_edges()
    return torch.where(missing.any(dim=1), missing.argmax(dim=1), torch.arange(len(missing)))


class WholeGraph:
    """The graph of all K clients with each of its m nodes once. Every client is scored on all of it, as by
    FederatedScope's `make_global_eval`."""

    def __init__(self, method: FederatedMethod) -> None:
        """Raises UserError for a task or a method that cannot be scored on the whole graph."""
        scoring = method.setting.scoring
        kind, base = type(method), FederatedMethod
        plain = kind.predict is base.predict and kind.make_inputs is base.make_inputs
        if not isinstance(scoring, NodeClassification):
            raise UserError("evaluate=whole-graph scores only node classification: set evaluate=local")
        if method.info.predicts_with or not plain:
            why = method.info.predicts_with or "its own inputs or outputs"
            raise UserError(
                f"{method.info.title} needs {why}, which evaluate=whole-graph ignores: set evaluate=local"
            )
        self.method = method
        self.federation, _ = scoring.federation.merged()
        everyone = repeated(self.federation, scoring.federation.clients)
        self.task = NodeClassification(everyone, device=method.device)
        self.task.metrics = scoring.metrics
        self._inputs: dict[int, Inputs] = {}

    def predict(self) -> Tensor:
        """Outputs of each client's model, (K·m, C). A model that all clients share is run once."""
        method = self.method
        models = {name: value.detach() for name, value in method.parameters.items()}
        if all(bool((value == value[:1]).all()) for value in models.values()):
            models = {name: value[:1] for name, value in models.items()}
        copies = max(map(len, models.values()))
        own = method.inputs, method.parameters
        dropout = method.dropout.scoring() if method.schedule.evaluate_dropout else None
        try:
            method.inputs = self._inputs_of(copies)
            method.parameters = {
                name: value.expand(copies, *value.shape[1:]) for name, value in models.items()
            }
            with torch.no_grad():
                outputs = method.setting.architecture.outputs_of(method.logits(dropout))
        finally:
            method.inputs, method.parameters = own
        return outputs.repeat(self.task.clients // copies, 1)

    def _inputs_of(self, copies: int) -> Inputs:
        """Inputs of `copies` models, each on the whole graph."""
        if copies not in self._inputs:
            held = repeated(self.federation, copies)
            self._inputs[copies] = prepare(self.method, held.graph, held.features, held.sizes, read=None)
        return self._inputs[copies]
