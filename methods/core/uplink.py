"""The uplink: clients' updates are made private, compressed, or both, on their way to the server.

Let u be a client's update of all its P shared parameters, as one vector.

- Privacy (McMahan et al., Learning Differentially Private Recurrent Language Models, ICLR 2018), with
  clipping norm C and noise σ: u ← u · min(1, C / ‖u‖₂) + N(0, σ² C²).
- `top_k`: a share of the values, the largest in absolute value, is sent, each with its 32-bit index (or all
  values, with zeros, if that is shorter).
- `quantise`, b bits: with s = max |u| and L = 2^(b−1) − 1, the value u_i is sent as the integer
  ⌊L u_i / s + U[0, 1)⌋ in −L…L and read as s / L times it, whose expectation is u_i (Alistarh et al., QSGD,
  2017, with the largest value in place of the L2 norm). s is sent as well.
- `error_feedback`: the part of u that a message left out is added to the client's next u (Seide et al. 2014).

Every client adds its own noise, so that not even the server sees an update without it. In Σ_k p_k u_k, one
client contributes at most max p_k C; the noise's standard deviation is σ C √(Σ p_k²), at least σ times that.
Neighbours are two federations of the same clients with the same weights; in one of them, all updates of one
client are zero before the noise (zero-out neighbours). Whether a client takes part at all is not hidden: its
weight changes the others' weights, and its noise comes and goes with it. Any two updates of a client are at
most 2C apart, so σ/2 gives the guarantee between them.
`epsilon` holds for the client that takes part most often, against the server and all who see averages. It is
computed from Rényi divergences (Mironov 2017) by Opacus. Absence does not lower it: amplification by sampling
assumes that nobody can tell who took part. It does not cover the selection of the reported round by
validation scores.
"""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fedsub.datasets.extras import needed
from fedsub.datasets.seeding import stream
from fedsub.methods.core.channel import FLOAT, INDEX
from fedsub.methods.core.schedule import Schedule
from fedsub.methods.stacked.mixing import by_client, column

VALUES, SCALE, PLACES = "update.values", "update.scale", "update.places"


class Draws:
    """Random numbers of the uplink: one row of float32 numbers for each client, from a new stream for every
    draw of every round. A client run apart draws as in the stacked run, even after an absence.
    """

    def __init__(self, seed: int | None, client: int = 0) -> None:
        """`seed` None: the machine's entropy, so that nobody who knows the cell can subtract the noise.
        `client` is the number of the first client that draws here."""
        self.seed, self.client = seed, client
        self.begin(1)

    def begin(self, number: int) -> None:
        """Begin a round, from 1."""
        self.place = number, 0

    def draw(self, kind: Literal["standard_normal", "random"], like: Tensor) -> Tensor:
        """Standard normal numbers, or uniform ones in [0, 1), of the shape, (K, P), and on the device of
        `like`."""
        number, count = self.place
        self.place = number, count + 1
        purpose = f"uplink {number} {count}"
        generator = np.random.default_rng() if self.seed is None else stream(self.seed, purpose)
        drawn = getattr(generator, kind)((self.client + len(like), like.shape[1]), np.float32)
        return torch.from_numpy(drawn[self.client :]).to(like.device)


