"""The campaign: three seeds of everything, what decides most per second first, then what more decides."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fedsub.benchmark.analysis.agreement import DIFFERS, POINTS, UNDECIDED, Printed, judge
from fedsub.benchmark.analysis.claims import load_claims
from fedsub.benchmark.cli.arguments import parse
from fedsub.benchmark.cli.commands import main
from fedsub.benchmark.execution.estimate import Estimate
from fedsub.benchmark.execution.runner import failed
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.records.record import Record
from fedsub.benchmark.records.store import Store
from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.plan import grid_cells
from fedsub.benchmark.spec.protocol import load_protocol
from fedsub.benchmark.studies import campaign
from fedsub.benchmark.studies.campaign import claim_steps, figures_of, first_steps, further_steps, standing
from fedsub.methods.core import registry
from tests.benchmark.fakes import make_cell, make_record

TABLE = "fedpub-8"


@pytest.fixture(autouse=True)
def _graphs_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign.graphs, "is_available", lambda name: True)


def run(folder: Path, *argv: str, work: campaign.RunCell) -> int:
    given = ["--campaign", "--table", TABLE, "--engine", "in-process", "--workers", "1"]
    return main(parse([*given, "--results", str(folder), *argv]), work)


def test_rows_that_measure_most_per_second_come_first_with_their_three_seeds(tmp_path: Path) -> None:
    protocol = load_protocol(TABLE)
    cells = grid_cells(protocol)
    figures = figures_of([(protocol, cells)])
    assert len(figures) == 3 * 8
    slow = [make_record(dataclasses.replace(cell, seed=9)) for cell in cells if cell.dataset.text == "pubmed"]
    fast = [
        make_record(dataclasses.replace(cell, seed=9), seconds={"train": 1.0})
        for cell in cells
        if cell.dataset.text != "pubmed"
    ]
    steps = first_steps(figures, Records(tmp_path), Estimate([*slow, *fast]))
    assert [len(step.cells) for step in steps] == [3] * 24
    assert {cell.seed for cell in steps[0].cells} == {0, 1, 2}
    assert [step.cells[0].dataset.text == "pubmed" for step in steps] == [False] * 16 + [True] * 8
    assert [step.seconds for step in steps] == sorted(step.seconds for step in steps)


def test_a_row_that_measures_several_figures_is_worth_its_seconds(tmp_path: Path) -> None:
    cheap, dear = make_cell(rounds=1), make_cell(rounds=2)
    (figure, *_) = figures_of([(protocol := load_protocol(TABLE), grid_cells(protocol))])
    figures = [dataclasses.replace(figure, cells=(cell,)) for cell in (cheap, dear, dear, dear)]
    estimate = Estimate([make_record(cheap, seconds={"setup": 0.0, "train": 1.0})])
    steps = first_steps(figures, Records(tmp_path), estimate)
    found = [(step.cells[0].schedule.rounds, step.figures, step.seconds) for step in steps]
    assert found == [(2, 3, 6.0), (1, 1, 3.0)]


def test_a_figure_is_measured_by_clients_drawn_anew_then_by_its_own_table() -> None:
    tables = ("fedaux-1", "fedpub-2", "fedpub-2-once", "all-methods")
    grids = {name: (protocol := load_protocol(name), grid_cells(protocol)) for name in tables}

    def measured_by(*names: str) -> dict[campaign.Identity, str]:
        found = figures_of([grids[name] for name in names])
        return {figure.identity: figure.cells[0].protocol for figure in found}

    answers = {name: measured_by(name).keys() for name in tables}
    for own, other in (
        ("fedpub-2", "fedpub-2-once"),
        ("fedpub-2", "fedaux-1"),
        ("fedaux-1", "fedpub-2-once"),
        # Of two that are as good the one that gathers fewer methods.
        ("fedpub-2", "all-methods"),
    ):
        shared = answers[own] & answers[other]
        assert len(shared) > 10
        for order in ((own, other), (other, own)):
            found = measured_by(*order)
            assert {found[identity] for identity in shared} == {own}


def test_a_dry_run_prints_the_order_and_the_hours_and_leaves_no_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def never(cell: Cell) -> Record:
        raise AssertionError("a cell ran")

    assert run(tmp_path / "new", "--dry-run", work=never) == 0
    captured = capsys.readouterr()
    assert captured.out.count("\n") == 24 * 3
    assert "0 of 24 measurable figures measured, 0 decided; 72 cells to go, about 12 min" in captured.err
    assert not (tmp_path / "new").exists()


def test_filters_take_the_figures_of_such_cells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cells = {cell.variant for cell in grid_cells(load_protocol(TABLE))}
    assert run(tmp_path, "--dry-run", "--dataset", "cora", "--method", "fedgnn", work=make_record) == 0
    captured = capsys.readouterr()
    assert "0 of 1 measurable" in captured.err
    assert all(" cora " in line for line in captured.out.splitlines())
    assert {variant for variant in cells if f" {variant} " in captured.out} == {"fedgnn"}


def test_a_variant_that_some_tables_cannot_run_takes_the_figures_of_those_that_can(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its width has no effect in the GCN of FED-PUB's table."""
    argv = ("--table", "fedcog-3", "--method", "fedcog[hidden=100,timing=true]")
    assert run(tmp_path, "--dry-run", *argv, work=make_record) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines
    assert all("fedcog-3: " in line for line in lines)


