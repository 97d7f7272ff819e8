"""Methods written from CONTRIBUTING alone, as a user's files: they pass the checks and learn."""

from pathlib import Path

import pytest

from fedsub import check_method
from fedsub.methods.core import registry
from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.setting import make_setting
from fedsub.methods.core.training import train
from tests.methods.federations import community_federation

FILES = sorted(
    path for path in Path(__file__).parent.glob("*.py") if not path.name.startswith(("_", "test_"))
)
FEDERATION = community_federation(clients=4, nodes=240)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_users_method_passes_the_checks_and_learns(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 66
    assert "passed" in check_method(str(path))["separate clients match the stacked run"]
    setting = make_setting(FEDERATION, Architecture(hidden=(16, 16)), Schedule(rounds=30, learning_rate=0.03))
    outcome = train(registry.create(str(path), {}, setting))
    # Six classes of about one size: chance is a sixth.
    assert outcome.metrics["accuracy"] > 0.4
    assert outcome.curve["loss"][-1] < outcome.curve["loss"][0]


def test_there_are_the_five() -> None:
    assert [path.stem for path in FILES] == ["classmeans", "deepproto", "fednova", "pfedhn", "pfedme"]
