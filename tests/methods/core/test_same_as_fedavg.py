"""Methods whose own part is switched off are FedAvg."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor

from fedsub.methods.core import registry
from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.setting import make_setting
from fedsub.methods.core.training import Outcome, train
from tests.methods.federations import small_federation
from tests.methods.rounding import agree, assert_agree


def trained(name: str, given: dict[str, Any]) -> tuple[Outcome, Tensor]:
    """`given` are options, and the number of local epochs, which is 2 otherwise."""
    options = dict(given)
    schedule = Schedule(rounds=3, local_epochs=options.pop("local_epochs", 2))
    setting = make_setting(small_federation(3), Architecture(hidden=(8, 8)), schedule, seed=1)
    method = registry.create(name, options, setting)
    return train(method), method.predict()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("fedprox", {"mu": 0.0}),
        ("fedprox", {"local_epochs": 1}),
        ("moon", {"mu": 0.0, "projection": False}),
        ("fedtad", {"server_rounds": 0}),
        ("fedgcn", {"hops": 0}),
        ("fedala", {"rate": 0.0}),
        ("fedala", {"rate": 0.0, "layers": 0}),
        ("fedpub", {"masks": False, "similarity": "none"}),
        ("fedpub", {"masks": False, "similarity": "none", "regularizer": "printed", "local_epochs": 1}),
        ("fedsage+", {"neighbours": 0}),
        ("gcfl", {"epsilon2": 1e9}),
        ("adafgl", {"federated": 1.0}),
    ],
)
def test_without_its_own_part_a_method_is_fedavg(name: str, options: dict[str, Any]) -> None:
    epochs = {key: value for key, value in options.items() if key == "local_epochs"}
    (found, predicted), (plain, expected) = trained(name, options), trained("fedavg", epochs)
    assert_agree(predicted, expected)
    assert_agree(found.curve, plain.curve)


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
        ("fedpub", {"masks": False, "similarity": "none", "regularizer": "printed", "lambda2": 1.0}),
        ("fedsage+", {"neighbours": 0, "average": "gradients"}),
        ("adafgl", {}),
    ],
)
def test_with_its_own_part_it_is_not(name: str, options: dict[str, Any]) -> None:
    assert not agree(trained(name, options)[1], trained("fedavg", {})[1])