def test_a_dry_run_says_the_hours_of_all_workers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hours = {}
    for workers in ("1", "2"):
        assert run(tmp_path, "--dry-run", "--workers", workers, work=make_record) == 0
        captured = capsys.readouterr()
        hours[workers] = float(captured.out.splitlines()[-1].split()[1])
        assert f"about {12 // int(workers)} min" in captured.err
    # 72 cells of 10 s.
    assert hours == {"1": 0.2, "2": 0.1}


@pytest.mark.parametrize("argv", [["--method", "fedavgg"], ["--clients", "7"], ["--dataset", "texas"]])
def test_filters_that_no_figure_answers_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], argv: list[str]
) -> None:
    assert run(tmp_path, "--dry-run", *argv, work=make_record) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert "no printed figure" in captured.err or "fedavg" in captured.err


def test_it_measures_everything_then_decides_what_it_can_and_goes_on_where_it_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[Cell] = []

    def work(cell: Cell) -> Record:
        ran.append(cell)
        if len(ran) == 30:
            raise KeyboardInterrupt
        # Spreads of all sizes, so that some figures are decided by three seeds and some by more or by none.
        spread = 1 + len(ran) % 7
        return measured(cell, cell.seed, 60.0 + (-spread, spread, 0.0)[cell.seed % 3])

    assert run(tmp_path, work=work) == 130
    assert run(tmp_path, work=work) == 0
    assert Counter(Counter(cell.key for cell in ran).values()).keys() <= {1, 2}
    assert sum(Counter(cell.key for cell in ran).values()) == len({cell.key for cell in ran}) + 1
    first = [cell.seed for cell in ran if cell.seed < 3]
    assert len(first) == 24 * 3 + 1
    protocol = load_protocol(TABLE)
    grids = [(protocol, grid_cells(protocol))]
    records = Records(tmp_path)
    found = standing(grids, records)
    assert found.measured == 24
    figures = figures_of(grids)
    assert not first_steps(figures, records, Estimate([]))
    assert not further_steps(figures, found.entries, records, Estimate([]))
    before = len(ran)
    assert run(tmp_path, work=work) == 0
    assert len(ran) == before
    assert "24 of " in capsys.readouterr().err
    assert (tmp_path / "leaderboards" / f"{TABLE}.md").exists()


