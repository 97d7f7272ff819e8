"""What a record says of its cell, its seconds and its options, and which lines are none."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from fedsub.benchmark.records.record import Record, Result, identity
from fedsub.benchmark.spec.cell import complete, key_of
from fedsub.datasets.errors import UserError
from tests.benchmark.fakes import ENVIRONMENT, failed, make_cell, make_record


def test_a_record_that_answers_an_answer_names_the_cell_that_was_run() -> None:
    ran, second, third = (make_cell(protocol=table) for table in ("first", "second", "third"))
    found = make_record(ran).answering(second).answering(third)
    assert (found.cell, found.source) == (third, ran)
    assert (found.key, found.stored_key) == (third.key, ran.key)


@pytest.mark.parametrize(
    "curve", [{"round": [1, 2], "test": [50.0]}, {"test": [50.0, 51.0]}, {"round": [], "loss": [0.1]}]
)
def test_curves_that_do_not_belong_together_are_refused(curve: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="one value a round"):
        Result(curve=curve)


def test_seconds_are_of_a_round_and_of_a_core() -> None:
    seconds = {"setup": 5.0, "train": 6.0, "evaluate": 2.0}
    environment = {**ENVIRONMENT, "threads": 4}
    record = make_record(make_cell(rounds=4), environment=environment, seconds=seconds)
    assert record.seconds_per_round == 2.0
    assert record.core_seconds == {"setup": 20.0, "train": 24.0, "evaluate": 8.0}
    # What was measured of the processor counts before the threads that were asked for.
    shared = replace(record, outcome=replace(record.result, core_share=0.5))
    assert shared.core_seconds == {"setup": 2.5, "train": 3.0, "evaluate": 1.0}
    assert failed(make_cell(), "it broke").seconds_per_round == 0


def test_what_a_cell_chose_stands_beside_what_was_the_default() -> None:
    record = make_record(make_cell(options={"mu": 0.5}), default_options={"alpha": 1, "beta": 2})
    values = record.to_dict()
    assert values["options"] == record.options == {"alpha": 1, "beta": 2, "mu": 0.5}
    assert values["chosen"] == ["mu"]
    again = Record.from_dict(values)
    assert (again.cell, again.result.default_options) == (record.cell, {"alpha": 1, "beta": 2})


@pytest.mark.parametrize("settings", [{}, {"seed": 2, "data_seed": 2}, {"options": {"mu": 0.5}}])
def test_a_lines_identity_is_that_of_its_record(settings: dict[str, Any]) -> None:
    cell = make_cell(**settings)
    for record, status in ((make_record(cell), "ok"), (failed(cell, "it broke"), "failed")):
        values = json.loads(record.to_json())
        assert identity(values) == (cell.key, status, cell.work)


def test_settings_that_came_later_are_at_their_default_in_records_from_before() -> None:
    cell = make_cell()
    values = make_record(cell).to_dict()
    for name in ("versions", "kernel", "data_seed", "hops"):
        del values[name]
    assert identity(values) == (cell.key, "ok", cell.work)
    assert Record.from_dict(values).cell == cell


@pytest.mark.parametrize(
    "changed",
    [
        {"versions": "metis=9"},
        {"clients": 6},
        {"protocol": "another"},
        {"status": "done"},
        {"chosen": ["alpha"]},
        {"environment": None},
    ],
)
def test_a_line_that_is_not_of_the_cell_that_it_names_is_refused(changed: dict[str, Any]) -> None:
    values = {**make_record(make_cell(), default_options={"alpha": 1}).to_dict(), **changed}
    for read in (identity, Record.from_dict):
        with pytest.raises(UserError):
            read(values)


@pytest.mark.parametrize("name", ["seed", "data_seed"])
def test_a_line_whose_seed_is_no_number_is_refused(name: str) -> None:
    values = {**make_record(make_cell(data_seed=0)).to_dict(), name: 0.5}
    values["key"] = key_of(complete(values))
    with pytest.raises(UserError, match=f"{name} must be a whole number"):
        identity(values)
