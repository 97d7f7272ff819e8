from dataclasses import MISSING, field, make_dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from fedsub.datasets.errors import UserError
from fedsub.methods.core import registry
from fedsub.methods.core.base import Options, register
from fedsub.methods.core.schedule import Schedule
from fedsub.methods.core.setting import make_setting
from fedsub.methods.fedavg import FedAvg
from fedsub.methods.stacked.parameters import Parameters
from tests.methods.federations import small_federation


def test_a_file_without_a_method_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "empty.py"
    path.touch()
    with pytest.raises(UserError, match="registers 0 methods"):
        registry.find(str(path))


def test_options_of_another_class_are_refused() -> None:
    with pytest.raises(ValueError, match="Schedule must be a subclass of Options"):
        register("mine", title="Mine", paper="none", options=Schedule)


@pytest.mark.parametrize("default", [None, (1, 2), MISSING])
def test_options_that_no_record_could_hold_are_refused(default: Any) -> None:
    """The run would end, or its record be refused, only after training."""
    kind = make_dataclass("Mine", [("cap", Any, field(default=default))], bases=(Options,), frozen=True)
    with pytest.raises(ValueError, match=r"Mine\.cap needs a default that is a number, a bool or text"):
        register("mine", title="Mine", paper="none", options=kind)


@pytest.mark.parametrize(("name", "merged"), [("central", False), ("fedavg", True)])
def test_a_setting_made_for_another_kind_of_method_is_refused(name: str, merged: bool) -> None:
    with pytest.raises(ValueError, match=f"merged={not merged}"):
        registry.create(name, {}, make_setting(small_federation(), merged=merged))


@pytest.mark.parametrize(
    ("name", "options", "breaks"),
    [
        ("fedavg", {}, False),
        ("central", {}, True),
        ("fedgcn", {"sent": "features"}, True),
        ("fedpub", {}, False),
        ("fedpub", {"similarity": "label"}, True),
        ("fedcog", {"lnnc": False}, True),
        ("fedstruct", {}, True),
        ("fedstruct", {"version": "b"}, False),
        ("fedstruct", {"version": "b", "features": "deg"}, False),
        ("fedstruct", {"version": "b", "features": "gdv"}, True),
    ],
)
def test_every_method_says_whether_it_breaks_privacy(
    name: str, options: dict[str, Any], breaks: bool
) -> None:
    info = registry.describe(name)
    own = registry.make_options(name, options)
    assert bool(info.privacy_of(own)) is breaks
    assert bool(info.breaks_privacy) is (breaks or own.breaks_privacy() is not None)


@pytest.mark.parametrize(
    ("parameters", "shared", "words"),
    [
        ({"shift": torch.zeros(3, 2)}, [], "mine's parameter shift would never be trained"),
        ({"shift": torch.zeros(2, requires_grad=True)}, [], r"mine's parameter shift has the shape \(2,\)"),
        ({"shift": torch.zeros((), requires_grad=True)}, [], r"mine's parameter shift has the shape \(\)"),
        ({}, ["head"], "unknown parameter 'head' .* of mine: did you mean head.bias, head.weight"),
    ],
)
def test_parameters_that_do_not_fit_the_clients_are_refused(
    parameters: Parameters, shared: list[str], words: str
) -> None:
    @register("mine", title="Mine", paper="none")
    class Mine(FedAvg):
        def initial_parameters(self) -> Parameters:
            return super().initial_parameters() | parameters

        def shared(self) -> list[str]:
            return shared

    with pytest.raises(UserError, match=words):
        Mine(Options(), make_setting(small_federation(clients=3))).build()
