"""No method without a second derivation, and no loop without clients that come back."""

from pathlib import Path

import pytest

from fedsub.methods.core import registry
from fedsub.methods.core.schedule import Schedule
from fedsub.methods.core.steps import draw_attendance
from tests.methods.second_derivation.rounds import SOME

ELSEWHERE = {"central", "local"}
"""Methods without server and rounds, which `tests/methods/core/test_oracle.py` covers."""


def test_every_method_is_derived_a_second_time() -> None:
    files = [path for path in Path(__file__).parent.glob("test_*.py") if path != Path(__file__)]
    text = "".join(path.read_text() for path in files)
    assert {name for name in registry.names() if f'"{name}"' not in text} <= ELSEWHERE


@pytest.mark.parametrize("clients", [5, 6])
def test_some_clients_are_there_then_absent_and_come_back(clients: int) -> None:
    """Otherwise no loop would test what a client receives after a round of absence."""
    epochs = draw_attendance(Schedule(local_epochs=2, **SOME), clients, seed=0)
    there = ["".join("01"[int(number > 0)] for number in each) for each in epochs.T]
    back = [k for k, each in enumerate(there) if "01" in each.lstrip("0")]
    assert len(back) > 1
    assert all(len(set(each)) > 1 for each in there)
