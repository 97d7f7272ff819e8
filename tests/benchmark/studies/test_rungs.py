"""What the first rung of a search does to the best of all trials."""

from pathlib import Path

import pytest

from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.records.record import Record
from fedsub.benchmark.records.search import Search
from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.studies.rungs import judge
from tests.benchmark.fakes import make_cell, make_record

ROUNDS = 9


@pytest.mark.parametrize(
    ("first", "place", "is_kept", "lost"),
    [
        # Trial 3 is the best in full; the two best of six go on.
        ([10.0, 20.0, 30.0, 60.0, 50.0, 40.0], 1, True, 0.0),
        ([10.0, 20.0, 60.0, 30.0, 40.0, 50.0], 4, False, 10.0),
    ],
)
def test_the_first_rung_keeps_or_loses_the_best(
    tmp_path: Path, first: list[float], place: int, is_kept: bool, lost: float
) -> None:
    search = Search.of(make_cell(method="fedprox", rounds=ROUNDS), 6)
    records = Records(tmp_path)
    in_full = [10.0, 20.0, 30.0, 70.0, 40.0, 60.0]
    for number in range(6):
        records.append(_scored(search.short(number), first[number]))
        assert judge(search, records) is None
        for cell in search.full(number):
            records.append(_scored(cell, in_full[number]))
    found = judge(search, records)
    assert found is not None
    assert (found.place, found.is_kept) == (place, is_kept)
    assert found.lost == (lost, lost)


def _scored(cell: Cell, score: float) -> Record:
    curve = {"round": [1], "validation": [score], "test": [score]}
    return make_record(cell, score, selected_round=1, curve=curve)
