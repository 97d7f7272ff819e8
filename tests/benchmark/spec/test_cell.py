import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsub.benchmark.records.record import DIGITS
from fedsub.benchmark.spec.cell import FIELDS, OUTSIDE_KEY, Cell
from fedsub.benchmark.spec.schema import LARGEST
from fedsub.datasets.errors import UserError
from tests.benchmark.fakes import make_cell, make_record, with_settings

OTHER: dict[str, Any] = {"options": {"mu": 0.5}, "hidden": [64], "features": "row-normalised", "quantise": 8}
OTHER |= {"head": "convolution", "outputs": "probabilities", "norm": "layer", "optimiser": "sgd"}
OTHER |= {"weighting": "uniform", "evaluate": "received", "selection": "last", "accuracy": "pooled"}
OTHER |= {"further_metrics": ["macro_f1"], "leavers": "0@1"}

ROOM = {"local_epochs": 2, "privacy_clip": 1.0, "top_k": 0.5}
"""Settings that other settings require."""


def test_key_is_stable_across_versions_of_this_file() -> None:
    # A change here, and of any default, orphans every committed record.
    assert make_cell().key == "9f08b6a8d882-0"


@pytest.mark.parametrize("name", [name for name in FIELDS if name not in OUTSIDE_KEY])
def test_every_other_field_changes_the_key(name: str) -> None:
    cell = make_cell(**ROOM)
    value = cell.to_dict()[name]
    usual = not value if isinstance(value, bool) else {str: "other", int: 77, float: 0.123}.get(type(value))
    assert with_settings(cell, **{name: OTHER.get(name, usual)}).key != cell.key


def test_table_label_paths_and_further_scores_are_outside_the_key() -> None:
    outside = {"protocol": "x", "label": "z", "paths": ["method=./x.py"], "further_metrics": ["y"]}
    assert {*outside} == {*OUTSIDE_KEY}
    assert make_cell(**outside).key == make_cell().key


def test_options_are_alike_in_every_order() -> None:
    given = {"mu": 0.5, "alpha": 1}
    cell, turned = (make_cell(options=dict(items)) for items in (given.items(), reversed(given.items())))
    assert cell == turned
    assert (cell.key, cell.variant) == (turned.key, "fedavg[alpha=1,mu=0.5]")


values = st.one_of(
    st.booleans(), st.integers(-(2**40), 2**40), st.floats(-LARGEST, LARGEST), st.text(max_size=8)
)
cells = st.builds(
    make_cell,
    dataset=st.text(st.characters(exclude_characters="[]", exclude_categories=["Cs"]), max_size=12).map(
        "x{}".format
    ),
    clients=st.integers(1, 10**6),
    seed=st.integers(0, 2**32),
    hidden=st.lists(st.integers(1, 512), max_size=3),
    options=st.dictionaries(st.text(min_size=1, max_size=6), values, max_size=3),
)


@given(
    cells, st.floats(-100, 100) | st.just(math.nan), st.dictionaries(st.text(max_size=3), values, max_size=3)
)
def test_a_record_survives_json(cell: Cell, accuracy: float, defaults: dict[str, Any]) -> None:
    defaults = {name: value for name, value in defaults.items() if name not in dict(cell.options)}
    record = make_record(cell, accuracy, default_options=defaults)
    line = record.to_json()
    assert "\n" not in line
    again = record.reread()
    assert again.cell == cell
    assert again.cell.key == cell.key == f"{cell.group}-{cell.seed}"
    assert again.to_json() == line
    stored = pytest.approx(accuracy, rel=10.0 ** (1 - DIGITS["metrics"])) if math.isfinite(accuracy) else None
    assert again.metrics["accuracy"] == stored
    assert again.result.default_options == defaults


def test_a_missing_setting_is_named() -> None:
    with pytest.raises(UserError, match=r"a cell must have .*dataset"):
        Cell.from_dict({"protocol": "toy"})