def test_while_cells_run_it_says_how_many_are_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign, "TELL_EVERY", 0.0)
    asked = ("--dataset", "cora", "--method", "fedgnn")
    assert run(tmp_path, *asked, work=make_record) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("campaign: ")]
    assert [line.split("; ")[1].split(" ")[0] for line in said] == ["3", "2", "1", "0", "0"]
    # It counts the figures that were asked for, not all that the table answers.
    assert said[0].startswith("campaign: 0 of 1 measurable figures measured, ")
    assert said[-1].startswith("campaign: 1 of 1 measurable figures measured, ")


def test_an_undecided_gain_asks_for_seeds_of_its_row_and_of_the_baseline(tmp_path: Path) -> None:
    """FedAvg's own scores hardly spread, which decides its level; those of Local, the baseline, do."""
    protocol = load_protocol(TABLE)
    grids = [(protocol, grid_cells(protocol))]
    store = Store(tmp_path, protocol.name)
    for cell in grids[0][1]:
        for seed in range(3):
            score = 75.0 + 4 * (seed - 1) if cell.method == "local" else 60.0 + seed / 10
            store.append(make_record(dataclasses.replace(cell, seed=seed), score))
    records = Records(tmp_path)
    entries = standing(grids, records).entries
    (figure,) = [
        figure
        for figure in figures_of(grids)
        if figure.cells[0].method == "fedavg" and figure.cells[0].dataset.text == "cora"
    ]
    entry = entries[figure.identity]
    assert entry.level.word == DIFFERS
    assert entry.gain is not None
    assert (entry.gain.word, entry.gain.seeds) == (UNDECIDED, 4)
    (step,) = further_steps([figure], entries, records, Estimate([]))
    assert {(cell.method, cell.seed) for cell in step.cells} == {("fedavg", 3), ("local", 3)}
    ten = dataclasses.replace(entry, gain=dataclasses.replace(entry.gain, seeds=10))
    (step,) = further_steps([figure], {figure.identity: ten}, records, Estimate([]))
    assert {cell.seed for cell in step.cells} == set(range(3, 10))
    many = dataclasses.replace(entry, gain=dataclasses.replace(entry.gain, seeds=11))
    assert not further_steps([figure], {figure.identity: many}, records, Estimate([]))
    # 1.9 of 2 points away, which no spread of the print's lets one tell: seeds may move the difference.
    near = judge([82.8, 81.8, 83.8], Printed(80.9, (0.6,), 3), POINTS)
    assert (near.word, near.seeds) == (UNDECIDED, None)
    both = dataclasses.replace(many, level=near)
    (step,) = further_steps([figure], {figure.identity: both}, records, Estimate([]))
    assert {(cell.method, cell.seed) for cell in step.cells} == {("fedavg", seed) for seed in range(3, 10)}
    # What seeds decide as it stands comes before what they must move first.
    steps = further_steps(
        [figure], {figure.identity: dataclasses.replace(entry, level=near)}, records, Estimate([])
    )
    assert [{cell.method for cell in step.cells} for step in steps] == [{"fedavg", "local"}, {"fedavg"}]


