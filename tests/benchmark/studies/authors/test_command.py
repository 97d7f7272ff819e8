"""`--authors`: what is run, kept, run again, compared and shown; the public code is played."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fedsub.benchmark.analysis.agreement import DIFFERS, MATCHES, NEEDS_RUNS
from fedsub.benchmark.analysis.codes import CODES, PublicCode
from fedsub.benchmark.analysis.public_code import by_work, compare
from fedsub.benchmark.analysis.public_records import AuthorsRuns, Run, load
from fedsub.benchmark.analysis.scores import Leaderboard, Row, make_rows
from fedsub.benchmark.cli.commands import main
from fedsub.benchmark.cli.parser import parse
from fedsub.benchmark.execution.leases import Leases
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.records.record import Record
from fedsub.benchmark.records.store import Store
from fedsub.benchmark.report.leaderboard import full_tables, table_of
from fedsub.benchmark.report.public_code import markdown, write_authors_page
from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.plan import grid_cells
from fedsub.benchmark.spec.protocol import load_protocol
from fedsub.benchmark.studies.authors import command
from fedsub.benchmark.studies.authors.checkout import chosen, version_of
from fedsub.benchmark.studies.authors.grid import plan
from fedsub.benchmark.studies.command import main as study
from fedsub.datasets.errors import UserError
from tests.benchmark.fakes import make_cell, make_record, quick_run

CHECKOUTS = Path(__file__).parent / "checkouts"
TABLE, GRAPH = "quick", "community"
PLAYED = ("authors", f"fedpub={CHECKOUTS / 'fedpub'}", "--python", sys.executable)
CELLS = ("--method", "local", "--seeds", "2", "--clients", "5", "--set", "rounds=2")


@pytest.fixture
def _small_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    small = msgspec.structs.replace(CODES["fedpub"], datasets=(GRAPH,), tables={TABLE: (5,)})
    monkeypatch.setitem(CODES, "fedpub", small)


def make_run(number: int, accuracy: float, **changed: str | float) -> Run:
    cell = make_cell(seed=number)
    run = Run(
        "fedpub", "abc", cell.key, "toy", "cora", "metis", 5, "fedavg", "gcn", number, number,
        {"accuracy": accuracy}, 100, 30.0, 0.95,
    )  # fmt: skip
    return replace(run, **changed)  # type: ignore[arg-type]


def rows_of(records: Sequence[Record]) -> list[Row]:
    """The rows of a leaderboard."""
    return make_rows(load_protocol("default"), records)


@pytest.mark.usefixtures("_small_graph")
def test_runs_are_kept_not_repeated_and_shown_beside_ours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = ("--results", str(tmp_path))
    assert study([*PLAYED, *CELLS, *results]) == 0
    path = tmp_path / "authors" / "fedpub.jsonl"
    first = path.read_bytes()
    lines = [json.loads(line) for line in first.splitlines()]
    assert [line["seed"] for line in lines] == [0, 1]
    assert {line["method"] for line in lines} == {"local"}
    assert all(line["seconds_per_round"] == round(line["seconds"] / 2, 6) for line in lines)
    assert study([*PLAYED, *CELLS, *results]) == 0
    assert path.read_bytes() == first
    assert "2 runs, 0 of them to run" in capsys.readouterr().err

    ours = ["--table", TABLE, "--dataset", GRAPH, "--engine", "in-process", *CELLS, *results]
    assert main(parse(ours), quick_run) == 0
    runs, records = load(tmp_path), Store(tmp_path, TABLE).records()
    assert {record.key for record in records} == set(runs)
    overall, local = compare(runs, records)
    assert (overall.place, local.place) == (None, (GRAPH, "metis", 5))
    expected = [50.0 + line["seed"] - line["metrics"]["accuracy"] for line in lines]
    assert overall.differences == pytest.approx(expected)
    page = (tmp_path / "leaderboards" / f"{TABLE}.md").read_text()
    assert "2 runs." in page
    assert main(parse(["report", *results])) == 0
    assert (tmp_path / "authors.md").is_file()


@pytest.mark.usefixtures("_small_graph")
def test_clients_that_cannot_be_made_cost_their_run_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_one(code: Any, checkout: Any, version: str, cell: Cell, python: Any) -> Run:
        if cell.seed == 0:
            raise UserError("no such clients")
        return make_run(cell.seed, 50.0, key=cell.key, commit=version_of(checkout))

    monkeypatch.setattr(command, "run_one", run_one)
    assert study([*PLAYED, *CELLS, "--results", str(tmp_path)]) == 1
    assert "  failed: no such clients" in capsys.readouterr().err
    assert len((tmp_path / "authors" / "fedpub.jsonl").read_text().splitlines()) == 1


@pytest.mark.usefixtures("_small_graph")
def test_what_another_process_runs_is_left_to_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the first run were held elsewhere and the second had been added since the plan."""
    first, second = plan(CODES["fedpub"], parse([*CELLS]).request)
    version = version_of(CHECKOUTS / "fedpub")
    claim = Leases.claim

    def claim_elsewhere(leases: Leases, work: str) -> bool:
        if work.endswith(first.key):
            return False
        run = make_run(1, 50.0, key=second.key, commit=version)
        AuthorsRuns(tmp_path, "fedpub").add(run)
        return claim(leases, work)

    monkeypatch.setattr(Leases, "claim", claim_elsewhere)
    assert study([*PLAYED, *CELLS, "--results", str(tmp_path)]) == 0
    said = capsys.readouterr().err
    assert "2 of them to run" in said
    assert said.count("left to the process that runs it now") == 1
    assert [run.key for run in AuthorsRuns(tmp_path, "fedpub").runs()] == [second.key]
    assert len((tmp_path / "authors" / "fedpub.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize("code", CODES.values(), ids=CODES.keys())
def test_only_cells_that_its_tables_have_are_run(code: PublicCode) -> None:
    """A graph that a table does not have gives no record of ours to compare with."""
    present = {replace(c, seed=0).key for table in code.tables for c in grid_cells(load_protocol(table))}
    assert {replace(cell, seed=0).key for cell in plan(code, parse([]).request)} <= present


def test_a_code_has_the_methods_graphs_and_clients_that_it_was_made_to_run() -> None:
    code = CODES["fedpub"]
    point = {"dataset": "cora", "method": "fedavg", "clients": 10}
    assert code.has("fedpub-2", point)
    for other in ({"clients": 30}, {"method": "gcfl"}, {"dataset": "computers"}):
        assert not code.has("fedpub-2", point | other)
    assert code.has("fedpub-1", point | {"clients": 30})
    assert not code.has("fedspray-2", point)
    # FedSpray's lists no numbers: the graph's own division has one.
    assert CODES["fedspray"].has("fedspray-2", {"dataset": "pubmed", "method": "local", "clients": 7})


@pytest.mark.usefixtures("_small_graph")
def test_a_dry_run_lists_and_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert study([*PLAYED, *CELLS, "--dry-run", "--results", str(tmp_path)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("_small_graph")
def test_an_environment_without_a_package_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The played checkout has a file that the worker asks for, and nothing else."""
    entry = tmp_path / "code" / CODES["fedpub"].entry
    entry.parent.mkdir(parents=True)
    entry.touch()
    asked = ["authors", f"fedpub={tmp_path / 'code'}", *PLAYED[2:], *CELLS, "--results", str(tmp_path)]
    assert study(asked) == 2
    assert "ModuleNotFoundError" in capsys.readouterr().err


def test_each_code_is_asked_for_cells_of_its_tables() -> None:
    def planned(name: str, *argv: str) -> list[tuple[str, str, int]]:
        cells = plan(CODES[name], parse(["--seeds", "1", *argv]).request)
        return [(cell.partition.name, cell.label, cell.clients) for cell in cells]

    everywhere = planned("fedpub", "--dataset", "citeseer")
    assert len(everywhere) == 3 * 10
    assert {("metis-overlapping", "fedpub", 50), ("louvain", "local", 10), ("metis", "local", 3)} <= {
        *everywhere
    }
    assert planned(
        "fedpub", "--dataset", "cora", "--partition", "metis", "--clients", "20", "--method", "fedavg"
    ) == [("metis", "fedavg", 20)]
    chameleon = planned("fedstruct", "--dataset", "chameleon")
    assert ("random", "fedstruct[features=h2v]", 5) in chameleon
    # The whole graph has no clients: one run.
    assert [line for line in chameleon if line[1] == "central"] == [("random", "central", 10)]
    sprayed = ("--dataset", "pubmed", "--backbone", "gcn", "--method")
    for asked, label in {
        "fedspray": "fedspray",
        "fedspray[lambda1=5]": "fedspray",
        "fedspray[projector=received,lambda1=1]": "fedspray[lambda1=1,projector=received]",
    }.items():
        assert planned("fedspray", *sprayed, asked) == [("file", label, 7)]
    with pytest.raises(UserError, match="runs none of these cells"):
        planned("fedstruct", "--dataset", "amazon_photo")
    with pytest.raises(UserError, match="runs none of these cells"):
        planned("fedspray", *sprayed, "apfl")
    assert len(plan(CODES["fedpub"], parse(["--dataset", "citeseer"]).request)) == 5 * len(everywhere)


def test_checkouts_are_checked_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="public code"):
        chosen(("fedpup=.",))
    with pytest.raises(UserError, match="names no checkout of FedSpray's code"):
        chosen((f"fedspray={CHECKOUTS / 'fedstruct'}",))
    assert study([*PLAYED[:3], str(tmp_path / "python"), "--results", str(tmp_path)]) == 2


def test_a_checkout_is_known_by_its_commit_or_its_files(tmp_path: Path) -> None:
    code = tmp_path / "main.py"
    code.write_text("first")
    loose = version_of(tmp_path)
    assert loose.startswith("sha256:")
    code.write_text("second")
    assert version_of(tmp_path) != loose

    def git(*arguments: str) -> str:
        identity = ("-c", "user.name=n", "-c", "user.email=e", "-C", str(tmp_path))
        done = subprocess.run(["git", *identity, *arguments], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    assert version_of(tmp_path) == git("rev-parse", "HEAD")
    code.write_text("third")
    assert version_of(tmp_path) == git("rev-parse", "HEAD") + "-dirty"


def test_torn_and_foreign_lines_are_passed_over_and_the_latest_run_counts(tmp_path: Path) -> None:
    kept = AuthorsRuns(tmp_path, "fedpub")
    kept.add(make_run(0, 70.0))
    with kept.path.open("a") as file:
        file.write('{"code": "fedpub"}\n{"code": "fedp')
    again = AuthorsRuns(tmp_path, "fedpub")
    again.add(make_run(0, 71.0))
    again.add(make_run(0, 72.0, commit="def"))
    assert [run.metrics["accuracy"] for run in load(tmp_path)[make_cell().key]] == [71.0, 72.0]
    assert again.done(make_cell().key, "abc")
    assert not again.done(make_cell().key, "ghi")
    with pytest.raises(UserError, match="no result"):
        again.add(make_run(1, math.nan))


def test_a_run_without_a_number_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "run_one", lambda *given: make_run(0, math.nan))
    kept = AuthorsRuns(tmp_path, "fedpub")
    assert not command._kept_run(CODES["fedpub"], tmp_path, "abc", make_cell(), Path(sys.executable), kept)
    assert "no result" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("differences", "word"),
    [
        ((0.1, 0.3, 0.2), MATCHES),
        ((2.9, 3.1, 3.0), DIFFERS),
        ((-5.0, 0.0, 5.0), NEEDS_RUNS),
        ((0.1,), NEEDS_RUNS),
    ],
)
def test_ours_less_theirs_is_judged_by_students_interval(differences: tuple[float, ...], word: str) -> None:
    """t(0.95, 2) = 2.920; of 0.1, 0.2, 0.3 the mean is 0.2 and the half-width 2.920 · 0.1 / √3 = 0.1686."""
    runs = {make_cell(seed=k).key: [make_run(k, 50.0)] for k in range(len(differences))}
    records = [
        make_record(make_cell(seed=k), 50.0 + each, core_share=1.0) for k, each in enumerate(differences)
    ]
    overall = compare(runs, records)[0]
    assert overall.verdict.word == word
    if word == MATCHES:
        assert overall.verdict.interval == pytest.approx((0.0314, 0.3686), abs=1e-4)
    # Theirs 0.3 s a round; ours 3 s over 100 rounds.
    assert overall.speed == pytest.approx(0.3 / (3.0 / records[0].rounds))
    assert word in markdown(runs, rows_of(records))


def test_every_place_counts_the_same_over_all() -> None:
    """Of 0 and 1 with 5 clients the mean is 0.5, its variance 0.5 / 2, of four 2 with 10 clients they are
    2 and 0; a single 9 with 20 clients is left out. The mean of means is 1.25, its variance 0.25 / 4,
    with one degree of freedom: t(0.95, 1) = 6.314, half-width 6.314 · 0.25 = 1.578. The mean of the six
    is 1.5."""
    places = {5: (0.0, 1.0), 10: (2.0,) * 4, 20: (9.0,)}
    cells = {
        (n, seed): make_cell(clients=n, seed=seed)
        for n, draws in places.items()
        for seed in range(len(draws))
    }
    runs = {cell.key: [make_run(seed, 50.0, key=cell.key, clients=n)] for (n, seed), cell in cells.items()}
    records = [make_record(cell, 50.0 + places[n][seed]) for (n, seed), cell in cells.items()]
    overall = compare(runs, records)[0]
    assert overall.means == (51.25, 50.0)
    assert overall.verdict.interval == pytest.approx((1.25 - 1.578, 1.25 + 1.578), abs=1e-3)
    assert (overall.verdict.word, overall.verdict.count) == (NEEDS_RUNS, 6)
    assert "| 6 | 51.25 | 50.00 | +1.25" in markdown(runs, rows_of(records))


def test_runs_of_other_settings_are_compared_apart() -> None:
    """Two draws as the table has them, at two places, three of fewer rounds, at one of them."""
    asked = ("--table", "fedpub-2", "--dataset", "cora", "--method", "fedavg", "--clients")
    usual = plan(CODES["fedpub"], parse([*asked, "5", "10", "--seeds", "1"]).request)
    short = plan(CODES["fedpub"], parse([*asked, "5", "--seeds", "3", "--set", "rounds=7"]).request)
    runs = {
        cell.key: [make_run(cell.seed, 50.0, key=cell.key, clients=cell.clients)] for cell in (*usual, *short)
    }
    records = [make_record(cell, 52.0) for cell in usual] + [make_record(cell, 51.0) for cell in short]
    page = markdown(runs, make_rows(load_protocol("fedpub-2"), records))
    places = {
        "all": (2, 52),
        "cora, metis, 5 clients": (1, 52),
        "cora, metis, 10 clients": (1, 52),
        "cora, metis, 5 clients, rounds=7": (3, 51),
    }
    lines = [line for line in page.splitlines() if "| fedavg · gcn |" in line]
    assert [line.split(" | ")[0].removeprefix("| ") for line in lines] == [*places]
    for line, (draws, ours) in zip(lines, places.values(), strict=True):
        assert f"| {draws} | {ours}.00 | 50.00" in line


def test_seconds_of_a_crowded_run_are_not_compared() -> None:
    records = [make_record(make_cell(), core_share=1.0)]
    crowded = compare({records[0].key: [make_run(0, 50.0, core_share=0.5)]}, records)[0]
    assert crowded.speed is None


def test_a_draw_counts_where_both_have_a_score() -> None:
    """Ours lacks one metric in the second draw, and never took another."""
    cells = [make_cell(seed=k) for k in range(2)]
    theirs = {"accuracy": 58.0, "minority_accuracy": 40.0, "roc_auc": 80.0}
    runs = {cell.key: [replace(make_run(k, 58.0), metrics=theirs)] for k, cell in enumerate(cells)}
    scores: list[dict[str, float | None]] = [
        {"accuracy": 60.0, "minority_accuracy": 44.0},
        {"accuracy": 62.0, "minority_accuracy": None},
    ]
    records = [make_record(cell, metrics=found) for cell, found in zip(cells, scores, strict=True)]
    found = {each.metric: each.differences for each in compare(runs, records) if each.place is None}
    assert found == {"accuracy": [2.0, 4.0], "minority_accuracy": [4.0]}
    page = markdown(runs, rows_of(records))
    assert "| minority accuracy % | 1 | 44.00 | 40.00 | +4.00 |" in page
    assert "wait for our record" not in page


def test_runs_without_our_record_wait() -> None:
    assert (
        "Without a record of ours on the same clients: fedavg on cora, metis, 5 clients, seed 0."
        in markdown({"key": [make_run(0, 50.0)]}, [])
    )


def test_a_leaderboard_without_their_runs_has_no_column() -> None:
    protocol = load_protocol("fedpub-2")
    rows = make_rows(protocol, [make_record(make_cell(protocol="fedpub-2"))])
    assert "authors' code here" not in table_of(protocol, rows)[0]


def test_a_record_of_equal_work_in_another_table_answers_a_run(tmp_path: Path) -> None:
    place = ("citeseer", "random", 10, "fedstruct[features=h2v]")
    asked, equal = (
        next(
            cell
            for cell in grid_cells(load_protocol(table))
            if (cell.dataset.text, cell.partition.text, cell.clients, cell.variant) == place
        )
        for table in ("fedstruct-1", "fedstruct-7")
    )
    assert asked.key != equal.key
    Store(tmp_path, "fedstruct-7").append(make_record(equal, 66.0))
    AuthorsRuns(tmp_path, "fedstruct").add(
        Run(
            "fedstruct", "abc", asked.key, "fedstruct-1", *place, "graphsage", 0, 0, {"accuracy": 65.0}, 100,
            30.0, 0.95,
        )
    )  # fmt: skip
    records = Records(tmp_path)
    page = write_authors_page(tmp_path, records)
    assert page is not None
    assert "| 1 | 66.00 | 65.00 | +1.00 |" in page.read_text()
    assert "wait for our record" not in page.read_text()
    # So it does in the other table, of which the run was not asked.
    board = Leaderboard(load_protocol("fedstruct-7"), records.of_table("fedstruct-7", [equal]))
    leaderboard = full_tables(board, by_work(load(tmp_path), records))
    assert f"| 65.00 (1) {NEEDS_RUNS} |" in leaderboard


def test_the_run_that_was_made_last_counts(tmp_path: Path) -> None:
    """Also where an earlier commit was run again."""
    runs = AuthorsRuns(tmp_path, "fedpub")
    for commit, accuracy in (("a", 50.0), ("b", 60.0), ("a", 70.0)):
        runs.add(make_run(0, accuracy, commit=commit))
    (found,) = load(tmp_path).values()
    assert [run.metrics["accuracy"] for run in found] == [60.0, 70.0]
