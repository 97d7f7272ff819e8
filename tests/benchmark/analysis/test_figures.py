import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fedsub.benchmark.analysis.agreement import (
    CANNOT,
    DIFFERS,
    KEPT,
    MATCHES,
    NEEDS_RUNS,
    NOT_MEASURED,
    ONE_DRAW,
    OPEN,
    UNSETTLED,
    VANISHED,
)
from fedsub.benchmark.analysis.figures import Entry, make_entries
from fedsub.benchmark.analysis.public_code import AuthorsRuns, Run, load
from fedsub.benchmark.analysis.published import figures
from fedsub.benchmark.analysis.scores import Leaderboard, make_rows
from fedsub.benchmark.analysis.summary import Basis, basis
from fedsub.benchmark.cli.parser import parse
from fedsub.benchmark.records.record import Record
from fedsub.benchmark.report.leaderboard import verdicts_in_words
from fedsub.benchmark.report.site.data import Facts
from fedsub.benchmark.report.summaries import write_reproduction
from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.plan import make_plan
from fedsub.benchmark.spec.protocol import load_protocol, names
from fedsub.methods.core import registry
from tests.benchmark.fakes import make_record

SCORES: Mapping[str, tuple[float, ...]] = {
    "local": (79.9, 80.0, 80.1),
    "fedavg": (60.0, 69.0, 78.0),
    "fedpub": (81.4, 81.5, 81.6),
}
"""Method → score of each seed; printed are 79.94 ± 0.24, 69.19 ± 0.67 and 81.54 ± 0.12."""


def records_of(
    table: str, scores: Mapping[str, tuple[float, ...]], *argv: str, **results: Any
) -> list[Record]:
    """Return records of a table with made-up accuracies, one per seed; all have the fields `results`."""
    seeds = str(len(next(iter(scores.values()))))
    cells = make_plan(parse(["--table", table, "--method", *scores, "--seeds", seeds, *argv]).request).cells
    return [
        make_record(
            cell,
            scores[cell.label][cell.seed],
            default_options=asdict(registry.make_options(cell.method, dict(cell.options))),
            **results,
        )
        for cell in cells
    ]


def entries_of(**records: Sequence[Record]) -> list[Entry]:
    """Every printed figure, with records of the tables that answer some."""
    given = {name.replace("_", "-"): found for name, found in records.items()}
    return make_entries(Leaderboard(load_protocol(name), found) for name, found in given.items())


def entry_of(entries: Sequence[Entry], *place: str) -> Entry:
    """Return the entry of the printed figure whose place begins with `place`."""
    (found,) = (entry for entry in entries if entry.figure.place[: len(place)] == place)
    return found


TABLE_2 = ("FED-PUB", "2", "Cora", "metis", "10")
PLACE = ("--dataset", "cora", "--clients", "10")


@pytest.fixture(scope="module")
def entries() -> list[Entry]:
    return entries_of(**dict.fromkeys(names(), ()) | {"fedpub-2": records_of("fedpub-2", SCORES, *PLACE)})


def test_every_printed_figure_has_one_entry(entries: list[Entry]) -> None:
    listed = [figure for group in figures().values() for figure in group]
    assert [(entry.figure.place, entry.figure.note) for entry in entries] == [
        (figure.place, figure.note) for figure in listed
    ]
    assert len(listed) > 1200
    assert sum(entry.row is not None for entry in entries) == 3


@cache
def planned(*argv: str) -> dict[str, Cell]:
    return {cell.key: cell for cell in make_plan(parse(argv).request).cells}


def planned_by(entry: Entry) -> dict[str, Cell]:
    program, *argv = shlex.split(entry.command)[2:]
    assert program == "benchmark"
    return planned(*argv)


def test_a_command_runs_the_cells_of_its_figure_and_no_others(entries: list[Entry]) -> None:
    """Tests one figure of every table and method; the next test covers scores that compare cells."""
    compared = ("gain_over", "change_from", "communication", "model_size")
    own = [entry for entry in entries if entry.command and not entry.metric.startswith(compared)]
    chosen = {entry.protocol: entry for entry in own} | {entry.point["method"]: entry for entry in own}
    assert len(chosen) > 100
    for entry in chosen.values():
        seeds = load_protocol(entry.protocol).seeds if entry.row is None else len(entry.row.records)
        whole = planned("--table", entry.protocol, "--seeds", str(seeds), "--dataset", entry.point["dataset"])
        expected = {key for key, cell in whole.items() if cell.point == entry.point}
        assert len(expected) == seeds
        assert set(planned_by(entry)) == expected, entry.command