def test_seconds_of_a_shared_core_are_measured_again_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of three seeds one had its core to itself; of those that are run again one has."""
    protocol = load_protocol("fedcog-3")
    (cell,) = (cell for cell in grid_cells(protocol) if cell.dataset.text == "dblp")
    extras = {"propagation_seconds": 1.0, "propagation_seconds_central": 0.7, "update_seconds": 0.5}
    store = Store(tmp_path, protocol.name)
    for seed, share in enumerate((1.0, 0.5, 0.6)):
        store.append(measured(cell, seed, 80.0, core_share=share, extras=extras))
    argv = ["--campaign", "--table", protocol.name, "--dataset", "dblp", "--engine", "in-process"]
    argv += ["--results", str(tmp_path)]
    ran: list[int] = []

    def work(cell: Cell) -> Record:
        ran.append(cell.seed)
        share = 1.0 if cell.seed == 1 else 0.7
        return measured(cell, cell.seed, 80.0, core_share=share, extras=extras)

    assert main(parse([*argv, "--dry-run"]), work) == 0
    assert "; 2 cells to go" in capsys.readouterr().err
    assert main(parse(argv), work) == 0
    assert ran == [1, 2]
    # The next campaign tries the one that is left, and no more.
    assert main(parse(argv), work) == 0
    assert ran == [1, 2, 2]
    records = [Records(tmp_path).get(dataclasses.replace(cell, seed=seed)) for seed in range(3)]
    assert [record and record.result.core_share for record in records] == [1.0, 1.0, 0.7]


def test_scores_that_are_no_seconds_count_on_a_shared_core(tmp_path: Path) -> None:
    protocol = load_protocol(TABLE)
    cells = grid_cells(protocol)
    figures = figures_of([(protocol, cells)])
    assert not any(figure.timed for figure in figures)
    store = Store(tmp_path, protocol.name)
    for cell in cells:
        for seed in range(3):
            store.append(measured(cell, seed, 60.0, core_share=0.5))
    assert not first_steps(figures, Records(tmp_path), Estimate([]))
    timed = [dataclasses.replace(figure, timed=True) for figure in figures]
    assert sum(len(step.cells) for step in first_steps(timed, Records(tmp_path), Estimate([]))) == 3 * 24


def test_when_its_hours_are_over_it_begins_nothing(tmp_path: Path) -> None:
    ran: list[Cell] = []

    def work(cell: Cell) -> Record:
        ran.append(cell)
        return make_record(cell)

    assert run(tmp_path, "--hours", "1e-12", work=work) == 0
    assert not ran


def test_a_cell_that_fails_is_named_and_not_tried_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[str] = []

    def work(cell: Cell) -> Record:
        ran.append(cell.key)
        return failed(cell, "it was told to fail") if cell.method == "gcfl" else make_record(cell)

    assert run(tmp_path, work=work) == 1
    assert len(ran) == len({*ran})
    assert capsys.readouterr().err.count("it was told to fail") >= 9


def test_what_fails_elsewhere_meanwhile_is_not_tried_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[Cell] = []

    def work(cell: Cell) -> Record:
        if not ran:
            lost = dataclasses.replace(cell, seed=2)
            Store(tmp_path, cell.protocol).append(failed(lost, "it failed elsewhere"))
        ran.append(cell)
        return make_record(cell)

    assert run(tmp_path, "--dataset", "cora", "--method", "fedgnn", work=work) == 1
    assert [cell.seed for cell in ran] == [0, 1]
    assert "it failed elsewhere" in capsys.readouterr().err


def test_what_fails_in_one_table_is_not_tried_for_another(tmp_path: Path) -> None:
    ran: Counter[Any] = Counter()

    def work(cell: Cell) -> Record:
        ran[cell.work] += 1
        return failed(cell, "it was told to fail")

    argv = ("--table", "fedpub-2", "fedaux-1", "--dataset", "cora", "--method", "fedpub")
    assert run(tmp_path, *argv, work=work) == 1
    assert {*ran.values()} == {1}


def measured(cell: Cell, seed: int, score: float, **results: Any) -> Record:
    """A record of the cell with the method's own options."""
    every = dataclasses.asdict(registry.make_options(cell.method, dict(cell.options)))
    return make_record(dataclasses.replace(cell, seed=seed), score, default_options=every, **results)


