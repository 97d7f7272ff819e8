"""Evaluation: which model is scored on which nodes, by the schedule's `evaluate`."""

from collections.abc import Callable
from functools import cache, partial

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
        return whole_graph(method)
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


def whole_graph(method: FederatedMethod) -> tuple[Task, Callable[[], Tensor]]:
    """Return the task that scores every client on all m nodes of the whole graph, each held once, as
    FederatedScope's `make_global_eval` does, and the function that predicts.

    Raises UserError for a task or a method that cannot be scored so.
    """
    scoring = method.setting.scoring
    kind, base = type(method), FederatedMethod
    own_inputs = kind.make_inputs is not base.make_inputs and not method.info.scored_plain
    if not isinstance(scoring, NodeClassification):
        raise UserError("evaluate=whole-graph scores only node classification: set evaluate=local")
    if method.info.predicts_with or own_inputs or kind.predict is not base.predict:
        why = method.info.predicts_with or "its own inputs or outputs"
        raise UserError(
            f"{method.info.title} needs {why}, which evaluate=whole-graph ignores: set evaluate=local"
        )
    federation, _ = scoring.federation.merged()
    task = NodeClassification(repeated(federation, scoring.clients), device=method.device)
    task.metrics = scoring.metrics

    @cache
    def inputs_of(copies: int) -> Inputs:
        """Inputs of `copies` models, each on the whole graph."""
        held = repeated(federation, copies)
        return prepare(method, held.graph, held.features, held.sizes, read=None)

    def predict() -> Tensor:
        """Outputs of each client's model, (K·m, C). A model that all clients share is run once."""
        models = {name: value.detach() for name, value in method.parameters.items()}
        if all(bool((value == value[:1]).all()) for value in models.values()):
            models = {name: value[:1] for name, value in models.items()}
        copies = max(map(len, models.values()))
        own = method.inputs, method.parameters
        dropout = method.dropout.scoring() if method.schedule.evaluate_dropout else None
        models = {name: value.expand(copies, *value.shape[1:]) for name, value in models.items()}
        try:
            method.inputs, method.parameters = inputs_of(copies), models
            with torch.no_grad():
                outputs = method.setting.architecture.outputs_of(method.logits(dropout))
        finally:
            method.inputs, method.parameters = own
        return outputs.repeat(task.clients // copies, 1)

    return task, predict
