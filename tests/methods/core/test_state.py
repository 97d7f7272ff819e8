"""A run that is stopped and goes on gives what an uninterrupted one gives, to the last bit."""

import random
from typing import Any

import numpy as np
import pytest
import torch

from fedsub.datasets.errors import UserError
from fedsub.methods.checks.runs import Kept, comparable
from fedsub.methods.checks.subject import reread
from fedsub.methods.core import registry
from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.draws import GlobalDraws
from fedsub.methods.core.state import restored, saved
from fedsub.methods.core.training import train
from tests.methods.federations import community_federation, make_method


def make(name: str, task: str = "node-classification", **schedule: Any) -> Any:
    federation = community_federation(clients=5, nodes=150)
    network = Architecture(registry.describe(name).backbones[0], (8, 8))
    return make_method(name, {}, federation, network, Schedule(rounds=5, **schedule), 1, task=task)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("fedavg", {"task": "link-prediction[negatives=fresh]"}),
        ("central", {"task": "link-prediction[negatives=fresh]"}),
        ("fedavg", {"privacy_clip": 0.1, "quantise": 4, "top_k": 0.5, "error_feedback": True}),
        ("fedavg", {"evaluate": "received", "evaluate_every": 2}),
        ("fedavg", {"evaluate": "neighbour", "selection": "per-client", "optimiser": "sgd"}),
        ("gcfl+", {"participation": 0.5, "leavers": "0@3"}),
    ],
)
def test_a_run_goes_on_under_other_tasks_messages_and_evaluations(
    name: str, settings: dict[str, Any]
) -> None:
    """`check_method` tests the same for every method at its defaults."""
    kept, rounds = Kept(), []
    whole = train(make(name, **settings), None, kept)
    kept.place = 0
    again = train(make(name, **settings), lambda done: rounds.append(done.round), kept)
    assert rounds == [2, 3, 4, 5]
    assert comparable(again) == comparable(whole)
    spent = again.spent["seconds"]
    assert spent == sorted(spent)
    assert sum(again.seconds.values()) >= spent[-1]


class Part:
    """State of its own, as a plug-in may have it."""

    state = ("weight", "optimiser", "generator", "bits", "held", "later", "empty")

    def __init__(self, seed: int = 0) -> None:
        self.weight = torch.arange(6.0).requires_grad_()
        self.optimiser = torch.optim.Adam([self.weight], lr=0.1)
        self.generator = torch.Generator().manual_seed(seed)
        self.bits = np.random.SFC64(seed)
        self.held: dict[Any, Any] = {"a": 1, 2: (3.5, None, "x"), "last": [1]}
        self.held |= {"seen": torch.zeros(2), "random": np.random.default_rng(seed), "rows": None}
        self.held |= {"layer": torch.nn.LayerNorm(2)}
        self.later: torch.Tensor | None = None
        self.empty: list[int] = []
        self.start = self.held
        """As at first; no state."""

    def train(self) -> None:
        self.optimiser.zero_grad()
        self.weight.square().sum().backward()
        self.optimiser.step()
        self.held["last"].append(int(self.bits.random_raw()))
        self.held["seen"] = self.held["seen"] + 0.5
        self.held = {**self.held, "rows": [torch.full((0, 5), self.held["random"].random())]}
        self.held["mean"] = np.float64(0.5) + np.float32(len(self.held["last"]))
        self.held["layer"].weight.data += 1
        self.later = torch.rand(2, generator=self.generator)

    def shown(self) -> Any:
        """Return the visible state; this draws from every generator."""
        drawn = torch.rand(2, generator=self.generator).tolist(), int(self.bits.random_raw())
        later = None if self.later is None else self.later.tolist()
        rows = self.held["rows"] and self.held["rows"][0].shape
        seen = (self.held["seen"] * 2).tolist(), rows, self.held["random"].random()
        seen += (self.held.get("mean"), *self.held["layer"].weight.tolist())
        return self.weight.tolist(), [*self.held["last"]], list(self.held[2]), seen, later, drawn


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_what_a_class_names_comes_back(rounds: int) -> None:
    """Learned tensors come back in place."""
    whole, cut, new = Part(), Part(), Part(seed=1)
    held = new.weight
    for _ in range(rounds):
        whole.train()
        cut.train()
    restored(new, reread(cut))
    assert new.weight is held
    assert new.start["rows"] is None
    assert new.optimiser.param_groups[0]["params"][0] is held
    whole.train()
    new.train()
    assert new.shown() == whole.shown()


def test_the_global_generators_come_back() -> None:
    draws, drawn = GlobalDraws(), []
    kept = saved(draws)
    for _ in range(2):
        drawn.append((float(torch.rand(())), float(np.random.random()), random.random()))  # noqa: NPY002
        restored(draws, kept)
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize(
    ("broken", "error"),
    [
        ({}, KeyError),
        ({"weight": torch.zeros(7)}, RuntimeError),
        ({"weight": "x"}, AttributeError),
        ({"optimiser": {}}, KeyError),
    ],
)
def test_a_state_that_does_not_fit_is_an_error(broken: dict[str, Any], error: type[Exception]) -> None:
    kept = saved(Part())
    with pytest.raises(error):
        restored(Part(), {**kept, **broken} if broken else {})


def test_an_object_whose_class_names_no_state_is_refused() -> None:
    found = Part()
    found.held["object"] = object()
    with pytest.raises(UserError, match="no checkpoint holds a object: keep a tensor, or name its `state`"):
        saved(found)
