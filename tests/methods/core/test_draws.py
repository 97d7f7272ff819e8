"""A method that draws from the global generators is as repeatable as one that has its own."""

from __future__ import annotations

import random

import numpy as np
import torch
from torch import Tensor

from fedsub.methods.core.base import Options, Schedule, register
from fedsub.methods.core.setting import make_setting
from fedsub.methods.core.training import train
from fedsub.methods.fedavg import FedAvg
from fedsub.methods.stacked.architecture import Architecture
from fedsub.methods.stacked.parameters import Parameters
from tests.methods.federations import small_federation


@register("drawing", title="Drawing", paper="none")
class Drawing(FedAvg):
    """Draws where it should not."""

    def initial_parameters(self) -> Parameters:
        """A head of torch's own start."""
        parameters = super().initial_parameters()
        inner, outer = parameters["head.weight"].shape[1:]
        with torch.no_grad():
            parameters["head.weight"].copy_(torch.nn.Linear(inner, outer).weight.T)
        return parameters

    def objective(self, logits: Tensor) -> Tensor:
        """A loss of noisy outputs."""
        scale = random.random() * np.random.random()  # noqa: NPY002
        return super().objective(logits + scale * torch.randn_like(logits))


def loss(seed: int) -> list[float]:
    setting = make_setting(small_federation(), Architecture(hidden=(8,)), Schedule(rounds=3), seed)
    return train(Drawing(Options(), setting)).curve["loss"]


def test_global_draws_repeat_by_the_seed() -> None:
    found = [loss(0)]
    torch.rand(3)
    random.random()
    found.append(loss(0))
    assert found[0] == found[1]
    assert loss(1) != found[0]
