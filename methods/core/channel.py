"""The channel between clients and server: it carries messages and counts their bytes.

A message is a dictionary, name → tensor. A tensor of length K along its first axis has one slice for each
client; one of length 1 is the same for all of them. A bool tensor named `kept.X` says which parts of X are
sent. If it has the shape of X, X is sent as a list of values with their indices, or whole if that is
shorter. If it has fewer axes, whole rows of X are sent or left out.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from fedsub.datasets.errors import UserError
from fedsub.methods.stacked.mixing import for_clients

if TYPE_CHECKING:
    from fedsub.methods.core.uplink import Uplink

FLOAT = INDEX = 4
"""Bytes of a float32 value, and of a 32-bit index."""

KEPT = "kept."
"""Prefix of masks in a message."""

Message = Mapping[str, Tensor]
"""Name → (K, …), or (1, …) where it is the same for all clients."""


class Channel:
    """Carries messages and adds up their bytes: `up` and `down` in rounds, `once` outside of them."""

    state = ("bytes_up", "bytes_down", "bytes_once", "encoded", "uplink")

    def __init__(self, clients: int, uplink: "Uplink | None" = None) -> None:
        """`uplink` changes models on their way to the server; None: models arrive unchanged."""
        self.bytes_up = self.bytes_down = self.bytes_once = 0
        self.clients = clients
        self.sending = self.receiving = torch.ones(clients, dtype=torch.bool)
        """(K,) bool, the clients that send, and those that receive, in this round."""
        self.everyone = True
        """Whether no client is ever absent."""
        self.uplink = uplink
        self.models: frozenset[str] = frozenset()
        """Names of the shared parameters."""
        self.encoded = torch.zeros(clients, dtype=torch.int64)
        """(K,), number of each client's messages that held models for the uplink."""
        self._counted = WeakTensorKeyDictionary()

    @property
    def total(self) -> int:
        """Bytes in both directions and of one-off exchanges so far."""
        return self.bytes_up + self.bytes_down + self.bytes_once

    @property
    def private(self) -> bool:
        """Whether only models that the uplink has made private may be sent."""
        return self.uplink is not None and self.uplink.schedule.privacy_clip > 0

    def up(self, message: Message, known: Message | None = None, who: Tensor | None = None) -> Message:
        """Send a message from the clients of `who`, (K,) bool (None: those present); return what arrives.

        Zeros arrive for a client that does not send. `known`, name → (1 or K, …), are the models that both
        sides have; an uplink changes the updates relative to them. Raises UserError for a message that must
        be private and is not.
        """
        who = self.sending if who is None else who
        return self.arrive(self.leave(message, known, who), known, who)

    def leave(self, message: Message, known: Message | None, who: Tensor) -> Message:
        """The clients' half of `up`: return the message as it is sent."""
        plain = message
        encoded: Message = {}
        if self.uplink is not None and known and any(name in known for name in message):
            self.refuse(not known.keys() <= message.keys())
            encoded, size = self.uplink.send(message, known, who)
            self.bytes_up += size
            plain = {name: value for name, value in message.items() if name not in known}
        self.refuse(self.private and bool(plain))
        self.bytes_up += self._size(plain, who, FLOAT + INDEX)
        return {**plain, **encoded}

    def arrive(self, left: Message, known: Message | None, who: Tensor) -> Message:
        """The server's half of `up`: return the message as the server reads it."""
        arrived = left
        if self.uplink is not None and known:
            arrived = self.uplink.read(left, known)
            if any(name in known for name in arrived):
                self.encoded += who.cpu()
        if self.everyone:
            return arrived
        return {
            name: value
            if len(value) != self.clients
            else for_clients(value, torch.zeros_like(value[:1]), who)
            for name, value in arrived.items()
        }

    def down(self, message: Message, who: Tensor | None = None) -> Message:
        """Send a message to the clients of `who`, (K,) bool (None: those that receive), and return it.

        Indices are not sent back, because the client knows which it sent.
        """
        self.bytes_down += self._size(message, self.receiving if who is None else who, FLOAT)
        return message

    def rows_up(self, **rows: Tensor | Sequence[Tensor]) -> None:
        """Count rows that clients send to the server or to each other in this round, at their full size, by
        the name of what they hold. Raises UserError where updates must be private."""
        self.refuse(self.private and bool(rows))
        self.bytes_up += _sum(rows)

    def rows_down(self, **rows: Tensor | Sequence[Tensor]) -> None:
        """Count rows that the server sends to clients in this round, at their full size."""
        self.bytes_down += _sum(rows)

    def once_up(self, **tensors: Tensor | Sequence[Tensor]) -> None:
        """Count what clients send before or after training, as `rows_up`."""
        self.refuse(self.private and bool(tensors))
        self.bytes_once += _sum(tensors)

    def once_down(self, **tensors: Tensor | Sequence[Tensor]) -> None:
        """Count what clients receive before or after training, as `rows_down`."""
        self.bytes_once += _sum(tensors)

    def count(self, mask: Tensor) -> Tensor:
        """Number of entries that each client keeps of a mask, (K, …) → (K,); cached for each mask."""
        if mask not in self._counted:
            self._counted[mask] = mask.flatten(1).sum(dim=1)
        return self._counted[mask]

    def refuse(self, refused: bool) -> None:
        """Raise UserError if `refused` and there is an uplink: it cannot handle the method's messages."""
        if refused and self.uplink is not None:
            only = "models and nothing else" if self.private else "models"
            named = {"privacy_clip": self.private, "quantise or top_k": self.uplink.schedule.compresses}
            settings = " and ".join(name for name, is_set in named.items() if is_set)
            raise UserError(
                f"{settings} needs a method that sends {only}, as FedAvg does: leave it out, or choose "
                "another method"
            )

    def _size(self, message: Message, who: Tensor, listed: int) -> int:
        """Bytes of the slices of `who`; `listed` are the bytes of a value that is sent in a list."""
        masks = {name[len(KEPT) :]: mask for name, mask in message.items() if name.startswith(KEPT)}
        whole = [name for name in message if not name.startswith(KEPT) and name not in masks]
        if not masks:
            return sum(slice_size(message[name]) for name in whole) * int(who.sum())
        sizes = torch.zeros(self.clients, dtype=torch.int64, device=who.device)
        entries = [name for name, mask in masks.items() if mask.dim() == message[name].dim()]
        for name in masks.keys() - set(entries):
            row = slice_size(message[name]) // masks[name][0].numel()
            sizes += row * self.count(masks[name])
        if entries:
            # All values of a model are sent in one list, or all of them whole.
            beside = sum(message[name][0].numel() for name in whole if name in self.models)
            whole = [name for name in whole if name not in self.models]
            counts = beside + torch.stack([self.count(masks[name]) for name in entries]).sum(dim=0)
            total = FLOAT * (beside + sum(message[name][0].numel() for name in entries))
            sizes += torch.where(counts * (FLOAT + INDEX) < total, counts * listed, total)
        sizes += sum(slice_size(message[name]) for name in whole)
        return int(sizes[who].sum())


def size_of(*tensors: Tensor) -> int:
    """Bytes of whole tensors: all clients of a stacked tensor, and the values of a CSR tensor with their
    column indices."""
    return sum(
        (FLOAT + INDEX) * len(each.values())
        if each.layout is torch.sparse_csr
        else each.numel() * each.element_size()
        for each in tensors
    )


def _sum(named: Mapping[str, Tensor | Sequence[Tensor]]) -> int:
    return sum(size_of(*([each] if isinstance(each, Tensor) else each)) for each in named.values())


def unformed(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Placeholder, with a shape only, for a tensor that clients send and the simulation need not compute."""
    return torch.empty(shape, dtype=dtype, device="meta")


def slice_size(value: Tensor) -> int:
    """Bytes of one client's part of a tensor, (K, …) or (1, …)."""
    return value.numel() // max(len(value), 1) * value.element_size()