def test_a_command_runs_what_the_figure_is_compared_with(entries: list[Entry]) -> None:
    def of(*place: str) -> list[tuple[str, str]]:
        cells = planned_by(entry_of(entries, *place)).values()
        return [*dict.fromkeys((cell.label, str(cell.partition)) for cell in cells)]

    kmeans = "kmeans[balanced=false]"
    gain = of("FedCog", "text 5.2", "Cora", "kmeans", "100", "FedCog")
    assert gain == [("fedcog", kmeans), ("fedavg", kmeans)]
    change = of("FedCog", "text 5.2", "Cora", "metis->kmeans", "100", "FedAvg change kmeans-metis")
    assert change == [("fedavg", kmeans), ("fedavg", "metis")]
    share = ("FED-PUB", "3", "Cora", "metis-overlapping", "10", "GCFL", "", "communication_pct_of_fedavg")
    assert [method for method, _ in of(*share)] == ["gcfl", "fedavg"]


def test_a_method_that_is_its_baseline_in_every_run_gains_exactly_nothing() -> None:
    scores = {"local": SCORES["local"], "gcfl": SCORES["local"]}
    gain = entry_of(entries_of(fedpub_2=records_of("fedpub-2", scores, *PLACE)), *TABLE_2, "GCFL").gain
    assert gain is not None
    assert (gain.word, gain.compared) == (VANISHED, pytest.approx((0.0, 78.66 - 79.94)))


def test_the_authors_code_stands_beside_our_figures(tmp_path: Path) -> None:
    records = records_of("fedpub-2", SCORES, *PLACE)
    runs = AuthorsRuns(tmp_path, "fedpub")
    own = [run_of(record, 79.0 + record.cell.seed) for record in records if record.cell.method == "local"]
    # The third run is on other clients, left over from an earlier version of the partition.
    for run in (*own[:2], msgspec.structs.replace(own[2], key="gone")):
        runs.add(run)
    theirs = load(tmp_path)
    entries = make_entries([Leaderboard(load_protocol("fedpub-2"), records)], theirs)
    # 79.9 − 79 and 80 − 80: mean 0.45, standard error 0.45, t(1) at 99 % 31.8205.
    found = entry_of(entries, *TABLE_2, "Local").to_dict()["authors"]
    assert (found["mean"], found["seeds"], found["difference"]) == (79.5, 2, pytest.approx(0.45))
    assert found["interval"] == pytest.approx([0.45 - 14.3192, 0.45 + 14.3192], abs=1e-4)
    assert found["verdict"] == NEEDS_RUNS
    assert entry_of(entries, *TABLE_2, "FedAvg").authors is None
    page = write_reproduction(tmp_path, entries)[1].read_text()
    assert f"ran on the clients of 1 levels (1 {NEEDS_RUNS})" in page


@pytest.mark.parametrize(
    ("theirs", "answer", "far", "near"),
    [
        ((79.8, 80.0, 80.1), (MATCHES, True), 0, 0),
        ((79.0, 80.0, 81.0), (MATCHES, False), 0, 0),  # The code does not decide, and its mean is ours.
        ((77.0, 79.0, 81.0), (MATCHES, False), 0, 0),
        ((76.0, 78.0, 81.0), (NEEDS_RUNS, True), 0, 0),  # It does not decide, and is 1.67 points away.
        ((77.9, 78.0, 78.1), (DIFFERS, True), 0, 1),
    ],
)
def test_the_authors_code_decides_or_casts_doubt_on_a_match(
    theirs: tuple[float, ...], answer: tuple[str, bool], far: int, near: int
) -> None:
    found = entry_beside(SCORES["local"], theirs)
    assert found.level.word == MATCHES
    assert found.answer == answer
    assert found.to_dict()["verdict"] == answer[0]
    assert (basis([found]).far, basis([found]).near) == (far, near)


def test_a_match_by_the_authors_code_may_be_far_from_print() -> None:
    found = entry_beside((69.9, 70.0, 70.1), (69.8, 70.0, 70.1))
    assert (found.level.word, found.answer) == (DIFFERS, (MATCHES, True))
    # The same score may answer several figures.
    assert basis([found, found]) == Basis({MATCHES: 1}, 2, 0)