class Uplink:
    """Transforms clients' updates: privacy first, then compression, which sees only private updates."""

    state = ("left_out",)

    def __init__(self, schedule: Schedule, draws: Draws) -> None:
        self.schedule, self.draws = schedule, draws
        self.left_out: Tensor | float = 0.0
        """(K, P), what compression left out of the clients' messages so far."""

    def send(
        self, own: Mapping[str, Tensor], received: Mapping[str, Tensor], present: Tensor
    ) -> tuple[dict[str, Tensor], int]:
        """Return the clients' message for their parameters, name → (K, …), and its bytes.

        Updates are relative to `received` (1 or K, …), which the server knows. Clients that are not
        `present`, (K,), send nothing.
        """
        update = torch.cat([by_client(own[name].detach() - value) for name, value in received.items()], 1)
        sent, clip = update, self.schedule.privacy_clip
        if clip:
            sent = privatised(update, clip, self.schedule.privacy_noise, self.draws)
        clients = int(present.sum())
        if self.schedule.compresses:
            return self.encode(sent, present), self.size(update.shape[1]) * clients
        # Unchanged models stay exact: w_s + (w − w_s) need not be w.
        changed = (sent != update).any(dim=1)
        models = {
            name: torch.where(column(changed, own[name]), value, own[name].detach())
            for name, value in _moved(received, sent).items()
        }
        return models, FLOAT * update.shape[1] * clients

    def read(self, sent: Mapping[str, Tensor], received: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The clients' parameters, name → (K, …), as the server reads them from a message."""
        if VALUES not in sent:
            return dict(sent)
        update = self.decode(sent, sum(value[0].numel() for value in received.values()))
        beside = {name: value for name, value in sent.items() if name not in (VALUES, SCALE, PLACES)}
        return beside | _moved(received, update)

    def encode(self, update: Tensor, present: Tensor) -> dict[str, Tensor]:
        """Compress the clients' updates, (K, P); those of absent clients are not sent.

        Returns `update.values`, (K, V) float32, or int16 with `update.scale`, (K, 1); if V < P also
        `update.places`, their indices, (K, V) int32 ascending.
        """
        wanted, share = update + self.left_out, self.schedule.top_k
        sent, values = {VALUES: wanted}, wanted.shape[1]
        if self.size(values) < self._packed(values):
            # Values with their indices are shorter.
            places = wanted.abs().topk(count_kept(values, share), dim=1, sorted=False).indices
            places = places.sort(dim=1).values
            sent = {VALUES: wanted.gather(1, places), PLACES: places.int()}
        elif share < 1:
            sent = {VALUES: largest(wanted, share)}
        if bits := self.schedule.quantise:
            sent[VALUES], sent[SCALE] = quantised(sent[VALUES], bits, self.draws)
        if self.schedule.error_feedback:
            left_out = wanted - self.decode(sent, values)
            self.left_out = torch.where(present.unsqueeze(1), left_out, self.left_out)
        return sent

    def decode(self, sent: Mapping[str, Tensor], values: int) -> Tensor:
        """The updates as the server reads them, (K, P) with P = `values`."""
        read = sent[VALUES]
        if bits := self.schedule.quantise:
            read = read * (sent[SCALE] / (2 ** (bits - 1) - 1))
        if PLACES in sent:
            read = read.new_zeros(len(read), values).scatter_(1, sent[PLACES].long(), read)
        return read

    def size(self, values: int) -> int:
        """Bytes of one client's compressed message for an update of `values` values."""
        kept = count_kept(values, self.schedule.top_k)
        return min(self._packed(kept) + INDEX * kept, self._packed(values))

    def _packed(self, values: int) -> int:
        bits = self.schedule.quantise
        return -(-values * bits // 8) + FLOAT if bits else FLOAT * values


def _moved(received: Mapping[str, Tensor], update: Tensor) -> dict[str, Tensor]:
    """Add an update, (K, P), to parameters, name → (1 or K, …)."""
    parts = update.split([value[0].numel() for value in received.values()], dim=1)
    return {
        name: value + part.view(-1, *value.shape[1:])
        for (name, value), part in zip(received.items(), parts, strict=True)
    }


def privatised(update: Tensor, clip: float, noise: float, draws: Draws) -> Tensor:
    """Clip updates, (K, P), to norm C = `clip`, above 0, and add noise with σ = `noise`. Clipping leaves an
    update of norm up to C unchanged to the last digit."""
    length = torch.linalg.vector_norm(update, dim=1, keepdim=True)
    clipped = torch.where(length > clip, update * (clip / length.clamp(min=clip)), update)
    return clipped.add_(draws.draw("standard_normal", update), alpha=noise * clip) if noise else clipped


def check_accountant() -> Any:
    """Return Opacus' accountants. Raises UserError if Opacus is not installed."""
    return needed("opacus", "privacy", "privacy_noise", "set privacy_noise=0").accountants


def epsilon(noise: float, rounds: int, delta: float) -> float:
    """ε of a client that takes part in `rounds`, 0 without any. Raises UserError if Opacus is missing."""
    accountant = check_accountant().RDPAccountant()
    for _ in range(rounds):
        accountant.step(noise_multiplier=noise, sample_rate=1.0)
    return float(accountant.get_epsilon(delta)) if rounds else 0.0


def count_kept(values: int, share: float) -> int:
    """Number of values that `top_k` keeps, at least one."""
    return max(1, round(share * values))


def largest(update: Tensor, share: float) -> Tensor:
    """`update` (K, P) with zeros in place of all but the largest absolute values of each row."""
    kept = count_kept(update.shape[1], share)
    place = update.abs().topk(kept, dim=1, sorted=False).indices
    return torch.zeros_like(update).scatter_(1, place, update.gather(1, place))


def quantised(update: Tensor, bits: int, draws: Draws) -> tuple[Tensor, Tensor]:
    """Quantise each row of `update` (K, P) to multiples of s / L, rounded at random; int16, and s, (K, 1)."""
    levels = 2 ** (bits - 1) - 1
    scale = update.abs().amax(dim=1, keepdim=True)
    share = update / scale.clamp(min=torch.finfo(update.dtype).tiny)
    whole = (share * levels + draws.draw("random", update)).floor_().clamp_(-levels, levels)
    return whole.to(torch.int16), scale
