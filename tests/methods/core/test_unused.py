"""Options declared without effect have none."""

import typing
from pathlib import Path
from typing import Any

import pytest
import torch

from fedsub.methods.core import registry
from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.training import train
from tests.methods.federations import make_method
from tests.methods.rounding import assert_agree
from tests.methods.variants import SMALL_STRUCTURE

LAPLACE: dict[str, Any] = {"structure_width": 8, "structure_hidden": "7", "feature_hidden": "9"}
CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("fedpub", "gcn", {}),
    ("fedpub", "gcn", {"masks": False, "similarity": "none"}),
    ("fedpub", "gcn", {"similarity": "gradient", "regularizer": "printed"}),
    ("fedcog", "gcn", {}),
    ("fedcog", "sgc", {"lnnc": False, "server": "feddyn"}),
    ("fedstruct", "gcn", SMALL_STRUCTURE),
    ("fedstruct", "gcn", SMALL_STRUCTURE | {"features": "gdv", "network": "graphsage"}),
    ("fedstruct", "gcn", SMALL_STRUCTURE | {"version": "b", "transform": "none"}),
    ("fedspray", "gcn", {"proxies": False}),
    ("fedspray", "gcn", {"lambda1": 0.0}),
    ("fedlit", "sgc", {}),
    ("fedala", "gcn", {"rate": 0.0}),
    ("fedgcn", "gcn", {"hops": 0}),
    ("fedgcn", "gcn", {"sent": "features"}),
    ("fedproto", "gcn", {"strength": 0.0}),
    ("moon", "gcn", {"mu": 0.0}),
    ("fedgta", "gcn", {"threshold": 1.0}),
    ("fedgta", "gcn", {"network": "gamlp"}),
    ("fedgta", "gcn", {"spread": 0.0}),
    ("adafgl", "gcn", {"federated": 1.0}),
    ("fedlap", "gcn", LAPLACE),
]


def another(value: Any, hint: Any) -> Any:
    """A valid value other than `value`."""
    if typing.get_origin(hint) is typing.Literal:
        return next(choice for choice in typing.get_args(hint) if choice != value)
    if hint is bool:
        return not value
    if hint is str:
        return "5"
    return 0.6 if hint is float else value + 1


def predicted(name: str, backbone: str, options: dict[str, Any]) -> tuple[torch.Tensor, dict[str, float]]:
    architecture = Architecture(backbone, (8, 8), dropout=0.0)
    schedule = Schedule(rounds=3, local_epochs=2)
    method = make_method(name, options, None, architecture, schedule, seed=1)
    outcome = train(method)
    return method.predict(), dict(outcome.bytes)


@pytest.mark.parametrize(("name", "backbone", "options"), CASES)
def test_what_is_unused_changes_neither_result_nor_traffic(
    name: str, backbone: str, options: dict[str, Any], own_cache: Path
) -> None:
    made = registry.make_options(name, options)
    hints = typing.get_type_hints(type(made))
    expected = predicted(name, backbone, options)
    idle = made.unused(backbone)
    changed = {key: another(getattr(made, key), hints[key]) for key in idle if key != "backbone"}
    assert idle, "a case without unused options tests nothing"
    result = predicted(name, "sgc" if "backbone" in idle else backbone, options | changed)
    assert_agree(result[0], expected[0])
    assert result[1] == expected[1]
