"""A method under test: how it is made, and how two of its runs are compared."""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedsub.datasets.errors import UserError
from fedsub.datasets.federation import Federation, federate
from fedsub.datasets.options import checked_options, parse_name
from fedsub.datasets.partition import partition
from fedsub.datasets.registry import load
from fedsub.datasets.splits import make_split
from fedsub.methods.core import registry
from fedsub.methods.core.base import FederatedMethod, MethodInfo, Options
from fedsub.methods.core.schedule import Schedule
from fedsub.methods.core.setting import Setting, make_setting
from fedsub.methods.core.state import saved
from fedsub.methods.stacked.architecture import OWN, Architecture
from fedsub.methods.tasks import NodeClassification

TOLERANCE = 5e-5
"""Absolute and relative tolerance for rounding, as two ways of computing may sum in different orders."""
SPLIT = "ratio[train=0.4,validation=0.3,test=0.3]"


class CheckError(UserError):
    """Raised if a method breaks a rule; the message says which, where and what to do."""


class Skipped(Exception):
    """Raised if a check does not apply; the message says why."""


@cache
def communities(clients: int, nodes: int) -> Federation:
    """A generated `community` graph divided over clients by METIS."""
    dataset = load(f"community[nodes={nodes}]")
    parts = partition(dataset, "metis", clients, 0)
    return federate(dataset, parts, make_split(dataset, parts, SPLIT, 0))


@dataclass(frozen=True)
class Subject:
    """A method's class and its options."""

    kind: type[FederatedMethod]
    options: Options

    @classmethod
    def of(cls, method: type[FederatedMethod] | str | Path, options: Mapping[str, Any]) -> "Subject":
        """Raises UserError for an unknown method, a class without `@register`, and unknown options."""
        if isinstance(method, (str, Path)):
            name, given = parse_name(str(method))
            kind, options = registry.find(name), {**given, **options}
        else:
            kind = method
        if not hasattr(kind, "info"):
            raise UserError(f"{kind} is not registered: put @register(name, title=…, paper=…) above it")
        return cls(kind, kind.info.options(**checked_options(kind.info.name, kind.info.options, options)))

    @property
    def info(self) -> MethodInfo:
        return self.kind.info

    @property
    def networks(self) -> list[str]:
        return [name for name in self.info.backbones if name != OWN]

    def setting(
        self,
        schedule: Schedule,
        clients: int = 3,
        nodes: int = 90,
        network: str = "",
        task: str = NodeClassification.name,
        dropout: float = 0.0,
        seed: int = 1,
    ) -> Setting:
        """Make a setting on `communities` with two hidden layers of width 8, of GCN if the method has it."""
        usual = "gcn" if "gcn" in self.networks else self.networks[0]
        return make_setting(
            communities(clients, nodes),
            Architecture(network or usual, (8, 8), dropout=dropout),
            schedule,
            seed,
            task=task,
            merged=self.info.merged,
        )

    def make(self, setting: Setting) -> FederatedMethod:
        return self.kind(self.options, setting)

    def fail(self, sentence: str) -> CheckError:
        return CheckError(f"{self.info.name}: {sentence}")


def reread(run: Any) -> Any:
    """The state of a run as another process reads it from a checkpoint's file."""
    file = io.BytesIO()
    torch.save(saved(run), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def apart(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors differ in shape or beyond `TOLERANCE`; NaN equals NaN."""
    first, second = first.double(), second.double()
    return first.shape != second.shape or not torch.allclose(
        first, second, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True
    )


def with_other_labels(method: FederatedMethod, who: Tensor) -> Tensor:
    """Give training nodes of the clients `who`, (K,) bool, another class; return the previous labels."""
    task = method.task
    assert isinstance(task, NodeClassification)
    labels = task.train_labels
    task.train_labels = torch.where(who[task.client[task.train]], (labels + 1) % task.width, labels)
    return labels
