"""The check of the two halves: each client with its data alone, and a server without any."""

from __future__ import annotations

import io
from dataclasses import replace

import torch

from fedsub.methods.checks.subject import Skipped, Subject
from fedsub.methods.checks.subject import apart as differ
from fedsub.methods.core.base import FederatedMethod
from fedsub.methods.core.halves import ClientHalf, ServerHalf, of_client, placeholders
from fedsub.methods.core.schedule import Schedule
from fedsub.methods.core.setting import Setting
from fedsub.methods.core.state import draws, seed_draws
from fedsub.methods.core.training import end_round, start_round

SCHEDULE = Schedule(rounds=3, optimiser="sgd", learning_rate=0.1)


def apart(subject: Subject) -> None:
    """K clients apart, with messages passed by hand, end with the parameters and bytes of the stacked run.

    Where clients draw in training, each draws for itself: then bytes alone are compared.
    """
    if subject.info.simulation_only:
        raise Skipped(subject.info.simulation_only)
    setting = subject.setting(SCHEDULE)
    whole = subject.make(setting)
    drawn = _trained(whole)
    clients, server = _halves(subject, setting)
    for number in range(1, SCHEDULE.rounds + 1):
        sent = []
        for client, epochs in zip(clients, server.begin(number).tolist(), strict=True):
            client.train(number, epochs)
            sent.append(client.send())
        # A client's process may end between what it sends and what it receives.
        clients = [gone_on(each, subject.make(each.method.setting)) for each in clients]
        for client, answer in zip(clients, server.answer(number, sent), strict=True):
            client.receive(answer)
    for name, value in whole.parameters.items():
        own = torch.cat([client.method.parameters[name].detach() for client in clients])
        if differ(own, value.detach().expand_as(own)) and not drawn:
            raise subject.fail(
                f"{name} of clients that train alone is not that of the stacked run: let send() and "
                "receive() read a client's own state, and aggregate() messages and the server's"
            )
    up = sum(client.method.channel.bytes_up for client in clients)
    if (up, server.method.channel.bytes_down) != (whole.channel.bytes_up, whole.channel.bytes_down):
        raise subject.fail(f"clients apart send {up} bytes, together {whole.channel.bytes_up}")


def gone_on(client: ClientHalf, method: FederatedMethod) -> ClientHalf:
    """A client in another process, from what this one keeps in a file."""
    file = io.BytesIO()
    torch.save(client.state.save(), file)
    file.seek(0)
    other = ClientHalf(method)
    other.state.load(torch.load(file, weights_only=True))
    return other


def _trained(method: FederatedMethod) -> bool:
    """Train in one program; returns whether something was drawn after the set-up."""
    seed_draws(method.setting.seed)
    method.build()
    before = method.generator.get_state(), draws()
    for number in range(1, SCHEDULE.rounds + 1):
        start_round(method, number)
        end_round(method)
    after = method.generator.get_state(), draws()
    same = torch.equal(before[0], after[0]) and torch.equal(before[1]["torch"], after[1]["torch"])
    return not (same and all(before[1][name] == after[1][name] for name in ("numpy", "python")))


def _halves(subject: Subject, setting: Setting) -> tuple[list[ClientHalf], ServerHalf]:
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
