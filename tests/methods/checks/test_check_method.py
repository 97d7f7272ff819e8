"""Every method passes the checks, and a method that breaks a rule is told which."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedsub import check_method
from fedsub.datasets.errors import UserError
from fedsub.methods.checks import CHECKS, CheckError
from fedsub.methods.checks.subject import Subject
from fedsub.methods.core import registry
from fedsub.methods.core.base import FederatedMethod, register
from fedsub.methods.core.channel import Message
from fedsub.methods.fedavg import FedAvg
from fedsub.methods.stacked.parameters import Parameters
from tests.methods.variants import CASES


@pytest.mark.parametrize(("name", "options"), CASES)
def test_every_method_passes(name: str, options: dict[str, Any]) -> None:
    found = check_method(name, options)
    assert list(found) == list(CHECKS)
    info = registry.describe(name)
    draws = options or info.merged or name in ("adafgl", "fedala")
    if not (draws or info.simulation_only_with(registry.make_options(name, options))):
        assert found["separate clients match the stacked run"] == "passed"


def test_a_name_may_have_options_and_a_file_may_be_a_path(tmp_path: Path) -> None:
    assert Subject.of("fedprox[mu=0.5]", {}).options == Subject.of("fedprox", {"mu": 0.5}).options
    with pytest.raises(UserError, match="there is no method at"):
        check_method(tmp_path / "mine.py")
    with pytest.raises(UserError, match="put @register"):
        check_method(FederatedMethod)


@register("leaking", title="Leaking", paper="none")
class Leaking(FedAvg):
    """Every client learns from all labels."""

    def objective(self, logits: Tensor) -> Tensor:
        drawn = torch.cat([value.flatten(1) for value in self.parameters.values()], dim=1).mean(dim=0)
        return super().objective(logits) + drawn.square().sum()


@register("peeking", title="Peeking", paper="none")
class Peeking(FedAvg):
    """Its server reads the clients' parameters in place of messages."""

    def send(self) -> Message:
        return {}

    def receive(self, answer: Message) -> None:
        for value in self.parameters.values():
            value.copy_(value.mean(dim=0, keepdim=True).expand_as(value))


@register("smuggling", title="Smuggling", paper="none", simulation_only="clients talk in a step")
class Smuggling(Peeking):
    """Counts a number in place of the models."""

    def send(self) -> Message:
        return {"tick": torch.zeros(self.federation.clients, 1)}


@register("reading", title="Reading", paper="none")
class Reading(FedAvg):
    """Its server reads what clients hold, absent ones included, and not what they sent."""

    def aggregate(self, sent: Message) -> Message:
        return {name: self.parameters[name].mean(dim=0, keepdim=True) for name in sent}


@register("shrinking", title="Shrinking", paper="none")
class Shrinking(FedAvg):
    """The zeros that arrive from absent clients count in its mean."""

    def aggregate(self, sent: Message) -> Message:
        return {name: value.mean(dim=0, keepdim=True) for name, value in sent.items()}


@register("forgetting", title="Forgetting", paper="none")
class Forgetting(FedAvg):
    """Keeps a momentum that its class does not name."""

    def build(self) -> None:
        super().build()
        self.velocity: Parameters = {name: torch.zeros_like(each) for name, each in self.received.items()}

    def aggregate(self, sent: Message) -> Message:
        for name, mean in super().aggregate(sent).items():
            self.velocity[name] = 0.5 * self.velocity[name] + mean - self.received[name]
        return {name: self.received[name] + step for name, step in self.velocity.items()}


@register("unseeded", title="Unseeded", paper="none")
class Unseeded(FedAvg):
    """Draws from a generator that no seed sets."""

    def initial_parameters(self) -> Parameters:
        self.generator.seed()
        return super().initial_parameters()


@register("drifting", title="Drifting", paper="none")
class Drifting(FedAvg):
    """Moves models of clients that are absent."""

    def receive(self, answer: Message) -> None:
        for name, value in answer.items():
            self.parameters[name].copy_(value.expand_as(self.parameters[name]))


@register("drawing", title="Drawing", paper="none")
class Drawing(FedAvg):
    """Draws from the global generators."""

    def initial_parameters(self) -> Parameters:
        parameters = super().initial_parameters()
        with torch.no_grad():
            parameters["head.weight"].copy_(torch.rand_like(parameters["head.weight"][0]))
        return parameters

    def objective(self, logits: Tensor) -> Tensor:
        scale = random.random() * np.random.random()  # noqa: NPY002
        return super().objective(logits + scale * torch.randn_like(logits))


def test_draws_from_the_shared_generators_repeat_by_the_seed() -> None:
    torch.rand(3)
    CHECKS["same seed, same run"](Subject.of(Drawing, {}))


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (Leaking, "depends on another client's labels after local training"),
        (Peeking, "no byte is counted"),
        (Smuggling, "learn from each other past the channel"),
        (Shrinking, "depends on absent clients"),
        (Forgetting, "resumed from a checkpoint gives other figures: name its attributes"),
        (Unseeded, "two runs with one seed differ"),
        (Drifting, "absent"),
        (Reading, "learn from each other past the channel"),
    ],
)
def test_a_broken_rule_is_named(method: type[FederatedMethod], words: str) -> None:
    with pytest.raises(CheckError, match=words):
        check_method(method)


def test_later_checks_see_it_too() -> None:
    later = {"absent clients keep their state": "absent", "separate clients match the stacked run": "differs"}
    for check, words in later.items():
        with pytest.raises(CheckError, match=words):
            CHECKS[check](Subject.of(Reading, {}))