def test_an_undecided_claim_goes_on_to_ten_seeds_of_both_sides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FED-PUB is ahead of masks alone for certain, of similarities alone by about as much as it spreads where
    clients do not overlap; where they do, nothing is measured."""
    protocol = load_protocol("fedpub-fig7")
    grids = [(protocol, grid_cells(protocol))]
    cells = {cell.variant: cell for cell in grids[0][1] if cell.partition.text == "metis"}
    scores = {"fedpub": 72.0, "fedpub[masks=false]": 70.5, "fedpub[similarity=none]": 60.0}
    (claim,) = (claim for claim in load_claims() if claim.says == "Both together are better than either.")
    monkeypatch.setattr(campaign, "load_claims", lambda: (claim,))
    store = Store(tmp_path, protocol.name)
    for variant, score in scores.items():
        for seed in range(3):
            spread = seed - 1 if variant == "fedpub" else (1 - seed) / 10
            store.append(measured(cells[variant], seed, score + spread))
    records = Records(tmp_path)

    def steps(*asked: str) -> dict[str, set[tuple[str, int]]]:
        keys = {cells[variant].key for variant in asked} if asked else None
        return {
            step.cells[0].partition.text + step.cells[-1].variant: {(c.variant, c.seed) for c in step.cells}
            for step in claim_steps(grids, records, Estimate([]), keys)
        }

    further = {(variant, seed) for variant in ("fedpub", "fedpub[masks=false]") for seed in range(3, 10)}
    assert steps("fedpub") == {"metisfedpub[masks=false]": further}
    assert not steps("fedpub[masks=false]")
    first = {
        f"metis-overlapping{other}": {(variant, seed) for variant in ("fedpub", other) for seed in range(3)}
        for other in ("fedpub[masks=false]", "fedpub[similarity=none]")
    }
    assert steps() == {"metisfedpub[masks=false]": further, **first}
    assert not claim_steps([(load_protocol(TABLE), [])], records, Estimate([]))
    monkeypatch.setattr(campaign.graphs, "is_available", lambda name: False)
    assert not steps()


@pytest.mark.parametrize(("spread", "planned"), [(0.266, True), (0.05, False), (3.0, False)])
def test_what_decides_by_itself_goes_on_where_that_decides_the_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spread: float, planned: bool
) -> None:
    """Of four columns three hold and one fails: −0.6 ± 0.266 with three seeds at 3 %, which is too little for
    one of four, and with ten at far less. With a spread of 0.05 three seeds refute the claim, with one of 3
    no ten do."""
    protocol = load_protocol("fedpub-fig7")
    grids = [(protocol, grid_cells(protocol))]
    (claim,) = (claim for claim in load_claims() if claim.says.startswith("Similarity alone and masks alone"))
    monkeypatch.setattr(campaign, "load_claims", lambda: (claim,))
    store = Store(tmp_path, protocol.name)
    failing = ("metis", "fedpub[masks=false]")
    for cell in grids[0][1]:
        for seed in range(3):
            # FedAvg's seeds differ, or they would be copies of one run; what is paired with them too.
            score = 60.0 + seed
            if (cell.partition.text, cell.variant) == failing:
                score += -0.6 + spread * (seed - 1)
            elif cell.method != "fedavg":
                score += 5 + 0.01 * (seed - 1)
            store.append(measured(cell, seed, score))
    steps = claim_steps(grids, Records(tmp_path), Estimate([]))
    wanted = {(cell.partition.text, cell.variant, cell.seed) for step in steps for cell in step.cells}
    both = (failing, ("metis", "fedavg"))
    assert wanted == {(*place, seed) for place in both for seed in range(3, 10) if planned}


def test_a_claim_that_no_record_answers_gets_its_first_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    protocol = load_protocol("fedpub-fig1")
    grids = [(protocol, grid_cells(protocol))]
    (claim,) = (claim for claim in load_claims() if claim.tables == {protocol.name})
    monkeypatch.setattr(campaign, "load_claims", lambda: (claim,))
    store = Store(tmp_path, protocol.name)
    for done in (0, 1):
        found = claim_steps(grids, Records(tmp_path), Estimate([]))
        wanted = {cell for step in found for cell in step.cells}
        assert {(cell.method, cell.seed) for cell in wanted} == {
            (method, seed) for method in ("fedpub", "fedgnn", "fedsage+", "fedper") for seed in range(done, 3)
        }
        for cell in wanted:
            scores = dict.fromkeys(claim.contrasts[0].metric, 80.0 + 9 * (cell.method == "fedpub"))
            if cell.seed == done or done == 1:
                store.append(measured(cell, cell.seed, 80.0, metrics=scores))
    assert not claim_steps(grids, Records(tmp_path), Estimate([]))


def test_a_table_that_claims_alone_read_is_run_too(tmp_path: Path) -> None:
    """FED-PUB's Figure 1 prints no number; one claim reads it."""
    metrics = load_protocol("fedpub-fig1").metrics
    ran: list[Cell] = []

    def work(cell: Cell) -> Record:
        ran.append(cell)
        return measured(
            cell, cell.seed, 80.0, metrics=dict.fromkeys(metrics, 80.0 + (cell.method == "fedpub"))
        )

    asked = ["--campaign", "--table", "fedpub-fig1", "--engine", "in-process", "--results", str(tmp_path)]
    assert main(parse(asked), work) == 0
    assert {(cell.method, cell.seed) for cell in ran} == {
        (method, seed) for method in ("fedpub", "fedgnn", "fedsage+", "fedper") for seed in range(3)
    }
    assert main(parse(asked), work) == 0
    assert len(ran) == 12


