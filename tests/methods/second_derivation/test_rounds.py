"""What the loops with absent clients stand on: their attendance has clients that come back."""

from __future__ import annotations

import pytest

from fedsub.methods.core.participation import Attendance
from fedsub.methods.core.schedule import Schedule
from tests.methods.second_derivation.rounds import SOME


@pytest.mark.parametrize("clients", [5, 6])
def test_some_clients_are_there_then_absent_and_come_back(clients: int) -> None:
    """Without one of them, no loop sees what a client receives that the server has not heard for a round."""
    epochs = Attendance.draw(Schedule(local_epochs=2, **SOME), clients, seed=0).epochs
    there = ["".join("01"[int(number > 0)] for number in each) for each in epochs.T]
    back = [k for k, each in enumerate(there) if "01" in each.lstrip("0")]
    assert len(back) > 1
    assert all(len(set(each)) > 1 for each in there)
