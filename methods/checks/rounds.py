"""Checks of rounds: gradients between clients, absent clients, counted bytes, and clients that run apart."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fedsub.datasets.graph import select_features
from fedsub.methods.checks.subject import Skipped, Subject, apart, reread, with_other_labels
from fedsub.methods.core.base import FederatedMethod, Message
from fedsub.methods.core.draws import GlobalDraws, seed_draws
from fedsub.methods.core.halves import ClientHalf, ServerHalf, of_client, placeholders
from fedsub.methods.core.schedule import Schedule
from fedsub.methods.core.setting import Setting
from fedsub.methods.core.state import names_of, restored
from fedsub.methods.core.training import end_round, start_round, train

HALF = Schedule(
    rounds=4, local_epochs=2, participation=0.5, stragglers=0.5, leavers="0@1", learning_rate=0.001
)
WHOLE = replace(HALF, participation=1.0, leavers="")
APART = Schedule(rounds=3, optimiser="sgd", learning_rate=0.1)
NONSENSE = 100
COUNTED = "depends on absent clients: average with self.weights, which are 0 for them, or over self.present"


def isolated(subject: Subject) -> None:
    """Check that a client's state after local training does not depend on another client's labels."""
    if subject.info.simulation_only or subject.info.merged:
        raise Skipped(subject.info.simulation_only or "there is one client")
    schedule = Schedule(rounds=2, local_epochs=2, optimiser="sgd", learning_rate=0.1)
    first, second = (subject.make(subject.setting(schedule)) for _ in range(2))
    others = torch.arange(3) > 0
    for method in (first, second):
        method.build()
        if method.every_epoch:
            raise Skipped("clients and server exchange messages in every step")
        _run(method, rounds=1)
    with_other_labels(second, ~others)
    for method in (first, second):
        start_round(method, 2)
    for name, value in _of_clients(first).items():
        if apart(value[others], _of_clients(second)[name][others]):
            raise subject.fail(
                f"{name} of a client depends on another client's labels after local training: compute each "
                "client's loss from its own rows"
            )


def absent(subject: Subject) -> None:
    """Check that an absent client keeps its state and sends nothing, and that nobody learns from it."""
    if subject.info.merged or subject.info.needs_everyone:
        raise Skipped(subject.info.needs_everyone or "there is one client")
    if counted := _moved(subject, HALF) - _moved(subject, WHOLE):
        raise subject.fail(f"{min(counted)} {COUNTED}")
    method, other = (subject.make(subject.setting(HALF, clients=5, nodes=150)) for _ in range(2))
    method.build()
    other.build()
    # With one model, held by the server, no client has parameters of its own.
    one_model = not any(len(value) == 5 for value in method.parameters.values())
    for number in range(1, HALF.rounds + 1):
        before = _of_clients(method)
        start_round(method, number)
        trained = _of_clients(method)
        end_round(method)
        received = _of_clients(method)
        _round_with_nonsense(other, number, models=not one_model)
        active = slice(None) if one_model else method.present | method.receiving
        with torch.no_grad():
            for name, value in method.parameters.items():
                if apart(other.parameters[name][active], value[active]):
                    raise subject.fail(f"{name} {COUNTED}")
                other.parameters[name].copy_(value)
        if one_model:
            continue
        _check_kept(subject, before, trained, ~method.present, "local training changes")
        _check_kept(subject, trained, received, ~(method.present | method.receiving), "messages change")
        # Clients of the next round receive; the others keep their models, even if they have trained.
        models = {name: value for name, value in received.items() if name.startswith("parameters.")}
        _check_kept(subject, trained, models, ~method.receiving, "messages change")
    whole = subject.make(subject.setting(WHOLE, clients=5, nodes=150))
    train(whole)
    sent, most = (each.channel.bytes_up + each.channel.bytes_down for each in (method, whole))
    if 0 < most <= sent:
        raise subject.fail("absent clients send or receive: pass all messages through send() and aggregate()")


def counted(subject: Subject) -> None:
    """Check that one client's data change another client's predictions only through counted messages.

    In a second run client 0 has other labels, in a third other features, and the messages of the first run
    arrive at the server. If no byte was counted, their own messages arrive. The channel only counts rows that
    pass within a step or once, so a method that passes such rows is exempt if it fails.
    """
    if subject.info.merged:
        raise Skipped("there is one client")
    first, messages, carried = _recorded(subject)
    channel = first.channel
    passed = (channel.bytes_up and channel.bytes_down) or channel.bytes_once
    others = first.federation.client > 0
    for what in ("labels", "features"):
        second, *_ = _recorded(subject, what, messages if passed else None)
        if apart(first.predict()[others], second.predict()[others]):
            break
    else:
        return
    if not passed:
        raise subject.fail(
            "clients learn from each other, but no byte is counted: pass every exchange through send() or "
            "self.channel"
        )
    if channel.bytes_up > carried or (what == "features" and channel.bytes_once):
        when = "within a step" if channel.bytes_up > carried else "once"
        raise Skipped(f"rows that pass {when} are counted but not carried, so their use is not checked")
    raise subject.fail(
        "clients learn from each other past the channel: pass every exchange through send() or self.channel, "
        "and read only messages in aggregate()"
    )


def _recorded(
    subject: Subject, other: str = "", replayed: list[Message] | None = None
) -> tuple[FederatedMethod, list[Message], int]:
    """Run three rounds, with `other` labels or features at client 0; return the method, the messages that
    arrive at the server, and their bytes. `replayed` is read in their place."""
    method = subject.make(subject.setting(Schedule(rounds=3, learning_rate=0.05)))
    if other == "features":
        held, count = method.federation, int(method.federation.sizes[0])
        rows = torch.cat([torch.arange(count).flip(0), torch.arange(count, held.nodes)])
        method.federation = replace(held, features=select_features(held.features, rows.numpy()))
    seed_draws(method.setting.seed)
    method.build()
    up, size = method.channel.up, 0
    messages: list[Message] = []

    def recorded(message: Message, known: Message | None = None, who: Tensor | None = None) -> Message:
        nonlocal size
        before = method.channel.bytes_up
        arrived = up(message, known, who)
        size += method.channel.bytes_up - before
        messages.append({name: value.detach().clone() for name, value in arrived.items()})
        return arrived if replayed is None else replayed[len(messages) - 1]

    method.channel.up = recorded  # type: ignore[method-assign]
    if other == "labels":
        with_other_labels(method, torch.arange(3) == 0)
    _run(method)
    return method, messages, size


def _run(method: FederatedMethod, rounds: int | None = None) -> None:
    """Run the first `rounds` of a method that is built; None: all."""
    for number in range(1, (rounds or method.schedule.rounds) + 1):
        start_round(method, number)
        end_round(method)


def _moved(subject: Subject, schedule: Schedule) -> set[str]:
    """Names of the parameters that a round changes while all clients send the same model: with absent
    clients, those in whose average their zeros count."""
    schedule = replace(schedule, learning_rate=1e-9)
    method = subject.make(subject.setting(schedule, clients=5, nodes=150))
    method.build()
    start = {name: value.detach().clone() for name, value in method.parameters.items()}
    _run(method, rounds=1)
    return {name for name, value in method.parameters.items() if apart(value.detach(), start[name])}


def _round_with_nonsense(method: FederatedMethod, number: int, models: bool) -> None:
    """Run a round in which clients that neither train nor receive have wrong labels (and `models`)."""
    start = (method.attendance[number - 1 : number + 1] > 0).any(dim=0)
    labels = with_other_labels(method, ~start)
    start_round(method, number)
    with torch.no_grad():
        for value in method.parameters.values() if models else ():
            value[~start] = NONSENSE * value[~start] + 1
    end_round(method)
    method.task.train_labels = labels  # type: ignore[attr-defined]


def _of_clients(method: FederatedMethod) -> dict[str, Tensor]:
    """Copy the clients' state, name → (K, …): tensors, dictionaries of tensors and optimisers' states."""
    found: dict[str, Any] = {}
    for name in (name for name in names_of(type(method), ("client_state",)) if name != "received"):
        value = getattr(method, name, None)
        parts: Mapping[Any, Any] = value if isinstance(value, Mapping) else {"": value}
        if isinstance(value, torch.optim.Optimizer):
            states = enumerate(value.state.values())
            parts = {f"{i}.{part}": each for i, state in states for part, each in state.items()}
        found |= {f"{name}.{part}".rstrip("."): each for part, each in parts.items()}
    clients = method.federation.clients
    return {
        name: value.detach().clone()
        for name, value in found.items()
        if isinstance(value, Tensor) and value.shape[:1] == (clients,)
    }


def _check_kept(
    subject: Subject, before: dict[str, Tensor], after: dict[str, Tensor], away: Tensor, what: str
) -> None:
    """Raise CheckError where a client of `away`, (K,) bool, did not keep its slice. Adam makes its state in
    the first step, so state that was missing before must be zero."""
    for name, value in after.items():
        old = before.get(name, torch.zeros_like(value))
        if not torch.equal(value[away], old[away]):
            raise subject.fail(
                f"{what} {name} of absent clients: keep their values with "
                "methods.stacked.mixing.for_clients(new, old, self.present)"
            )


def alone(subject: Subject) -> None:
    """Check that K clients that run apart end with the parameters and bytes of the stacked run.

    If clients draw random numbers in training, each draws its own: then only bytes are compared, and the
    check counts as skipped.
    """
    if reason := subject.info.simulation_only_with(subject.options):
        raise Skipped(reason)
    setting = subject.setting(APART)
    whole = subject.make(setting)
    drawn = _trained(whole)
    clients, server = halves(subject, setting)
    for number in range(1, APART.rounds + 1):
        sent = []
        for client, epochs in zip(clients, server.begin(number).tolist(), strict=True):
            client.train(number, epochs)
            sent.append(client.send())
        # A client's process may end between sending and receiving.
        for k, client in enumerate(clients):
            state = reread(client)
            clients[k] = ClientHalf(subject.make(client.method.setting))
            restored(clients[k], state)
        for client, answer in zip(clients, server.answer(number, sent), strict=True):
            client.receive(answer)
    for name, value in whole.parameters.items():
        own = torch.cat([client.method.parameters[name].detach() for client in clients])
        if apart(own, value.detach().expand_as(own)) and not drawn:
            raise subject.fail(
                f"{name} differs between separate clients and the stacked run: send() and receive() may read "
                "only the client's own state, and aggregate() only messages and the server's state"
            )
    up = sum(client.method.channel.bytes_up for client in clients)
    if (up, server.method.channel.bytes_down) != (whole.channel.bytes_up, whole.channel.bytes_down):
        raise subject.fail(f"separate clients count other bytes (up: {up}, stacked {whole.channel.bytes_up})")
    if drawn:
        raise Skipped("clients draw random numbers, only bytes compared")


def _trained(method: FederatedMethod) -> bool:
    """Train all clients in one program; return whether random numbers were drawn after the set-up."""
    seed_draws(method.setting.seed)
    method.build()
    before = method.generator.get_state().tolist(), GlobalDraws().values
    _run(method)
    return before != (method.generator.get_state().tolist(), GlobalDraws().values)


def halves(subject: Subject, setting: Setting) -> tuple[list[ClientHalf], ServerHalf]:
    """Clients and server that run apart, in a setting of all clients."""
    federation = setting.federation
    clients = [
        ClientHalf(subject.make(of_client(setting, federation.only(client))))
        for client in range(federation.clients)
    ]
    held = placeholders(federation.clients, federation.width, federation.classes)
    task = type(setting.task)(held)
    counts = federation.count(federation.train).float()
    server = subject.make(replace(setting, federation=held, task=task, scoring=task))
    return clients, ServerHalf(server, counts / counts.sum())