@pytest.mark.parametrize("argv", [[], ["--table", "fedspray-fig4"]])
def test_without_a_graph_at_hand_the_folder_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, argv: list[str]
) -> None:
    monkeypatch.setattr(campaign.graphs, "is_available", lambda name: str(name).startswith("synthetic"))
    assert main(parse(["--campaign", "--dry-run", "--results", str(tmp_path), *argv])) == 2
    assert "FEDSUB_DATA" in capsys.readouterr().err


def test_a_claim_on_average_takes_every_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    protocol = load_protocol("fedpub-1")
    grids = [(protocol, grid_cells(protocol))]
    (claim,) = (claim for claim in load_claims() if claim.says.startswith("Personalised models"))
    monkeypatch.setattr(campaign, "load_claims", lambda: (claim,))
    store = Store(tmp_path, protocol.name)
    for cell in grids[0][1]:
        for seed in range(3):
            ours, theirs = 62 + 4 * (seed - 1), 60 + (seed - 1)
            store.append(measured(cell, seed, ours if cell.method in claim.contrasts[0].method else theirs))
    steps = claim_steps(grids, Records(tmp_path), Estimate([]))
    columns = {(cell.dataset.text, cell.clients) for cell in grids[0][1]}
    assert steps
    for step in steps:
        assert {(cell.dataset.text, cell.clients) for cell in step.cells} == columns
        assert {cell.seed for cell in step.cells} == set(range(3, 10))


def test_a_mean_over_some_columns_gets_the_first_seeds_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    protocol = load_protocol("fedpub-1")
    grids = [(protocol, grid_cells(protocol))]
    (claim,) = (claim for claim in load_claims() if claim.says.startswith("Personalised models"))
    monkeypatch.setattr(campaign, "load_claims", lambda: (claim,))
    store = Store(tmp_path, protocol.name)
    lacking = [cell for cell in grids[0][1] if (cell.dataset.text, cell.clients) == ("cora", 30)]
    for cell in grids[0][1]:
        for seed in range(3) if cell not in lacking else ():
            store.append(measured(cell, seed, 60.0 + seed + 5 * (cell.method in claim.contrasts[0].method)))
    steps = claim_steps(grids, Records(tmp_path), Estimate([]))
    found = {(cell.clients, cell.variant, cell.seed) for step in steps for cell in step.cells}
    methods = ("fedper", "gcfl", "fedgnn", "fedsage+")
    assert found == {(30, method, seed) for method in methods for seed in range(3)}
