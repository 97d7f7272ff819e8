"""A record's cell, seconds and options, and lines that are not records."""

from dataclasses import replace
from typing import Any

import pytest

from fedsub.benchmark.records.record import Record, Result, cell_of
from fedsub.datasets.errors import UserError
from tests.benchmark.fakes import ENVIRONMENT, failed, make_cell, make_record


@pytest.mark.parametrize(
    "curve", [{"round": [1, 2], "test": [50.0]}, {"test": [50.0, 51.0]}, {"round": [], "loss": [0.1]}]
)
def test_curves_that_do_not_belong_together_are_refused(curve: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="one value per round"):
        Result(curve=curve)


def test_seconds_are_of_a_round_and_of_a_core() -> None:
    seconds = {"setup": 5.0, "train": 6.0, "evaluate": 2.0}
    environment = {**ENVIRONMENT, "threads": 4}
    record = make_record(make_cell(rounds=4), environment=environment, seconds=seconds)
    assert record.seconds_per_round == 2.0
    assert record.core_seconds == {"setup": 20.0, "train": 24.0, "evaluate": 8.0}
    # The measured processor share takes precedence over the requested threads.
    shared = replace(record, outcome=replace(record.result, core_share=0.5))
    assert shared.core_seconds == {"setup": 2.5, "train": 3.0, "evaluate": 1.0}
    assert failed(make_cell(), "it broke").seconds_per_round == 0


def test_settings_that_came_later_are_at_their_default_in_records_from_before() -> None:
    cell = make_cell()
    values = make_record(cell).to_dict()
    for name in ("versions", "kernel", "data_seed", "hops"):
        del values[name]
    assert cell_of(values) == cell
    assert Record.of(cell, values) == make_record(cell)
