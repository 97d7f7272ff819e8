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
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

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


class Compression:
    """Compression of the clients' updates; keeps the parts that their messages left out."""

    state = ("left_out",)

    def __init__(self, bits: int, share: float, feedback: bool) -> None:
        """`bits` of a value, 0 for float32; `share` of the values that are sent, 1 for all."""
        self.bits, self.share, self.feedback = bits, share, feedback
        self.left_out: Tensor | float = 0.0

    def encode(self, update: Tensor, present: Tensor, draws: Draws) -> dict[str, Tensor]:
        """Encode the clients' updates, (K, P); those of absent clients are not sent.

        Returns `update.values`, (K, V) float32, or int16 with `update.scale`, (K, 1); if V < P also
        `update.places`, their indices, (K, V) int32 ascending.
        """
        wanted = update + self.left_out
        sent, values = {VALUES: wanted}, wanted.shape[1]
        if self.size(values) < self._packed(values):
            # Values with their indices are shorter.
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
        """Bytes of one client's message for an update of `values` values."""
        kept = count_kept(values, self.share)
        return min(self._packed(kept) + INDEX * kept, self._packed(values))

    def _packed(self, values: int) -> int:
        return -(-values * self.bits // 8) + FLOAT if self.bits else FLOAT * values


@dataclass(frozen=True)
class Uplink:
    """Transforms clients' updates: privacy first, then compression, which sees only private updates."""

    state: ClassVar[tuple[str, ...]] = ("compression",)
    clip: float
    """Maximum L2 norm of an update; 0: neither clipping nor noise."""
    noise: float
    """Standard deviation of the noise, in units of `clip`."""
    compression: Compression | None
    draws: Draws

    @classmethod
    def of(cls, schedule: Schedule, seed: int) -> "Uplink | None":
        """Return the schedule's uplink; None if models are sent as they are."""
        if not (schedule.privacy_clip or schedule.compresses):
            return None
        compression = Compression(schedule.quantise, schedule.top_k, schedule.error_feedback)
        own = compression if schedule.compresses else None
        return cls(schedule.privacy_clip, schedule.privacy_noise, own, Draws(seed))

    @property
    def settings(self) -> str:
        """Names of the settings that change messages."""
        names = {"privacy_clip": self.clip, "quantise or top_k": self.compression}
        return " and ".join(name for name, part in names.items() if part)

    def send(
        self, own: Mapping[str, Tensor], received: Mapping[str, Tensor], present: Tensor
    ) -> tuple[dict[str, Tensor], int]:
        """Return the clients' message for their parameters, name → (K, …), and its bytes.

        Updates are relative to `received` (1 or K, …), which the server knows. Clients that are not
        `present`, (K,), send nothing.
        """
        update = torch.cat([by_client(own[name].detach() - value) for name, value in received.items()], 1)
        sent = privatised(update, self.clip, self.noise, self.draws) if self.clip else update
        clients = int(present.sum())
        if self.compression is not None:
            size = self.compression.size(update.shape[1])
            return self.compression.encode(sent, present, self.draws), size * clients
        # Unchanged models stay exact: w_s + (w − w_s) need not be w.
        changed = (sent != update).any(dim=1)
        models = {
            name: torch.where(column(changed, own[name]), value, own[name].detach())
            for name, value in _moved(received, sent).items()
        }
        return models, FLOAT * update.shape[1] * clients

    def read(self, sent: Mapping[str, Tensor], received: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The clients' parameters, name → (K, …), as the server reads them from a message."""
        if self.compression is None or VALUES not in sent:
            return dict(sent)
        update = self.compression.decode(sent, sum(value[0].numel() for value in received.values()))
        beside = {name: value for name, value in sent.items() if name not in (VALUES, SCALE, PLACES)}
        return beside | _moved(received, update)


def _moved(received: Mapping[str, Tensor], update: Tensor) -> dict[str, Tensor]:
    """Add an update, (K, P), to parameters, name → (1 or K, …)."""
    parts = update.split([value[0].numel() for value in received.values()], dim=1)
    return {
        name: value + part.view(-1, *value.shape[1:])
        for (name, value), part in zip(received.items(), parts, strict=True)
    }


def privatised(update: Tensor, clip: float, noise: float, draws: Draws) -> Tensor:
    """Clip updates, (K, P), to norm C = `clip`, above 0, and add noise with σ = `noise`.

    Clipping leaves an update of norm up to C unchanged to the last digit.
    """
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
