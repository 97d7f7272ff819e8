"""What cells are likely to take, and how that is said."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from benchmark import progress
from benchmark.estimate import UNKNOWN_SECONDS, Estimate, duration
from benchmark.progress import GridProgress
from tests.benchmark.fakes import make_cell, make_record


def test_the_estimate_takes_what_is_most_alike() -> None:
    near = make_record(make_cell(rounds=2), seconds={"setup": 5.0, "train": 2.0, "evaluate": 1.0})
    other = make_record(make_cell(rounds=1, dataset="citeseer"), seconds={"setup": 1.0, "train": 4.5})
    estimate = Estimate([near, other])
    # Set up once, whatever the number of rounds.
    assert estimate.seconds(make_cell(rounds=10)) == 5 + 10 * 1.5
    assert estimate.seconds(make_cell(rounds=10, clients=99)) == 5 + 10 * 1.5
    assert estimate.seconds(make_cell(rounds=1, dataset="citeseer", method="local")) == 3 + 3
    assert Estimate([]).seconds(make_cell()) == UNKNOWN_SECONDS


def test_the_estimate_is_of_a_core_of_its_own() -> None:
    seconds = {"setup": 5.0, "train": 2.0, "evaluate": 1.0}
    shared = make_record(make_cell(rounds=2), seconds=seconds, core_share=0.5)
    assert Estimate([shared]).seconds(make_cell(rounds=10)) == 2.5 + 10 * 0.75


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0 s"), (99, "99 s"), (100, "2 min"), (5940, "99 min"), (6000, "1.7 h"), (111048, "30.8 h")],
)
def test_times_are_said_in_a_unit_that_is_read_at_once(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_what_is_left_is_weighed_by_what_such_cells_took(monkeypatch: pytest.MonkeyPatch) -> None:
    cheap, dear = make_cell(rounds=1), make_cell(rounds=1, method="fedpub")
    took = {"setup": 0.0, "evaluate": 0.0}
    records = [
        make_record(cheap, seconds={**took, "train": 1.0}),
        make_record(dear, seconds={**took, "train": 3600.0}),
    ]
    clock = iter((0.0, 2.0))
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    told = io.StringIO()
    shown = GridProgress([cheap, dear], Console(file=told, width=progress.WIDTH), Estimate(records))
    shown.finished(records[0])
    # 2 s for what took 1 s before: 7200 s for what took 3600 s.
    assert re.search(r"^\[1/2\] .* \(about 2.0 h left\)$", told.getvalue().strip())
