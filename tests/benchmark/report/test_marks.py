"""Marks of rows: privacy, choices on the table, runs that did nothing beyond FedAvg, earlier versions."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from fedsub.benchmark.analysis.scores import Leaderboard, Row, best_of, make_rows
from fedsub.benchmark.cli.parser import parse
from fedsub.benchmark.execution.runner import attempt
from fedsub.benchmark.records.record import Record
from fedsub.benchmark.report.leaderboard import markdown
from fedsub.benchmark.spec.plan import make_plan, outdated_parts
from fedsub.benchmark.spec.protocol import Protocol, load_protocol
from fedsub.datasets.options import Spec
from tests.benchmark.fakes import make_record, with_settings
from tests.benchmark.report.rendered import line_of, page_of

TABLE = """
[grid]
dataset = "community[nodes=60]"
partition = "random"
clients = 40
method = [
    "fedavg", "fedprox", "fedprox[mu=0.5]", "gcfl",
    "fedcog", "fedcog[lnnc=false]", "fedstruct[features=deg,version=b]", "fedstruct",
]
backbone = "sgc"

[settings]
rounds = 2
split = "ratio[train=0.4,validation=0.3,test=0.3]"

[[override]]
when = { method = ["fedprox[mu=0.5]"] }
settings = { local_epochs = 2 }

[[override]]
when = { method = ["fedcog"] }
settings = { learning_rate = 0.1 }
chosen = "The best of 0.1 and 0.01."
"""


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> tuple[Protocol, list[Record]]:
    """A small table and its records, two seeds each, as the runner makes them."""
    path = tmp_path_factory.mktemp("protocol") / "small.toml"
    path.write_text(TABLE)
    cells = make_plan(parse(["--table", str(path), "--seeds", "2"]).request).cells
    records = [attempt(cell) for cell in cells]
    assert [record.error for record in records if record.error] == []
    return load_protocol(str(path)), records


def rows_by_name(protocol: Protocol, records: Iterable[Record]) -> dict[str, Row]:
    return {row.method: row for row in make_rows(protocol, records)}


def test_a_variant_is_judged_by_what_it_does(table: tuple[Protocol, list[Record]]) -> None:
    rows = rows_by_name(*table)
    privacy = {"fedcog[lnnc=false]", "fedstruct"}
    nothing = {"gcfl", "fedprox"}
    assert {name for name, row in rows.items() if row.is_rival} == set(rows) - privacy - nothing - {"fedcog"}
    page = page_of(*table)
    assert "† FedCog (lnnc=false) breaks privacy: without LNNC" in page
    assert "† FedStruct breaks privacy: version a" in page


def test_runs_that_did_nothing_beyond_fedavg_say_so(table: tuple[Protocol, list[Record]]) -> None:
    protocol, records = table
    gcfl = [record for record in records if record.cell.label == "gcfl"]
    assert len(gcfl) == 2
    name = "GCFL · did nothing beyond FedAvg in {} of 2 runs"
    assert line_of(page_of(protocol, records), name.format(2))
    assert page_of(protocol, records).count("did nothing") == 2
    # Without FedAvg's records this is unknown, unless an earlier record states it.
    alone = [record for record in records if record.cell.method != "fedavg"]
    assert "did nothing" not in page_of(protocol, alone)
    old = [_with_extras(gcfl[0], same_as_fedavg=1.0), gcfl[1]]
    assert line_of(page_of(protocol, old), name.format(1))


def test_a_run_beside_fedavg_by_more_than_rounding_did_something(
    table: tuple[Protocol, list[Record]],
) -> None:
    protocol, records = table

    def moved(record: Record, by: float) -> Record:
        curve = {**record.curve, "loss": [value * (1 + by) for value in record.curve["loss"]]}
        return replace(record, outcome=replace(record.result, curve=curve))

    for by, runs in ((1e-5, 2), (1e-2, 0)):
        shown = [moved(each, by) if each.cell.label == "gcfl" else each for each in records]
        assert rows_by_name(protocol, shown)["gcfl"].same_as_fedavg == runs


@pytest.mark.parametrize("extras", [{"same_as_fedavg": 1.0}, {"lnnc_alone": 3}])
def test_what_did_nothing_or_left_nodes_exposed_is_not_the_best(extras: dict[str, float]) -> None:
    protocol, records = gains(chosen_gain=14.7)
    assert best_methods(protocol, records) == ["fedcog"]
    # One run of three is enough; FedAvg is left without a rival.
    chosen, *rest = (record for record in records if record.cell.method == "fedcog")
    others = [record for record in records if record.cell.method != "fedcog"]
    assert best_methods(protocol, [_with_extras(chosen, **extras), *rest, *others]) == []


def best_methods(protocol: Protocol, records: list[Record]) -> list[str]:
    """Return the best methods by accuracy."""
    return [row.cell.method for row in best_of(make_rows(protocol, records), "accuracy")]


def _with_extras(record: Record, **extras: float) -> Record:
    return replace(record, outcome=replace(record.result, extras=extras))


def gains(*, chosen_gain: float) -> tuple[Protocol, list[Record]]:
    """Return FedCog's figure 3 on Cora with this gain of FedCog over FedAvg, plus a tenth per seed."""
    argv = ["--table", "fedcog-fig3", "--dataset", "cora", "--clients", "100", "--seeds", "3", "--method"]
    cells = make_plan(parse([*argv, "fedavg", "fedcog[lnnc=true]"]).request).cells
    records = [
        make_record(cell, 65.0 + (chosen_gain + cell.seed / 10 if cell.method == "fedcog" else 0))
        for cell in cells
    ]
    return load_protocol("fedcog-fig3"), records


