"""What crosses the network between the clients and the server, counted in bytes."""

from __future__ import annotations

import torch
from torch import Tensor

from fedsub.datasets.errors import UserError

FLOAT = INDEX = 4
"""Bytes of a float32 value, and of a place among others, a 32-bit number."""


def size_of(*tensors: Tensor) -> int:
    """Bytes of the tensors as they stand; a stacked one counts all its clients, a CSR one its values with
    their columns."""
    return sum(
        (FLOAT + INDEX) * len(each.values())
        if each.layout is torch.sparse_csr
        else each.numel() * each.element_size()
        for each in tensors
    )


class Channel:
    """Adds up what every client sends (`up`) and receives (`down`), and what is exchanged once.

    Every method hands over the tensors that it really exchanges, or their size where they are sent
    in another form (sparse, quantised). Of a tensor that is stacked over all clients only those slices
    count whose client takes part; a size counts as it is.
    """

    def __init__(self, clients: int = 0) -> None:
        """`clients`: length K of a stacked tensor's first axis."""
        self.bytes_up = 0
        self.bytes_down = 0
        self.bytes_once = 0
        self.clients = clients
        self.senders = self.receivers = clients
        """Clients that send, and that receive, in this round."""
        self.guard = ""
        """The settings that change what a client sends and reach `encoded` alone; empty: none."""
        self.private = False
        """Whether nothing may be sent but through `encoded`."""
        self.changed = False
        """Whether anything was."""

    @property
    def total(self) -> int:
        """Bytes in both directions and of one-off exchanges so far."""
        return self.bytes_up + self.bytes_down + self.bytes_once

    def check_sends(self, models: bool) -> None:
        """Raises UserError where the schedule changes models on their way up and the method sends none."""
        self._refuse(bool(self.guard) and not models)

    def check_changed(self) -> None:
        """After a round: raises UserError where the schedule changes models and none was sent as such."""
        self._refuse(bool(self.guard) and not self.changed)

    def up(self, *payload: Tensor | int) -> None:
        """Clients to server (or to clients), summed over clients, in this round, as they are.

        Raises UserError where updates must be private, which these would not be.
        """
        self._refuse(self.private)
        self.bytes_up += self._total(payload, self.senders)

    def encoded(self, size: int) -> None:
        """As `up`, the bytes of messages that the schedule has changed (`methods.core.uplink`)."""
        self.changed = True
        self.bytes_up += size

    def down(self, *payload: Tensor | int) -> None:
        """Server to clients, summed over clients, in this round."""
        self.bytes_down += self._total(payload, self.receivers)

    def once(self, *payload: Tensor | int) -> None:
        """Exchanged before or after training, not in every round, among all clients.

        Raises UserError where updates must be private, which this would not be.
        """
        self._refuse(self.private)
        self.bytes_once += self._total(payload, self.clients)

    def _refuse(self, refused: bool) -> None:
        if refused:
            beside = "and nothing beside them, " if self.private else ""
            raise UserError(
                f"{self.guard} acts on models that are sent as FedAvg sends them, {beside}and this method "
                "sends something else, or nothing: leave it out, or take another method"
            )

    def _total(self, payload: tuple[Tensor | int, ...], taking_part: int) -> int:
        return sum(item if isinstance(item, int) else self._size(item, taking_part) for item in payload)

    def _size(self, value: Tensor, taking_part: int) -> int:
        if taking_part == self.clients or value.dim() == 0 or len(value) != self.clients:
            return size_of(value)
        return size_of(value) // self.clients * taking_part
