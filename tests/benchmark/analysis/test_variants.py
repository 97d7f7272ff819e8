"""What stands beside a figure as tried: rows with other settings or options, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import pytest

from fedsub.benchmark.analysis.figures import Entry
from fedsub.benchmark.records.record import Record
from fedsub.methods.fedstruct.options import FedStructOptions
from tests.benchmark.analysis.test_figures import PLACE, SCORES, TABLE_2, entries_of, entry_of, records_of

PRINTED_AND = {"local": SCORES["local"], "fedavg": (60.0, 69.0, 78.0), "fedprox": (80.0, 81.0, 82.0)}


def entries_with(*further: Sequence[Record]) -> list[Entry]:
    records = records_of("fedpub-2", PRINTED_AND, *PLACE)
    return entries_of(fedpub_2=[*records, *(record for some in further for record in some)])


def test_other_settings_are_a_trial_whose_gain_is_over_the_baseline_with_the_same() -> None:
    # 62 − 60 and 73 − 69: +3 on the seeds that both have; 62 − 50 and 73 − 51: +17 over Local.
    changed = records_of(
        "fedpub-2", {"local": (50.0, 51.0), "fedavg": (62.0, 73.0)}, *PLACE, "--set", "rounds=7"
    )
    (trial,) = entry_of(entries_with(changed), *TABLE_2, "FedAvg").trials
    assert (trial.changed, trial.mean, trial.seeds) == ("rounds=7", 67.5, 2)
    assert (trial.level, trial.gain) == (pytest.approx(3.0), pytest.approx(17.0))


def test_other_options_are_a_trial_of_their_method_alone() -> None:
    variant = records_of("fedpub-2", {"fedprox[mu=0.5]": (70.0,)}, *PLACE)
    entries = entries_with(variant)
    assert entry_of(entries, *TABLE_2, "FedProx").to_dict()["trials"] == [
        {"changed": "mu=0.5", "mean": 70.0, "seeds": 1, "difference": -10.0, "gain": -9.9}
    ]
    assert entry_of(entries, *TABLE_2, "FedAvg").trials == ()


def test_a_trial_gains_over_the_baseline_under_its_own_settings_alone() -> None:
    changed = records_of("fedpub-2", {"fedavg": (62.0,)}, *PLACE, "--set", "rounds=7")
    (trial,) = entry_of(entries_with(changed), *TABLE_2, "FedAvg").trials
    assert trial.gain is None
    base = records_of("fedpub-2", {"local": (60.0,)}, *PLACE, "--set", "rounds=7")
    (trial,) = entry_of(entries_with([*changed, *base]), *TABLE_2, "FedAvg").trials
    assert trial.gain == pytest.approx(2.0)


def test_rows_that_answer_figures_of_their_own_are_no_trials() -> None:
    """FedStruct's other features are printed rows, as are FED-PUB's other similarities."""
    scores = {"fedstruct[features=deg]": (65.0,), "fedstruct[features=h2v]": (80.0,)}
    entries = entries_of(
        fedstruct_1=records_of(
            "fedstruct-1", scores, "--dataset", "cora", "--clients", "10", "--partition", "random"
        )
    )
    measured = [entry for entry in entries if entry.row is not None]
    assert len(measured) >= 2
    assert all(entry.trials == () for entry in measured)


def test_a_trial_of_another_table_s_row_stands_beside_the_figures_of_the_same_runs() -> None:
    """FED-PUB's Table 3 prints scores of Table 1's cells."""
    scores = {"local": (70.0,), "fedavg": (74.0,), "fedgnn": (75.0,)}
    ran = records_of("fedpub-1", scores, *PLACE)
    variant = records_of("fedpub-1", {"fedgnn[rule=similarity]": (72.0,)}, *PLACE)
    asked = [record.cell for record in records_of("fedpub-3", scores, *PLACE)]
    shared = [replace(record, cell=cell) for record, cell in zip(ran, asked, strict=True)]
    entries = entries_of(fedpub_1=[*ran, *variant], fedpub_3=shared)
    found = [entry for entry in entries if entry.row and entry.figure.place[5] == "FedGNN"]
    found = [entry for entry in found if entry.metric == "accuracy"]
    gains = {}
    for entry in found:
        (trial,) = entry.trials
        assert (trial.changed, trial.level) == ("rule=similarity", -3.0)
        gains[entry.figure.place[1], entry.figure.baseline] = trial.gain
    assert gains["1", "local"] == pytest.approx(2.0)
    assert gains["3", "fedavg"] == pytest.approx(-2.0)


def test_a_trial_need_not_name_what_is_a_default() -> None:
    place = ("--dataset", "cora", "--clients", "10", "--partition", "random")
    row = records_of("fedstruct-1", {"fedstruct[features=h2v]": (80.0,)}, *place)
    variant = records_of("fedstruct-1", {"fedstruct[self_loops=to-last-edge]": (79.0,)}, *place)
    # What a record keeps of the defaults; `features` is one of them.
    defaults: dict[str, Any] = {each.name: each.default for each in fields(FedStructOptions)}
    made = [
        replace(each, outcome=replace(each.result, default_options=defaults)) for each in (*row, *variant)
    ]
    found = [entry for entry in entries_of(fedstruct_1=made) if entry.row is not None]
    assert found
    for entry in found:
        assert [trial.changed for trial in entry.trials] == ["self_loops=to-last-edge"]
