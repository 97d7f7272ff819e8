"""The two halves of a method run apart: a client with only its own data, and a server without data.

Together they do what `methods.core.training` does with all clients in one program. They exchange only
messages: name → (1, …) for one client.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fedsub.datasets.errors import UserError
from fedsub.datasets.federation import Federation, alone
from fedsub.datasets.graph import Dataset, make_graph
from fedsub.methods.core.base import FederatedMethod
from fedsub.methods.core.channel import KEPT, Message
from fedsub.methods.core.draws import GlobalDraws, seed_draws
from fedsub.methods.core.setting import Setting
from fedsub.methods.core.steps import backward, begin_round
from fedsub.methods.core.training import remember, serve
from fedsub.methods.core.uplink import Draws


class ClientHalf:
    """One client: it receives, trains and sends."""

    state = ("method", "global_draws")
    """What it keeps between messages (`methods.core.state`)."""

    def __init__(self, method: FederatedMethod, draws: Draws | None = None) -> None:
        """`method` has one client; `draws` are the random numbers of its uplink (None: secret ones). Raises
        UserError for a method whose clients cannot run apart."""
        seed_draws(method.setting.seed)
        method.build()
        check_apart(method)
        self.method = method
        if method.channel.uplink is not None:
            method.channel.uplink.draws = draws or Draws(None)
        self.global_draws = GlobalDraws()

    def receive(self, answer: Message) -> None:
        with torch.no_grad():
            remember(self.method, answer)
            self.method.receive(answer)

    def train(self, number: int, epochs: int) -> Tensor:
        """Run the local epochs of round `number` (from 1); return the last epoch's loss, ()."""
        begin_round(self.method, number)
        self.method.epochs = torch.tensor([epochs])
        if self.method.every_epoch:
            return backward(self.method)
        return self.method.train_round()

    def send(self) -> Message:
        method = self.method
        with torch.no_grad():
            sent = method.channel.leave(method.send(), method.received, method.channel.sending)
        # A parameter that the network does not use has no gradient to send.
        return {name: value for name, value in sent.items() if not value.is_meta}


class ServerHalf:
    """The server of K clients: it knows the clients' weights and their messages.

    Any message may be lost: its client then counts as absent from the round (`methods.core.steps`).
    """

    def __init__(self, method: FederatedMethod, shares: Tensor) -> None:
        """`method` has the federation of `placeholders`; `shares`, (K,), sum 1, are the clients' weights."""
        if not (method.schedule.partial or method.info.needs_everyone):
            # Every client is drawn for every round, but the method is prepared for lost messages.
            method.schedule = replace(method.schedule, participation=1 - 1e-9)
        seed_draws(method.setting.seed)
        method.build()
        check_apart(method)
        self.method = method
        method.shares = shares
        begin_round(method, 1)

    def begin(self, number: int) -> Tensor:
        """Begin round `number` (from 1); return each client's local epochs, (K,), 0 for an absent one."""
        begin_round(self.method, number)
        return self.method.epochs

    def answer(self, number: int, messages: Sequence[Message | None]) -> list[Message]:
        """Return the answer to each client; a message None stands for a client that was not heard. Raises
        UserError if no client was heard, and for a lost message if the method needs every client."""
        method = self.method
        heard = [each for each in messages if each is not None]
        if not heard:
            raise UserError(f"no client answered in round {number}: read the clients' logs")
        for client, each in enumerate(messages):
            if each is None:
                if reason := method.info.needs_everyone:
                    raise UserError(
                        f"client {client} did not answer in round {number}, and {method.info.title} needs "
                        f"every client, because {reason}"
                    )
                method.attendance[number - 1, client] = 0
        begin_round(method, number)
        forms = {name: value for each in heard for name, value in each.items()}
        zeros = {name: torch.zeros_like(value) for name, value in forms.items()}
        # A client that sends every entry of a parameter may leave out its mask.
        whole = {name: torch.ones_like(value) for name, value in forms.items() if name.startswith(KEPT)}
        sent = {
            name: torch.cat([(zeros if each is None else {**whole, **each})[name] for each in messages])
            for name in forms
        }
        with torch.no_grad():
            arrived = method.channel.arrive(sent, method.received, method.channel.sending)
            method.channel.refuse(not method.channel.encoded.any())
            answer = serve(method, arrived)
            method.channel.down(answer, method.present if method.every_epoch else None)
        return [
            {name: value if len(value) == 1 else value[k : k + 1] for name, value in answer.items()}
            for k in range(len(messages))
        ]


def check_apart(method: FederatedMethod) -> None:
    """Raise UserError for a method whose clients cannot run apart."""
    if reason := method.info.simulation_only_with(method.options):
        raise UserError(f"{method.info.title} runs as a simulation only, because {reason}")
    if method.every_epoch and method.schedule.local_epochs > 1:
        raise UserError(f"{method.info.title} exchanges messages in every step: set local_epochs=1")


def of_client(setting: Setting, federation: Federation) -> Setting:
    """The setting of one client. It takes part in every round, as the server decides who is absent."""
    schedule = setting.schedule.attended_by_all()
    task = type(setting.task)(federation, setting.seed, setting.device)
    task.metrics = setting.scoring.metrics
    return replace(setting, federation=federation, task=task, scoring=task, rows=None, schedule=schedule)


def placeholders(clients: int, width: int, classes: int) -> Federation:
    """K clients without data for the server: each has one node, whose features are zero."""
    held = Dataset(
        "placeholders",
        make_graph(np.empty(0, np.int64), np.empty(0, np.int64), clients),
        torch.zeros(clients, width),
        torch.zeros(clients, dtype=torch.int64),
        classes,
        official=torch.tensor([True, False, False]).view(3, 1, 1).expand(3, 1, clients).numpy(),
    )
    own = torch.arange(clients)
    return replace(alone(held), client=own, sizes=torch.ones(clients, dtype=torch.int64))
