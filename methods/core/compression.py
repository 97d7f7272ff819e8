"""Updates in fewer bytes: the largest values alone, and values rounded at random to few bits.

All of a client's shared parameters are one vector u of P values, with one scale s = max |u|.

- `top_k`: the share of the values that are largest in absolute value, each with its place, a 32-bit number
  (or the plain list with zeros, where that is shorter).
- `quantise`, b bits: with L = 2^(b−1) − 1 the value u_i is sent as the whole number ⌊L u_i / s + U[0, 1)⌋ in
  −L…L and read as s / L times it, which is u_i in the mean (Alistarh et al., QSGD, 2017, with the largest
  value in place of the L2 norm); s is sent besides.
- `error_feedback`: what a message left out of u is added to the client's next u (Seide et al. 2014).
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedsub.methods.core.sizes import FLOAT, INDEX


class Compression:
    """The clients' messages under one setting; keeps what they left out."""

    state = ("left_out",)

    def __init__(self, bits: int, share: float, feedback: bool) -> None:
        """`bits` of a value, 0 for float32; `share` of the values, 1 for all."""
        self.bits, self.share, self.feedback = bits, share, feedback
        self.left_out: Tensor | float = 0.0

    def __call__(self, update: Tensor, present: Tensor, generator: torch.Generator) -> Tensor:
        """The updates (K, P) as the server reads them; those of absent clients are not sent."""
        wanted = update + self.left_out
        read = largest(wanted, self.share)
        if self.bits:
            read = quantised(read, self.bits, generator)
        if self.feedback:
            self.left_out = torch.where(present.unsqueeze(1), wanted - read, self.left_out)
        return read

    def size(self, values: int) -> int:
        """Bytes of one client's message that stands for so many values."""
        kept = count_kept(values, self.share)
        return min(self._packed(values), self._packed(kept) + INDEX * kept)

    def _packed(self, values: int) -> int:
        return -(-values * self.bits // 8) + FLOAT if self.bits else FLOAT * values


def count_kept(values: int, share: float) -> int:
    """Values of a message that `top_k` keeps, at least one."""
    return max(1, round(share * values))


def largest(update: Tensor, share: float) -> Tensor:
    """Each row of `update` (K, P) with zeros in place of all but its largest values."""
    kept = count_kept(update.shape[1], share)
    if kept == update.shape[1]:
        return update
    place = update.abs().topk(kept, dim=1, sorted=False).indices
    return torch.zeros_like(update).scatter_(1, place, update.gather(1, place))


def quantised(update: Tensor, bits: int, generator: torch.Generator) -> Tensor:
    """Each row of `update` (K, P) rounded at random, up or down, to a multiple of its scale / L."""
    levels = 2 ** (bits - 1) - 1
    scale = update.abs().amax(dim=1, keepdim=True)
    drawn = torch.rand(update.shape, generator=generator).to(update.device)
    whole = (update / scale.clamp(min=torch.finfo(update.dtype).tiny) * levels + drawn).floor_()
    return whole.clamp_(-levels, levels) * (scale / levels)
