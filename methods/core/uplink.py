"""What the server gets of the clients' models where updates are made private or compressed on their way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedsub.datasets.seeding import stream
from fedsub.methods.core.compression import Compression
from fedsub.methods.core.participation import Attendance
from fedsub.methods.core.privacy import GaussianMechanism, epsilon
from fedsub.methods.core.schedule import Schedule
from fedsub.methods.core.sizes import FLOAT
from fedsub.methods.stacked.mixing import column


@dataclass(frozen=True)
class Uplink:
    """Privacy first, then compression, which sees nothing that is not private."""

    state: ClassVar[tuple[str, ...]] = ("generator", "compression")
    privacy: GaussianMechanism | None
    compression: Compression | None
    generator: torch.Generator

    @classmethod
    def of(cls, schedule: Schedule, seed: int) -> Uplink | None:
        """None where models are sent as they are."""
        if not (schedule.protects or schedule.compresses):
            return None
        privacy = GaussianMechanism(schedule.privacy_noise, schedule.privacy_clip)
        compression = Compression(schedule.quantise, schedule.top_k, schedule.error_feedback)
        drawn_with = int(stream(seed, "uplink").integers(2**62))
        return cls(
            privacy if schedule.protects else None,
            compression if schedule.compresses else None,
            torch.Generator().manual_seed(drawn_with),
        )

    @property
    def settings(self) -> str:
        """Names of the settings that change messages."""
        names = {"privacy_clip": self.privacy, "quantise or top_k": self.compression}
        return " and ".join(name for name, part in names.items() if part is not None)

    def send(
        self, own: Mapping[str, Tensor], received: Mapping[str, Tensor], present: Tensor
    ) -> tuple[dict[str, Tensor], int]:
        """The clients' parameters as the server has them, name → (K, …), and the bytes sent.

        `received` (1 or K, …) is what updates are counted from, which the server knows. Nothing comes from
        clients that are not `present`, (K,).
        """
        update = torch.cat([(value.detach() - received[name]).flatten(1) for name, value in own.items()], 1)
        sent = update
        if self.privacy is not None:
            sent = self.privacy(sent, self.generator)
        size = FLOAT * update.shape[1]
        if self.compression is not None:
            sent, size = self.compression(sent, present, self.generator), self.compression.size(len(sent[0]))
        # To the digit: w_s + (w − w_s) need not be w.
        changed = (sent != update).any(dim=1)
        parts = sent.split([value[0].numel() for value in own.values()], dim=1)
        read = {
            name: torch.where(column(changed, value), received[name] + part.view_as(value), value.detach())
            for (name, value), part in zip(own.items(), parts, strict=True)
        }
        return read, size * int(present.sum())

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
