from __future__ import annotations

import pytest

from fedsub.benchmark.analysis.scores import make_rows
from fedsub.benchmark.report.site.curves import Rounds, heat_map, plotted
from fedsub.benchmark.spec.protocol import Protocol, parse_protocol
from tests.benchmark.fakes import make_record
from tests.benchmark.report.test_leaderboard import current_cell


def table(metrics: list[str]) -> Protocol:
    grid = {"dataset": ["cora", "pubmed"], "partition": "metis", "clients": 5, "backbone": "gcn"}
    return parse_protocol("toy", {"metrics": metrics, "grid": {**grid, "method": ["fedavg", "fedpub"]}})


RECORDS = [
    make_record(
        current_cell(dataset=dataset, method=method, label=method), value, extras={"sent_mb": 100 - value}
    )
    for dataset in ("cora", "pubmed")
    for method, value in (("fedavg", 60.0), ("fedpub", 80.0))
]


@pytest.mark.parametrize("metrics", [["accuracy", "sent_mb"], ["sent_mb", "accuracy"]])
def test_what_is_plotted_is_a_contest_where_the_table_has_one(metrics: list[str]) -> None:
    rows = make_rows(table(metrics), RECORDS)
    blocks = plotted(table(metrics), rows, Rounds())
    assert [block["score"] for block in blocks] == ["accuracy %"] * 2
    assert [line["value"] for line in blocks[0]["rows"]] == [60.0, 80.0]
    assert [line["rival"] for line in blocks[0]["rows"]] == [True, True]
    heat = heat_map(table(metrics), rows)
    assert heat is not None
    assert heat.lines[1] == ("fedpub", (("80.0", 1.0), ("80.0", 1.0)))


def test_where_more_is_not_better_nothing_is_called_the_best() -> None:
    rows = make_rows(table(["sent_mb"]), RECORDS)
    (block, _) = plotted(table(["sent_mb"]), rows, Rounds())
    assert [line["value"] for line in block["rows"]] == [40.0, 20.0]
    assert [line["rival"] for line in block["rows"]] == [False, False]
    assert heat_map(table(["sent_mb"]), rows) is None