def entry_beside(ours: tuple[float, ...], theirs: tuple[float, ...]) -> Entry:
    """Return the entry of Local, beside runs of the authors' code on its clients."""
    records = records_of("fedpub-2", {"local": ours}, *PLACE)
    runs = {record.key: [run_of(record, score)] for record, score in zip(records, theirs, strict=True)}
    return entry_of(make_entries([Leaderboard(load_protocol("fedpub-2"), records)], runs), *TABLE_2, "Local")


def run_of(record: Record, score: float) -> Run:
    """Return a run of the authors' code on the clients of a record."""
    place = ("fedpub-2", "cora", "metis", 10, "local", "gcn", record.cell.seed, record.cell.seed)
    return Run("fedpub", "c0ffee", record.key, *place, {"accuracy": score}, 100, 50.0, 0.99)


def test_levels_and_gains_are_judged(entries: list[Entry]) -> None:
    local, fedavg, fedpub = (entry_of(entries, *TABLE_2, name) for name in ("Local", "FedAvg", "FED-PUB"))
    words = [entry.level.word for entry in (local, fedavg, fedpub)]
    assert words == [MATCHES, UNSETTLED, MATCHES]
    assert fedavg.level.reason == ONE_DRAW
    assert local.gain is None
    # 81.5 − 80 measured, 81.54 − 79.94 printed; the gain is the same for all seeds, which decides nothing.
    assert fedpub.gain is not None
    assert (fedpub.gain.word, fedpub.gain.compared) == (OPEN, pytest.approx((1.5, 1.6)))
    assert fedavg.gain is not None
    assert fedavg.gain.word == OPEN


def test_gains_are_paired_by_seed() -> None:
    """Draws that shift both methods by ten points leave the level undecided, but the gain is decided."""
    scores = {"local": (70.0, 80.0, 90.0), "fedpub": (71.5, 81.7, 91.6)}
    found = entry_of(entries_of(fedpub_2=records_of("fedpub-2", scores, *PLACE)), *TABLE_2, "FED-PUB")
    assert found.level.word == UNSETTLED
    assert found.gain is not None
    assert found.gain.word == KEPT
    # Standard deviation 0.1, standard error 0.0577; 3.6766·√(10/3) = 6.7125.
    assert found.gain.interval == pytest.approx((1.6 - 0.3875, 1.6 + 0.3875), abs=1e-4)


def test_clients_that_are_drawn_once_here_decide_nothing_and_come_second() -> None:
    once = records_of("fedpub-2-once", SCORES, *PLACE)
    alone = entry_of(entries_of(fedpub_2_once=once), *TABLE_2, "FED-PUB")
    assert (alone.protocol, alone.level.word) == ("fedpub-2-once", NEEDS_RUNS)
    assert "one draw of the clients here" in alone.level.reason
    both = entries_of(fedpub_2_once=once, fedpub_2=records_of("fedpub-2", SCORES, *PLACE))
    assert entry_of(both, *TABLE_2, "FED-PUB").protocol == "fedpub-2"
    facts = Facts([Leaderboard(load_protocol("fedpub-2-once"), once)], {}, both, (), ())
    (listed,) = facts.tables["fedpub-2-once"].values()
    assert {said[0] for each in listed if (said := facts.verdict_of(each))} == {NEEDS_RUNS}


def test_what_is_not_measured_says_why(entries: list[Entry]) -> None:
    assert entry_of(
        entries, "FedCog", "3", "DBLP", "metis or kmeans (unsaid)", "100", "Centralized"
    ).level.reason
    assert entry_of(entries, "FED-PUB", "2", "Cora", "metis", "5", "Local").level.word == NOT_MEASURED
    arxiv = entry_of(entries, "FED-PUB", "2", "ogbn-arxiv", "metis", "5", "Local")
    assert arxiv.level.word == CANNOT
    assert "files could not be had" in arxiv.level.reason
    for entry in entries:
        assert entry.level.word != CANNOT or entry.level.reason


