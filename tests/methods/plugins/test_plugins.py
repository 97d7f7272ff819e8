"""Methods written from CONTRIBUTING alone, as a user's files: they pass the checks and learn."""

from pathlib import Path

import pytest

from fedsub import check_method
from fedsub.benchmark.spec import catalog
from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.training import train
from tests.methods.federations import community_federation, make_method

FILES = [path for path in sorted(Path(__file__).parent.glob("[!_]*.py")) if path != Path(__file__)]
FEDERATION = community_federation(clients=4, nodes=240)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_users_method_passes_the_checks_and_learns(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 66
    assert "passed" in check_method(str(path))["separate clients match the stacked run"]
    schedule = Schedule(rounds=30, learning_rate=0.03)
    outcome = train(make_method(str(path), {}, FEDERATION, Architecture(hidden=(16, 16)), schedule))
    # Six classes of about one size: chance is a sixth.
    assert outcome.metrics["accuracy"] > 0.4
    assert outcome.curve["loss"][-1] < outcome.curve["loss"][0]


def test_there_are_the_five_and_two_say_what_they_exchange() -> None:
    assert [path.stem for path in FILES] == ["classmeans", "deepproto", "fednova", "pfedhn", "pfedme"]
    said = [path.stem for path in FILES if catalog.describe(str(path)).leaves != catalog.UNKNOWN]
    assert said == ["classmeans", "deepproto"]
