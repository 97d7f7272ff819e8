"""Local training: what one epoch of it does, and with which optimiser."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fedsub.methods.core.schedule import Schedule
from fedsub.methods.stacked.optimiser import MaskedOptimiser, make_adam


def backward(method: Any) -> Tensor:
    """Leave each client's gradient of its objective at its parameters; returns the sum of losses, ()."""
    method.optimiser.zero_grad(set_to_none=True)
    method.inputs.renew_gradients()
    logits = method.logits(method.dropout)
    loss: Tensor = method.objective(method.setting.architecture.outputs_of(logits))
    loss.backward()
    return loss.detach()


def descend(method: Any) -> Tensor:
    """One full-batch step of every client; returns the sum of losses, ()."""
    loss = backward(method)
    method.optimiser.step()
    return loss


def client_optimiser(method: Any, parameters: list[Tensor]) -> torch.optim.Optimizer:
    """For parameters (K, …), by the schedule: Adam whose state is kept across rounds, or plain gradient
    descent; clients that do not work rest."""
    schedule: Schedule = method.schedule
    if method.channel.everyone:
        return server_optimiser(schedule, parameters)
    adam, rate = schedule.optimiser == "adam", schedule.learning_rate
    return MaskedOptimiser(parameters, rate, schedule.weight_decay, lambda: method.working, adam)


def server_optimiser(schedule: Schedule, parameters: list[Tensor]) -> torch.optim.Optimizer:
    """The same for parameters that are no client's own: all of them move in every step."""
    if schedule.optimiser == "sgd":
        return torch.optim.SGD(parameters, lr=schedule.learning_rate, weight_decay=schedule.weight_decay)
    return make_adam(parameters, schedule.learning_rate, schedule.weight_decay)
