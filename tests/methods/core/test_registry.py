from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from fedsub.datasets.errors import UserError
from fedsub.methods.core import registry
from fedsub.methods.core.base import Options, register
from fedsub.methods.core.info import privacy_of
from fedsub.methods.core.setting import make_setting
from fedsub.methods.fedavg import FedAvg
from fedsub.methods.stacked.parameters import Parameters
from tests.methods.federations import small_federation


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("def broken(:", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_a_file_that_cannot_be_imported_is_one_sentence(tmp_path: Path, code: str, words: str) -> None:
    path = tmp_path / "broken.py"
    path.write_text(code)
    with pytest.raises(UserError, match="mend the plug-in") as caught:
        registry.find(str(path))
    assert str(path) in str(caught.value)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not any(getattr(module, "__file__", None) == str(path) for module in sys.modules.values())


def test_a_file_without_a_method_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "empty.py"
    path.touch()
    with pytest.raises(UserError, match="registers 0 methods"):
        registry.find(str(path))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 10**400])
def test_an_option_must_be_finite(value: float) -> None:
    with pytest.raises(UserError, match="fedprox's mu must be a finite number"):
        registry.make_options("fedprox", {"mu": value})


def test_a_whole_number_does_for_a_number() -> None:
    assert registry.make_options("fedprox", {"mu": 1}) == registry.make_options("fedprox", {"mu": 1.0})
    with pytest.raises(UserError, match="mu must be a finite number, not True"):
        registry.make_options("fedprox", {"mu": True})


@pytest.mark.parametrize(("name", "merged"), [("central", False), ("fedavg", True)])
def test_a_setting_made_for_another_kind_of_method_is_refused(name: str, merged: bool) -> None:
    with pytest.raises(ValueError, match=f"merged={not merged}"):
        registry.create(name, {}, make_setting(small_federation(), merged=merged))


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("fedadam", "beta1", 5),
        ("fedadam", "beta2", -3),
        ("fedadagrad", "beta1", 1),
        ("fedsage+", "noise", -1),
        ("fedgta", "threshold", -9),
        ("fedgnn", "threshold", 1.5),
        ("fedlit", "dropout", 1.5),
        ("fedcog", "hops", -3),
        ("fedpub", "lambda1", -1),
        ("fedspray", "confidence", 2),
        ("fedstruct", "dropout", 1),
        ("fedstruct", "context", 50),
    ],
)
def test_an_option_outside_its_limits_is_refused(name: str, option: str, value: float) -> None:
    with pytest.raises(UserError, match=re.escape(f"{name}'s {option} must ")):
        registry.make_options(name, {option: value})


@pytest.mark.parametrize(
    ("name", "options", "breaks"),
    [
        ("fedavg", {}, False),
        ("central", {}, True),
        ("fedgnn", {}, True),
        ("fedgcn", {}, False),
        ("fedgcn", {"sent": "features"}, True),
        ("fedpub", {}, False),
        ("fedpub", {"similarity": "label"}, True),
        ("fedcog", {}, False),
        ("fedcog", {"lnnc": False}, True),
    ],
)
def test_every_method_says_whether_it_breaks_privacy(
    name: str, options: dict[str, Any], breaks: bool
) -> None:
    info = registry.describe(name)
    own = registry.make_options(name, options)
    assert bool(privacy_of(info, own)) is breaks
    assert bool(info.breaks_privacy) is (breaks or own.breaks_privacy() is not None)


def test_a_method_that_no_command_line_could_ask_for_is_refused() -> None:
    with pytest.raises(ValueError, match="the name 'my method' may have letters"):
        register("my method", title="Mine", paper="none")


def test_options_that_would_not_be_read_are_refused() -> None:
    class Undecorated(Options):
        mu: float = 0.1

    with pytest.raises(ValueError, match="Undecorated is no dataclass: put"):
        register("mine", title="Mine", paper="none", options=Undecorated)


@pytest.mark.parametrize(
    ("parameters", "shared", "words"),
    [
        ({"shift": torch.zeros(3, 2)}, [], "mine's parameter shift would never be trained"),
        ({"shift": torch.zeros(2, requires_grad=True)}, [], r"mine's parameter shift has the shape \(2,\)"),
        ({"shift": torch.zeros((), requires_grad=True)}, [], r"mine's parameter shift has the shape \(\)"),
        (
            {},
            ["head"],
            "unknown parameter 'head' .* of mine: did you mean head.bias, head.weight",
        ),
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
