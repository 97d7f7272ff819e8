"""What the server gets of the clients' models where updates are made private or compressed on their way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedsub.methods.core.compression import PLACES, SCALE, VALUES, Compression
from fedsub.methods.core.draws import Draws
from fedsub.methods.core.participation import Attendance
from fedsub.methods.core.privacy import epsilon, privatised
from fedsub.methods.core.schedule import Schedule
from fedsub.methods.core.sizes import FLOAT
from fedsub.methods.stacked.mixing import column


@dataclass(frozen=True)
class Uplink:
    """Privacy first, then compression, which sees nothing that is not private."""

    state: ClassVar[tuple[str, ...]] = ("compression",)
    clip: float
    """L2 norm of an update at most; 0: neither clipping nor noise."""
    noise: float
    """In units of `clip`."""
    compression: Compression | None
    draws: Draws

    @classmethod
    def of(cls, schedule: Schedule, seed: int) -> Uplink | None:
        """None where models are sent as they are."""
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
        """What the clients send of their parameters, name → (K, …), and its bytes.

        `received` (1 or K, …) is what updates are counted from, which the server knows. Nothing comes from
        clients that are not `present`, (K,).
        """
        update = torch.cat([(own[name].detach() - value).flatten(1) for name, value in received.items()], 1)
        sent = privatised(update, self.clip, self.noise, self.draws) if self.clip else update
        clients = int(present.sum())
        if self.compression is not None:
            size = self.compression.size(update.shape[1])
            return self.compression.encode(sent, present, self.draws), size * clients
        # To the digit: w_s + (w − w_s) need not be w.
        changed = (sent != update).any(dim=1)
        models = {
            name: torch.where(column(changed, own[name]), value, own[name].detach())
            for name, value in _moved(received, sent).items()
        }
        return models, FLOAT * update.shape[1] * clients

    def read(self, sent: Mapping[str, Tensor], received: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The clients' parameters as the server has them, name → (K, …), of a message that it got."""
        if self.compression is None or VALUES not in sent:
            return dict(sent)
        update = self.compression.decode(sent, sum(value[0].numel() for value in received.values()))
        beside = {name: value for name, value in sent.items() if name not in (VALUES, SCALE, PLACES)}
        return beside | _moved(received, update)

    def figures(
        self, schedule: Schedule, attendance: Attendance, rounds: int, tells_attendance: bool = False
    ) -> dict[str, float]:
        """`epsilon` and `epsilon_server` of the first `rounds`, see `methods.core.privacy`; empty without
        noise. `tells_attendance`: whether the averages tell who took part."""
        if schedule.privacy_noise == 0:
            return {}
        noise, delta = schedule.privacy_noise, schedule.privacy_delta
        most = int((attendance.epochs[:rounds] > 0).sum(dim=0).max())
        rates = [1.0] * most if tells_attendance else attendance.rates[:rounds].tolist()
        return {
            "epsilon": epsilon(noise, rates, delta),
            "epsilon_server": epsilon(noise, [1.0] * most, delta),
        }


def _moved(received: Mapping[str, Tensor], update: Tensor) -> dict[str, Tensor]:
    """Parameters, name → (1 or K, …), with an update, (K, P), added."""
    parts = update.split([value[0].numel() for value in received.values()], dim=1)
    return {
        name: value + part.view(-1, *value.shape[1:])
        for (name, value), part in zip(received.items(), parts, strict=True)
    }
