"""What crosses the network between the clients and the server, counted in bytes."""

from __future__ import annotations

import torch
from torch import Tensor


def size_of(*tensors: Tensor) -> int:
    """Bytes of the tensors as they stand; a stacked one counts all its clients, a CSR one its values with
    their columns."""
    return sum(
        8 * len(each.values()) if each.layout is torch.sparse_csr else each.numel() * each.element_size()
        for each in tensors
    )


class Channel:
    """Adds up what every client sends (`up`) and receives (`down`), and what is exchanged once.

    Every method hands over the tensors that it really exchanges, or their size where they are sent
    in another form (sparse, quantised).
    """

    def __init__(self) -> None:
        self.bytes_up = 0
        self.bytes_down = 0
        self.bytes_once = 0

    @property
    def total(self) -> int:
        """Bytes in both directions and of one-off exchanges so far."""
        return self.bytes_up + self.bytes_down + self.bytes_once

    def up(self, *payload: Tensor | int) -> None:
        """Clients to server (or to clients), summed over clients, in this round."""
        self.bytes_up += _total(payload)

    def down(self, *payload: Tensor | int) -> None:
        """Server to clients, summed over clients, in this round."""
        self.bytes_down += _total(payload)

    def once(self, *payload: Tensor | int) -> None:
        """Exchanged before or after training, not in every round."""
        self.bytes_once += _total(payload)


def _total(payload: tuple[Tensor | int, ...]) -> int:
    return sum(item if isinstance(item, int) else size_of(item) for item in payload)