def test_seconds_are_compared_with_no_other_machines() -> None:
    argv = ["--table", "fedcog-3", "--dataset", "dblp", "--seeds", "3"]
    cells = make_plan(parse(argv).request).cells
    shared = {"propagation_seconds": 1.47, "update_seconds": 0.938, "seconds_ratio_to_central": 0.69}
    entries = entries_of(fedcog_3=[make_record(cell, extras=shared) for cell in cells])
    levels = [entry.level for entry in entries if entry.figure.place[:3] == ("FedCog", "3", "DBLP")]
    assert [level.word for level in levels] == [CANNOT] * 6
    assert all(level.reason and level.difference is None for level in levels)
    protocol = load_protocol("fedcog-3")
    rows = make_rows(protocol, [make_record(cell, extras=shared) for cell in cells])
    assert verdicts_in_words(protocol, rows).startswith("None of the published figures is judged")


def test_a_row_that_deviates_answers_nothing() -> None:
    deviating = records_of("fedpub-2", SCORES, *PLACE, "--rounds", "5")
    assert all(entry.row is None for entry in entries_of(fedpub_2=deviating))


def test_one_division_for_every_seed_decides_nothing() -> None:
    """METIS does so with few nodes: the spread then says nothing about other clients, printed or not."""
    same = {"partition_statistics": {"intra_edges": 3017, "clients": 10}}
    entry = entry_of(entries_of(fedpub_2=records_of("fedpub-2", SCORES, *PLACE, **same)), *TABLE_2, "Local")
    assert (entry.level.word, entry.level.reason) == (
        NEEDS_RUNS,
        "all seeds share one draw of the clients here",
    )


PRINTED_AND = {"local": SCORES["local"], "fedavg": (60.0, 69.0, 78.0), "fedprox": (80.0, 81.0, 82.0)}


def entries_with(further: Sequence[Record]) -> list[Entry]:
    return entries_of(fedpub_2=[*records_of("fedpub-2", PRINTED_AND, *PLACE), *further])


def test_other_settings_are_a_trial_whose_gain_is_over_the_baseline_with_the_same() -> None:
    # 62 − 60 and 73 − 69: +3 on the seeds that both have; 62 − 50 and 73 − 51: +17 over Local.
    changed = records_of(
        "fedpub-2", {"local": (50.0, 51.0), "fedavg": (62.0, 73.0)}, *PLACE, "--set", "rounds=7"
    )
    (trial,) = entry_of(entries_with(changed), *TABLE_2, "FedAvg").trials
    assert (trial.changed, trial.mean, trial.seeds) == ("rounds=7", 67.5, 2)
    assert (trial.difference, trial.gain) == (pytest.approx(3.0), pytest.approx(17.0))


def test_other_options_are_a_trial_of_their_method_alone() -> None:
    variant = records_of("fedpub-2", {"fedprox[mu=0.5]": (70.0,)}, *PLACE)
    entries = entries_with(variant)
    assert entry_of(entries, *TABLE_2, "FedProx").to_dict()["trials"] == [
        {"changed": "mu=0.5", "mean": 70.0, "seeds": 1, "difference": -10.0, "gain": pytest.approx(-9.9)}
    ]
    assert entry_of(entries, *TABLE_2, "FedAvg").trials == ()


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
        assert (trial.changed, trial.difference) == ("rule=similarity", -3.0)
        gains[entry.figure.place[1], entry.figure.baseline] = trial.gain
    assert gains["1", "local"] == pytest.approx(2.0)
    assert gains["3", "fedavg"] == pytest.approx(-2.0)


def test_a_whole_model_is_measured_by_what_is_sent() -> None:
    """FED-PUB's Table 3 prints 100.00 ± 0.00 for the methods without masks."""
    scores = dict.fromkeys(("fedavg", "fedgnn", "fedsage+", "gcfl"), (70.0, 71.0, 72.0))
    entries = entries_of(fedpub_3=records_of("fedpub-3", scores, *PLACE))
    for name in ("FedAvg", "FedGNN", "FedSage+", "GCFL"):
        size = entry_of(
            entries, "FED-PUB", "3", "Cora", "metis-overlapping", "10", name, "", "model_size_pct"
        )
        assert (size.level.word, size.level.difference) == (MATCHES, 0.0)
        assert {cell.label for cell in planned_by(size).values()} == {"fedavg", size.point["method"]}


def test_a_record_that_does_not_hold_the_score_is_not_measured() -> None:
    empty = records_of("fedpub-2", SCORES, *PLACE, metrics={})
    assert all(entry.row is None for entry in entries_of(fedpub_2=empty))
