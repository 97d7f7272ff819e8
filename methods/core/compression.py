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

from collections.abc import Mapping

import torch
from torch import Tensor

from fedsub.methods.core.draws import Draws
from fedsub.methods.core.sizes import FLOAT, INDEX

VALUES, SCALE, PLACES = "update.values", "update.scale", "update.places"


class Compression:
    """The clients' messages under one setting; keeps what they left out."""

    state = ("left_out",)

    def __init__(self, bits: int, share: float, feedback: bool) -> None:
        """`bits` of a value, 0 for float32; `share` of the values, 1 for all."""
        self.bits, self.share, self.feedback = bits, share, feedback
        self.left_out: Tensor | float = 0.0

    def encode(self, update: Tensor, present: Tensor, draws: Draws) -> dict[str, Tensor]:
        """What the clients send of updates (K, P), of which those of absent clients are not sent.

        `update.values`, (K, V) float32, or int16 with `update.scale`, (K, 1); where V < P `update.places`,
        (K, V) int32 in rising order.
        """
        wanted = update + self.left_out
        sent = {VALUES: wanted}
        if self._listed(values := wanted.shape[1]):
            places = wanted.abs().topk(count_kept(values, self.share), dim=1, sorted=False).indices
            places = places.sort(dim=1).values
            sent = {VALUES: wanted.gather(1, places), PLACES: places.int()}
        elif self.share < 1:
            sent = {VALUES: largest(wanted, self.share)}
        if self.bits:
            sent[VALUES], sent[SCALE] = quantised(sent[VALUES], self.bits, draws)
        if self.feedback:
            left_out = wanted - self.decode(sent, values)
            self.left_out = torch.where(present.unsqueeze(1), left_out, self.left_out)
        return sent

    def decode(self, sent: Mapping[str, Tensor], values: int) -> Tensor:
        """The updates as the server reads them, (K, P) with P = `values`."""
        read = sent[VALUES]
        if self.bits:
            read = read * (sent[SCALE] / (2 ** (self.bits - 1) - 1))
        if PLACES in sent:
            read = read.new_zeros(len(read), values).scatter_(1, sent[PLACES].long(), read)
        return read

    def size(self, values: int) -> int:
        """Bytes of one client's message that stands for so many values."""
        kept = count_kept(values, self.share)
        return min(self._packed(kept) + INDEX * kept, self._packed(values))

    def _listed(self, values: int) -> bool:
        """Whether the values that are sent come with their places, which is the shorter way."""
        return self.size(values) < self._packed(values)

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


def quantised(update: Tensor, bits: int, draws: Draws) -> tuple[Tensor, Tensor]:
    """Each row of `update` (K, P) in multiples of its scale / L, rounded at random; int16, and s, (K, 1)."""
    levels = 2 ** (bits - 1) - 1
    scale = update.abs().amax(dim=1, keepdim=True)
    share = update / scale.clamp(min=torch.finfo(update.dtype).tiny)
    whole = (share * levels + draws.uniform(update)).floor_().clamp_(-levels, levels)
    return whole.to(torch.int16), scale
