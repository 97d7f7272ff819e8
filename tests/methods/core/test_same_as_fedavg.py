"""Runs that say that they did nothing beyond FedAvg, and are FedAvg's to the digit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from methods.core import registry
from methods.core.base import SAME_AS_FEDAVG, Architecture, Schedule
from methods.core.setting import make_setting
from methods.core.training import Outcome, train
from tests.methods.federations import small_federation

CASES: list[tuple[str, dict[str, Any]]] = [
    ("fedprox", {"mu": 0.0}),
    ("moon", {"mu": 0.0, "projection": False}),
    ("fedtad", {"server_rounds": 0}),
    ("fedgcn", {"hops": 0}),
    ("fedala", {"rate": 0.0}),
    ("fedpub", {"masks": False, "similarity": "none"}),
    ("fedsage+", {"neighbours": 0}),
    ("gcfl", {"epsilon2": 1e9}),
    ("adafgl", {"federated": 1.0}),
]


def trained(name: str, options: dict[str, Any]) -> tuple[Outcome, Tensor]:
    setting = make_setting(
        small_federation(3), Architecture(hidden=(8, 8)), Schedule(rounds=3, local_epochs=2), seed=1
    )
    method = registry.create(name, options, setting)
    return train(method), method.predict()


@pytest.mark.parametrize(("name", "options"), CASES)
def test_a_run_that_is_fedavg_says_so(name: str, options: dict[str, Any]) -> None:
    (found, predicted), (plain, expected) = trained(name, options), trained("fedavg", {})
    assert found.extras[SAME_AS_FEDAVG] == 1
    assert torch.equal(predicted, expected)
    assert found.curve["loss"] == plain.curve["loss"]
    assert SAME_AS_FEDAVG not in plain.extras


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("fedprox", {}),
        ("moon", {}),
        ("moon", {"mu": 0.0, "projection": True}),
        ("fedtad", {"server_rounds": 1}),
        ("fedgcn", {}),
        ("fedala", {}),
        ("fedpub", {"masks": False}),
        ("fedpub", {"similarity": "none"}),
        ("adafgl", {}),
    ],
)
def test_a_run_that_does_more_does_not(name: str, options: dict[str, Any]) -> None:
    found, predicted = trained(name, options)
    assert SAME_AS_FEDAVG not in found.extras
    assert not torch.equal(predicted, trained("fedavg", {})[1])
