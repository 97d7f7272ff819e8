"""What may be chosen of FedSage+ and FedSage-true."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Literal

from fedsub.methods.core.base import Options
from fedsub.methods.fedsage.generator import GeneratorOptions


@dataclass(frozen=True)
class FedSagePlusOptions(GeneratorOptions):
    hidden_from: Literal["validation", "all"] = "validation"
    """The sample whose share is hidden: a client's validation nodes (public code) or all (paper)."""
    average: Literal["models", "gradients"] = "models"
    """`models`: FedAvg; `gradients`: one step on the averaged gradient in every epoch (FedStruct)."""
    generated: Literal["as-generated", "row-normalised"] = "as-generated"
    """What mends the graphs: the generator's rows as they are, or each divided by the sum of its absolute
    values. Where features are row-normalised, the first are some thirty times as long as true rows, and the
    generated neighbours drown the true ones (results/notes/fedpub-2.md). The generator trains on its rows
    as they are."""

    def unused(self, backbone: str) -> Mapping[str, str]:
        if self.neighbours:
            return {}
        kept = ("neighbours", "average")
        return {item.name: "neighbours above 0" for item in fields(self) if item.name not in kept}


@dataclass(frozen=True)
class FedSageTrueOptions(Options):
    average: Literal["models", "gradients"] = "models"
    """`models`: FedAvg; `gradients`: one step on the averaged gradient in every epoch (FedStruct)."""
