"""A method whose own part is switched off is another method."""

from typing import Any

import pytest
from torch import Tensor

from fedsub.methods.core import registry
from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.training import Outcome, train
from tests.methods.federations import make_method
from tests.methods.rounding import assert_agree

NETWORKS = [
    Architecture("gcn", hidden=(8, 8), dropout=0.5),
    Architecture("graphsage", hidden=(8, 8), dropout=0.5, outputs="probabilities"),
]
LINKS = "link-prediction[width=4]"
ONE_EPOCH, FIRST_ROUND = {"local_epochs": 1}, {"rounds": 1}
FIXED = {"adaptive": False}
NEVER, ALWAYS = {"epsilon1": 1e9, "first_round": 6}, {"epsilon1": 0.0, "first_round": 0}
Case = tuple[str, dict[str, Any], str, dict[str, Any]]
"""(method, options, equivalent method, settings of the schedule or the task)."""

ALSO_IN_BYTES: list[Case] = [
    ("fedprox", {"mu": 0.0}, "fedavg", {}),
    ("fedprox", {}, "fedavg", ONE_EPOCH),
    ("fedopt", {"server_learning_rate": 1.0}, "fedavg", {"optimiser": "sgd"}),
    ("moon", {"mu": 0.0}, "fedavg", {}),
    ("moon", {"mu": 5.0}, "fedavg", FIRST_ROUND),
    ("fedgcn", {"hops": 0}, "fedavg", {}),
    ("fedala", {"rate": 0.0}, "fedavg", {}),
    ("fedala", {"rate": 0.0, "layers": 0}, "fedavg", {"evaluate": "received"}),
    ("fedpub", {"masks": False, "similarity": "none"}, "fedavg", {"weighting": "uniform"}),
    ("fedpub", {"masks": False, "similarity": "none"}, "fedavg", {"weighting": "training-nodes"}),
    ("apfl", {"alpha": 0.0, **FIXED}, "fedavg", {}),
    ("apfl", {"alpha": 0.0, **FIXED}, "fedavg", {"evaluate_dropout": True}),
    ("fedsage", {}, "fedavg", {}),
    ("fedsage", {}, "fedavg", {"weighting": "uniform"}),
    ("adafgl", {"federated": 1.0}, "fedavg", {"weighting": "nodes"}),
]
CASES: list[Case] = [
    *ALSO_IN_BYTES,
    ("fedpub", {"masks": False, "similarity": "none", "regularizer": "printed"}, "fedavg", ONE_EPOCH),
    ("fedtad", {"server_rounds": 0}, "fedavg", {"weighting": "nodes"}),
    ("fedgnn", {"threshold": 1.0}, "fedavg", {}),
    ("gcfl", {"epsilon2": 1e9}, "fedavg", {}),
    ("gcfl", {"epsilon2": 0.0, **NEVER}, "fedavg", {}),
    ("gcfl+", {"epsilon2": 0.0, "sequence": 2, **ALWAYS}, "fedavg", {}),
    ("gcfl+", {"epsilon2": 0.0, "sequence": 2, **NEVER}, "fedavg", {}),
    ("scaffold", {}, "fedavg", FIRST_ROUND),
    ("apfl", {"alpha": 1.0, **FIXED}, "local", {}),
    ("apfl", {"alpha": 1.0, **FIXED}, "local", {"task": LINKS}),
    ("ditto", {"strength": 0.0}, "local", {"evaluate_dropout": True}),
    ("fedproto", {"strength": 0.0}, "local", {}),
    ("fedgta", {"threshold": 1.0}, "local", {}),
    ("fedspray", {"lambda1": 0.0}, "local", {}),
]


def trained(
    name: str, options: dict[str, Any], network: Architecture = NETWORKS[0], **settings: Any
) -> tuple[Outcome, Tensor]:
    given = {"rounds": 3, "local_epochs": 2, **settings}
    task = given.pop("task", "node-classification")
    method = make_method(name, options, None, network, Schedule(**given), seed=1, task=task)
    return train(method), method.predict()


@pytest.mark.parametrize(
    ("network", "name", "options", "other", "settings"),
    [*((NETWORKS[0], *case) for case in CASES), *((NETWORKS[1], *case) for case in CASES[::4])],
)
def test_without_its_own_part_a_method_is_another(
    name: str, options: dict[str, Any], other: str, settings: dict[str, Any], network: Architecture
) -> None:
    shared = set.intersection(*({*registry.describe(each).backbones} for each in (name, other)))
    if network.backbone not in shared:
        network = next(each for each in NETWORKS if each.backbone in shared)
    found, predicted = trained(name, options, network, **settings)
    plain, expected = trained(other, {}, network, **settings)
    assert_agree(found.curve["loss"], plain.curve["loss"])
    if not settings.get("evaluate_dropout"):
        assert_agree(predicted, expected)
    if (name, options, other, settings) in ALSO_IN_BYTES:
        assert found.bytes == plain.bytes
