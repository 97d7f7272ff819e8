"""What a method cannot do is refused in a sentence."""

from dataclasses import fields, replace
from typing import Any

import pytest

from fedsub.datasets.errors import UserError
from fedsub.methods.core.schedule import Schedule
from fedsub.methods.core.training import train
from fedsub.methods.stacked.architecture import Architecture
from tests.methods.federations import make_method

ONLY_PARAMETERS = "ignores: set evaluate=local"


@pytest.mark.parametrize(
    ("name", "options", "settings", "words"),
    [
        ("fedcog", {}, {"backbone": "graphsage"}, "runs with sgc, gcn"),
        ("fedgcn", {}, {"backbone": "sgc", "hops": 0}, "at least one propagation"),
        ("fedgta", {"network": "gamlp"}, {"input_norm": True}, "input_norm"),
        ("fedstruct", {"feature_hidden": "a+b"}, {}, r"128\+64"),
        ("fedstruct", {"private": True, "version": "b"}, {}, "transform=none .*add it"),
        ("fedstruct", {"version": "b", "network": "graphsage"}, {}, "leave network=graphsage out"),
        ("fedstruct", {"transform": "none", "features": "deg"}, {}, "needs features=h2v"),
        ("fedtad", {"nodes": 2}, {}, "number of classes"),
        ("feddc", {}, {"learning_rate": 0.0}, "learning rate: it must be positive"),
        ("moon", {"nodes": "training"}, {"task": "link-prediction"}, "needs training nodes"),
        ("adafgl", {}, {"evaluate": "neighbour"}, ONLY_PARAMETERS),
        ("apfl", {}, {"evaluate": "whole-graph"}, ONLY_PARAMETERS),
    ],
)
def test_it_is_refused(name: str, options: dict[str, Any], settings: dict[str, Any], words: str) -> None:
    """`settings` are fields of the architecture or of the schedule, or the task."""
    task = settings.get("task", "node-classification")
    of_network = {field.name for field in fields(Architecture)}
    network = Architecture(**{key: value for key, value in settings.items() if key in of_network})
    schedule = Schedule(**{key: value for key, value in settings.items() if key not in {*of_network, "task"}})
    with pytest.raises(UserError, match=words):
        train(make_method(name, options, None, network, schedule, task=task))


@pytest.mark.parametrize(
    ("made", "changes", "words"),
    [
        (Architecture(), {"hidden": (8, 0)}, "every width in hidden must be at least 1"),
        (Architecture(), {"dropout": 1.0}, r"dropout must be in \[0, 1\), and finite; it is 1.0"),
        (Schedule(), {"weight_decay": -1e-9}, "weight_decay must not be negative, and finite; it is -1e-09"),
        (Schedule(), {"weight_decay": float("inf")}, "and finite; it is inf"),
        (Schedule(), {"participation": 0.0}, r"participation must be in \(0, 1\]"),
        (Schedule(), {"stragglers": 1.1}, r"stragglers must be in \[0, 1\]"),
        (Schedule(), {"stragglers": 0.5}, "set local_epochs to 2 or more"),
        (Schedule(), {"leavers": "3@5+3@6"}, "write each client once"),
        (Schedule(), {"privacy_noise": 1.0}, "set privacy_clip as well"),
        (Schedule(), {"quantise": 1}, "quantise must be 2 to 16 bits, or 0, and finite; it is 1"),
        (Schedule(), {"error_feedback": True}, "set top_k or quantise"),
        (Schedule(), {"selection": "mean_validation"}, "unknown selection rule 'mean_validation'"),
    ],
)
def test_settings_check_themselves_when_made(
    made: Architecture | Schedule, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        replace(made, **changes)


def test_values_at_the_limit_are_taken() -> None:
    Schedule(stragglers=0.0, participation=1e-9, weight_decay=10**400)
