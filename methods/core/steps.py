"""A client's round: whether it takes part, for how many local epochs, and what one epoch does.

In a round a client receives, trains and sends (McMahan et al. 2017, algorithm 1). Here every round ends with
its exchange, so the clients of the next round receive in the exchange of this one.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsub.datasets.errors import UserError
from fedsub.datasets.seeding import stream
from fedsub.methods.core.schedule import Schedule
from fedsub.methods.stacked.optimiser import Descent, MaskedOptimiser, make_adam


def draw_attendance(schedule: Schedule, clients: int, seed: int) -> Tensor:
    """Draw each client's local epochs in each round, (R, K) int64, 0 where it is absent.

    A round has the schedule's share of all clients, at least one, among those that have not left. The share
    of stragglers among them get 1 to `local_epochs` − 1 epochs, drawn uniformly. Raises UserError for a
    client that does not exist, for a round without clients, and for a share of stragglers that gives none in
    any round.
    """
    generator = stream(seed, "participation")
    leaving = np.full(clients, schedule.rounds + 1)
    schedule.check_clients(clients)
    for client, number in schedule.departures.items():
        leaving[client] = number
    if (leaving <= schedule.rounds).all():
        raise UserError(f"leavers={schedule.leavers} removes every client: keep at least one")
    wanted = max(1, round(schedule.participation * clients))
    epochs = np.zeros((schedule.rounds, clients), dtype=np.int64)
    for number, row in enumerate(epochs, start=1):
        order = generator.permutation(clients)
        chosen = order[leaving[order] > number][:wanted]
        slow = chosen[: round(schedule.stragglers * len(chosen))]
        row[chosen] = schedule.local_epochs
        if len(slow):
            row[slow] = generator.integers(1, schedule.local_epochs, len(slow))
    fewer = (epochs > 0) & (epochs < schedule.local_epochs)
    if schedule.stragglers and not fewer.any():
        most = int((epochs > 0).sum(axis=1).max())
        raise UserError(
            f"stragglers={schedule.stragglers:g} gives no straggler among {most} clients a round: "
            f"raise it above {0.5 / most:.2g} or raise participation"
        )
    return torch.from_numpy(epochs)


def begin_round(method: Any, number: int) -> None:
    """Begin a round (from 1) of a method: set who takes part in it, and who receives at its end."""
    method.round_number = number
    if method.channel.uplink is not None:
        method.channel.uplink.draws.begin(number)
    if number > 1 and method.channel.everyone:
        return
    # After the last round, its own clients receive.
    rows = number - 1, min(number, len(method.attendance) - 1)
    now, following = (method.attendance[row].to(method.device) for row in rows)
    method.epochs, method.present, method.receiving = now, now > 0, following > 0
    method.working = method.channel.sending = method.present
    method.channel.receiving = method.receiving
    method.weights = weights_among(method.shares, method.present)


def local_epochs(method: Any) -> Iterator[None]:
    """Iterate over the local epochs of a method's round, setting `working` for each."""
    for number in range(int(method.epochs.max())):
        method.working = method.epochs > number
        yield
    method.working = method.present


def weights_among(shares: Tensor, chosen: Tensor) -> Tensor:
    """The shares p_k, (K,), of the chosen clients, (K,) bool, scaled to sum 1, and 0 for the others; (K,).
    Equal shares if those of all chosen clients are 0."""
    if bool(chosen.all()):
        return shares
    share = shares * chosen
    share = share if share.sum() > 0 else chosen.to(share.dtype)
    return share / share.sum()


def backward(method: Any) -> Tensor:
    """Compute each client's gradient of its objective for its parameters; return the sum of losses, ()."""
    method.optimiser.zero_grad(set_to_none=True)
    method.inputs.renew_gradients()
    logits = method.logits(method.dropout)
    loss: Tensor = method.objective(method.setting.architecture.outputs_of(logits))
    loss.backward()
    return loss.detach()


def descend(method: Any) -> Tensor:
    """Take one full-batch step of every client; return the sum of losses, ()."""
    loss = backward(method)
    method.optimiser.step()
    return loss


def client_optimiser(method: Any, parameters: list[Tensor]) -> torch.optim.Optimizer:
    """The schedule's optimiser for parameters (K, …): Adam with state kept across rounds, or plain gradient
    descent. Slices of clients that are not `working` stay as they are."""
    schedule: Schedule = method.schedule
    if method.channel.everyone:
        return server_optimiser(schedule, parameters)
    adam, rate = schedule.optimiser == "adam", schedule.learning_rate
    return MaskedOptimiser(parameters, rate, schedule.weight_decay, lambda: method.working, adam)


def server_optimiser(schedule: Schedule, parameters: list[Tensor]) -> torch.optim.Optimizer:
    """The schedule's optimiser for parameters of no single client: every step changes all of them."""
    if schedule.optimiser == "sgd":
        return Descent(parameters, lr=schedule.learning_rate, weight_decay=schedule.weight_decay)
    return make_adam(parameters, schedule.learning_rate, schedule.weight_decay)