def test_an_earlier_version_is_no_current_figure() -> None:
    protocol, records = gains(chosen_gain=14.7)
    assert not any(outdated_parts(record.cell) for record in records)
    old = [replace(record, cell=replace(record.cell, versions="")) for record in records]
    assert {outdated_parts(record.cell) for record in old} == {("kmeans", "split")}
    page = page_of(protocol, old)
    assert line_of(page, "FedCog · earlier version (kmeans, split)")
    assert best_methods(protocol, old) == []
    assert "No published figure answers these cells." in page
    half = [replace(record, cell=replace(record.cell, versions="split=2")) for record in records]
    assert "earlier version (kmeans) " in page_of(protocol, half)


def test_a_current_row_takes_the_place_of_its_earlier_versions() -> None:
    protocol, records = gains(chosen_gain=14.7)
    old = [replace(record, cell=replace(record.cell, versions="")) for record in records]
    fedavg = [record for record in records if record.cell.method == "fedavg"]
    page = page_of(protocol, [*old, *records])
    assert page == page_of(protocol, records)
    page = page_of(protocol, [*old, *fedavg])
    assert page.count("earlier version") == 1
    assert line_of(page, "FedCog · earlier version (kmeans, split)")
    # A row of a user's short test does not replace the table's row.
    short = [replace(record, cell=with_settings(record.cell, rounds=5)) for record in fedavg]
    page = page_of(protocol, [*old, *short])
    assert line_of(page, "FedAvg · earlier version (kmeans, split)")
    assert line_of(page, "FedAvg · rounds=5")
    # It replaces earlier rows with the same deviations.
    short_before = [replace(record, cell=replace(record.cell, versions="")) for record in short]
    assert "earlier" not in page_of(protocol, [*short, *short_before])
    assert "earlier" not in page_of(protocol, [*fedavg, *short_before])


def test_a_users_graph_stands_in_the_rows_of_the_others(table: tuple[Protocol, list[Record]]) -> None:
    protocol, records = table
    own = [
        replace(record, cell=replace(record.cell, dataset=Spec("rings"), files="a" * 64))
        for record in records
    ]
    lines = markdown(Leaderboard(protocol, [*records, *own])).splitlines()
    (fedavg,) = (line for line in lines if line.startswith("| FedAvg "))
    assert len(fedavg.split(" | ")) == 3
    assert "–" not in fedavg


def test_a_plug_in_that_is_gone_breaks_no_page(tmp_path: Path) -> None:
    plugin = tmp_path / "own.py"
    plugin.write_text("raise SystemExit('a page ran it')\n")
    protocol, (record, *_) = gains(chosen_gain=0.0)
    for gone in (tmp_path / "gone.py", plugin, "not-installed"):
        for change in ({"method": str(gone)}, {"partition": str(gone)}, {"split": str(gone)}):
            cell = with_settings(record.cell, files="0" * 64, **change)
            assert outdated_parts(cell) == ()
            page = page_of(protocol, [replace(record, cell=cell)])
            assert "| method |" in page
            assert "files 00000000" not in page
            assert outdated_parts(replace(cell, versions="")) != ()
