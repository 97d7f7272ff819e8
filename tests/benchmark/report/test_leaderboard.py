import html
import io
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console

from fedsub.benchmark.analysis.scores import Leaderboard, make_rows
from fedsub.benchmark.cli.parser import parse
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.records.record import Record
from fedsub.benchmark.report.leaderboard import markdown, write_table_page
from fedsub.benchmark.report.pages import write_report
from fedsub.benchmark.report.terminal import print_leaderboard
from fedsub.benchmark.report.wording import markdown_table
from fedsub.benchmark.spec.plan import grid_cells, make_plan
from fedsub.benchmark.spec.protocol import Protocol, load_protocol, parse_protocol
from fedsub.datasets.errors import UserError
from tests.benchmark.fakes import current_cell, failed, make_cell, make_record, run
from tests.benchmark.report.rendered import line_of, page_of

ACCURACY = {"local": 80.0, "central": 90.0, "fedavg": 75.0, "fedper": 79.0}


@pytest.fixture
def protocol() -> Protocol:
    return load_protocol("fedpub-2")


def toy(metrics: list[str], methods: list[str]) -> Protocol:
    """A table with one block."""
    axes = {"dataset": "cora", "partition": "metis", "clients": 5, "backbone": "gcn"}
    return parse_protocol("toy", {"metrics": metrics, "grid": {**axes, "method": methods}})


def table_records(*argv: str, seeds: int = 2) -> list[Record]:
    """Records of FED-PUB's table with made-up scores, seeds one point apart."""
    filters = ["--table", "fedpub-2", "--dataset", "cora", "--clients", "10", "--method", *ACCURACY]
    cells = make_plan(parse([*filters, "--seeds", str(seeds), *argv]).request).cells
    return [
        make_record(
            cell,
            ACCURACY[cell.method] + cell.seed,
            privacy="sees everything" if cell.method == "central" else "",
            seconds={"setup": 1.0, "train": 2.0, "evaluate": 1.0 + cell.seed},
        )
        for cell in cells
    ]


def test_a_page_shows_measured_published_and_difference(protocol: Protocol) -> None:
    page = page_of(protocol, table_records())
    assert "## Cora, METIS, 10 clients" in page
    fedavg = line_of(page, "FedAvg")
    assert "| 75.50 ± 0.71 | 69.19 ± 0.67 | +6.31 needs more runs | -5.00 of -10.75 open |" in fedavg
    local = line_of(page, "Local")
    assert "| 80.50 ± 0.71 | 79.94 ± 0.24 | +0.56 needs more runs | – |" in local
    assert "| 0.0350 | 4.5 | 2.000 | 1.000 | 0.000 | 2 |" in local
    assert "of the 3 figures measured here 0 matches, 0 differs, 3 needs more runs" in page


def test_the_page_in_git_has_methods_by_places(protocol: Protocol) -> None:
    page = markdown(Leaderboard(protocol, table_records(seeds=5)))
    assert "## accuracy %, METIS\n" in page
    assert "| method | Cora, 10 |" in page
    assert "| FedAvg | 77.00 ± 1.58 (5) ‡; print 69.19 differs |" in page
    assert "| Central † | 92.00 ± 1.58 (5) ‡ |" in page
    changed = Leaderboard(protocol, table_records("--set", "rounds=5"))
    assert "4 further rows with other settings are not on this page." in markdown(changed)
    # Only a block with a printed accuracy shows it beside a score that selects the round.
    asked = "--table all-methods --dataset cora minesweeper --method fedavg --partition metis --seeds 1"
    scores = {"accuracy": 60.0, "roc_auc": 70.0}
    records = [make_record(cell, metrics=scores) for cell in make_plan(parse(asked.split()).request).cells]
    accuracy, roc_auc = markdown(Leaderboard(load_protocol("all-methods"), records)).split("## ")[1:]
    assert ("Minesweeper" in accuracy, "Minesweeper" in roc_auc) == (False, True)


@pytest.mark.parametrize(
    "listed", [["accuracy"], ["accuracy", "share_right"], ["x_score"], ["x_score", "accuracy"]]
)
def test_a_page_without_printed_figures_has_every_listed_score_and_every_row(listed: list[str]) -> None:
    protocol = toy(listed, ["fedavg", "fedper", "fedprox"])
    cells = [
        current_cell(label="fedavg"),
        current_cell(label="fedper", method="fedper", task="link-prediction"),
        current_cell(label="fedprox", method="fedprox", selection_metric="minority_accuracy"),
    ]
    reported = {"accuracy": 50.0, "minority_accuracy": 30.0, "share_right": 40.0}
    found = [reported, {"roc_auc": 60.0}, reported]
    records = [make_record(cell, metrics=scores) for cell, scores in zip(cells, found, strict=True)]
    page = markdown(Leaderboard(protocol, records))
    shown = {part.partition(",")[0]: part for part in page.split("## ")[1:]}
    main = {"roc auc %": "60.00", "minority accuracy %": "30.00"}
    held = {"accuracy": "50.00", "share_right": "40.00"}
    expected = main | {f"{name.replace('_', ' ')} %": held[name] for name in listed if name in held}
    assert shown.keys() == expected.keys()
    assert all(value in shown[name] for name, value in expected.items())
    nothing = [make_record(cell, metrics={}) for cell in cells]
    assert "##" not in markdown(Leaderboard(protocol, nothing))


def test_a_method_has_one_row_where_its_settings_were_chosen_on_one_graph_alone() -> None:
    asked = parse(["--table", "all-methods", "--method", "local", "--partition", "metis"]).request
    cells = make_plan(asked).cells
    graphs = ("citeseer", "coauthor_cs")
    records = [make_record(cell, 70.0) for cell in cells if cell.dataset.name in graphs and cell.seed == 0]
    page = markdown(Leaderboard(load_protocol("all-methods"), records))
    assert len([line for line in page.splitlines() if line.startswith("| Local")]) == 1
    citeseer, coauthor = line_of(page, "Local").split("|")[2:4]
    assert "‡" in citeseer
    assert "‡" not in coauthor


def test_a_method_that_breaks_privacy_is_marked_and_is_not_the_best(protocol: Protocol) -> None:
    records = table_records(seeds=3)
    page = markdown(Leaderboard(protocol, records))
    assert "| **" in line_of(page, "Local")
    assert "**" not in line_of(page, "Central †")
    assert "† Central breaks privacy: sees everything." in page
    alike = [make_record(each.cell, 80.0) for each in records if each.cell.method in ("local", "fedper")]
    assert markdown(Leaderboard(protocol, alike)).count("| **80.00") == 2


def test_runs_that_deviate_from_the_protocol_stand_apart(protocol: Protocol) -> None:
    records = [*table_records(), *table_records("--rounds", "5", "--kernel", "dgl")]
    rows = make_rows(protocol, records)
    deviating = [row for row in rows if row.deviations]
    assert len(deviating) == len(ACCURACY)
    assert {row.deviations for row in deviating} == {"rounds=5, kernel=dgl"}
    assert all(score.published is None for row in deviating for score in row.scores.values())
    assert "| Local · rounds=5, kernel=dgl |" in page_of(protocol, records)


def test_runs_with_options_that_their_table_no_longer_sets_stand_apart(tmp_path: Path) -> None:
    records = []
    path = tmp_path / "own.toml"
    for options, score in (("mu = 0.3", 70.0), ("", 75.0)):
        path.write_text(
            "extends = 'default'\n[grid]\nmethod = 'fedprox'\n"
            f"[[override]]\nwhen = {{method = 'fedprox'}}\noptions = {{{options}}}\n"
        )
        plan = make_plan(parse(["--table", str(path), "--seeds", "1"]).request)
        records += [make_record(cell, score) for cell in plan.cells]
    page = page_of(load_protocol(str(path)), records)
    assert "| FedProx · mu=0.3 | 70.00 |" in page
    assert "| FedProx | 75.00 |" in page


@pytest.mark.parametrize(
    "setting", ["split='./mine.py'", "split='file[path=roles.npz]'", "selection_metric='./mine.py'"]
)
def test_a_table_s_own_file_is_no_deviation(
    setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "from fedsub.datasets.splits.ratio import split\n"
        "from fedsub.methods.tasks.metrics import metric\n"
        "mine = metric(task='node-classification')(lambda output, items: None)\n"
    )
    (tmp_path / "roles.npz").touch()
    (tmp_path / "own.toml").write_text(f"extends = 'default'\n[settings]\n{setting}\n")
    asked = parse(["--table", "own.toml", "--method", "fedavg", "--seeds", "1"]).request
    (cell,) = make_plan(asked).cells
    (row,) = make_rows(load_protocol("own.toml"), [make_record(cell, 70.0)])
    assert row.deviations == ""


def test_the_same_records_in_any_order_give_the_same_bytes(protocol: Protocol, tmp_path: Path) -> None:
    records = table_records()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "fedpub-2.md").write_text("## Why\n\nBecause.\n")
    first = write_table_page(tmp_path, Leaderboard(protocol, records), {}).read_bytes()
    assert write_table_page(tmp_path, Leaderboard(protocol, records[::-1]), {}).read_bytes() == first
    assert first.endswith(b"[Notes](../notes/fedpub-2.md)\n")


def test_failed_cells_are_counted_and_left_out(protocol: Protocol) -> None:
    good, *rest = table_records()
    broken = failed(rest[0].cell, "x")
    page = page_of(protocol, [good, broken])
    assert "Failed cells: 1" in page
    assert line_of(page, "Local").endswith("| 1 |")
    assert "No finished cell yet." in page_of(protocol, [broken])


def test_epsilon_is_said_of_every_private_row(protocol: Protocol) -> None:
    cell = current_cell(protocol="fedpub-2", label="fedavg")
    private = replace(cell, schedule=replace(cell.schedule, privacy_noise=1.0, privacy_clip=1.0))
    page = page_of(protocol, [make_record(cell), make_record(private, extras={"epsilon": 6.497})])
    (line,) = (line for line in page.splitlines() if "ε = " in line)
    assert "privacy_noise=1.0" in line
    assert "ε = 6.50 for δ = 1e-05" in line


def test_gains_are_paired_by_seed_and_rounds_are_read_off_the_curve() -> None:
    protocol = toy(["accuracy", "gain_over_fedavg", "accuracy@round2"], ["fedavg", "fedper"])
    base = [make_record(current_cell(seed=seed, label="fedavg"), 50.0 + seed) for seed in range(2)]
    better = [
        make_record(current_cell(seed=seed, method="fedper", label="fedper"), 53.0 + 3 * seed)
        for seed in range(3)
    ]
    first, second = make_rows(protocol, [*base, *better])
    assert first.method == "fedavg"
    assert "gain_over_fedavg" not in first.scores
    assert second.scores["gain_over_fedavg"].mean == pytest.approx(4.0)
    assert first.scores["accuracy@round2"].mean == 51.0


def test_a_run_with_other_settings_is_nothing_to_gain_over() -> None:
    """The same holds for `change_from`: every method would have a gain over a badly tuned FedAvg."""
    protocol = toy(["accuracy", "gain_over_fedavg", "change_from_metis"], ["fedavg", "fedper"])
    plain = make_record(current_cell(label="fedavg"), 50.0)
    slow = make_record(current_cell(label="fedavg", learning_rate=0.5), 20.0)
    better = make_record(current_cell(method="fedper", label="fedper"), 53.0)
    moved = make_record(current_cell(label="fedavg", partition="random"), 45.0)
    for records in ([plain, slow, better, moved], [moved, better, slow, plain]):
        rows = {row.cell.key: row for row in make_rows(protocol, records)}
        assert "learning_rate" in rows[slow.key].deviations
        assert rows[better.key].scores["gain_over_fedavg"].mean == 3.0
        assert rows[moved.key].scores["change_from_metis"].mean == -5.0
    alone = {row.cell.key: row for row in make_rows(protocol, [slow, better, moved])}
    assert "gain_over_fedavg" not in alone[better.key].scores
    assert "change_from_metis" not in alone[moved.key].scores
    # A run with the same settings has a gain over it.
    alike = make_record(current_cell(method="fedper", label="fedper", learning_rate=0.5), 26.0)
    rows = {row.cell.key: row for row in make_rows(protocol, [plain, slow, alike])}
    assert rows[alike.key].scores["gain_over_fedavg"].mean == 6.0


def test_changes_between_partitions_and_scores_of_some_clients() -> None:
    scores = ["accuracy", "change_from_metis", "accuracy@clients1-3", "label_distance"]
    protocol = toy([*scores, "minority_accuracy@clients1-2"], ["fedavg"])
    there = [make_record(current_cell(seed=seed, label="fedavg"), 50.0 + seed) for seed in range(2)]
    here = [
        make_record(
            current_cell(seed=seed, label="fedavg", partition="random"),
            metrics={"accuracy": 45.0 + 3 * seed, "minority_accuracy": 5.0},
            by_client={"test": [10.0, 20.0, None, 90.0]},
            partition_statistics={"label_distance": 1.5},
        )
        for seed in range(2)
    ]
    first, second = make_rows(protocol, [*there, *here])
    assert set(first.scores) == {"accuracy"}
    assert second.scores["change_from_metis"].mean == pytest.approx(-4.0)
    assert second.scores["accuracy@clients1-3"].mean == 55.0
    # A record has, for each client, only the score that selects the round.
    assert "minority_accuracy@clients1-2" not in second.scores
    assert second.scores["label_distance"].mean == 1.5


def test_a_model_s_size_is_told_by_what_is_sent_where_the_method_does_not_count_it() -> None:
    """100 % if as much is sent as FedAvg's model; fewer or more bytes say nothing about the model's size."""
    methods = {"fedavg": 100.0, "gcfl": 100.0, "fedper": 90.0, "fedgta": 110.0, "local": 0.0, "fedpub": 40.0}
    own = {"fedpub": {"model_size_pct": 25.0}}
    records = [
        make_record(
            current_cell(method=method, label=method, seed=seed),
            bytes={"up": up, "down": 100.0, "once": 0.0},
            extras=own.get(method, {}),
        )
        for method, up in methods.items()
        for seed in range(2)
    ]
    rows = make_rows(toy(["accuracy", "model_size_pct"], [*methods]), records)
    sizes = {row.method: row.scores.get("model_size_pct") for row in rows}
    found = {method: size.mean for method, size in sizes.items() if size is not None}
    assert found == {"fedavg": 100.0, "gcfl": 100.0, "fedpub": 25.0}
    (alone,) = make_rows(
        toy(["model_size_pct"], ["gcfl"]), [each for each in records if each.cell.method == "gcfl"]
    )[:1]
    assert "model_size_pct" not in alone.scores


def test_a_report_is_remade_alike_and_what_records_say_has_no_meaning_in_it(tmp_path: Path) -> None:
    evil = "x\\|\n\n# y\n<script>&amp;"
    harmless = "x\\&#124; # y &lt;script>&amp;amp;"
    cell = make_cell(protocol="quick", dataset=evil, partition=evil, label=evil)
    links = " ![x](http://tracker.example/p.png), \\[here](http://evil.example) and [a]: http://evil.example"
    Records(tmp_path).append(make_record(cell, note=evil + links, privacy=evil, environment={"cpu": evil}))
    Records(tmp_path).append(make_record(current_cell(protocol="default", label="<b>fedavg</b>")))
    first = {path: path.read_bytes() for path in write_report(tmp_path)}
    assert {path.suffix for path in first} == {".md", ".html", ".json"}
    data = {path: path.read_bytes() for path in (tmp_path / "site").rglob("*.js")}
    assert {path: path.read_bytes() for path in write_report(tmp_path)} == first
    assert {path: path.read_bytes() for path in (tmp_path / "site").rglob("*.js")} == data
    page = (tmp_path / "leaderboards" / "quick.md").read_text()
    assert f"## accuracy %, {harmless}\n" in page
    assert f"| method | {harmless}, 5 |" in page
    assert f"| {harmless} † " in page
    assert f"breaks privacy: {harmless}.\n" in page
    assert f"Note on {harmless}: {harmless} !\\[x]&#40;http://tracker".replace(": x\\", ": x\\\\") in page
    assert "<script" not in page
    titles = [line for line in page.splitlines() if line.startswith("# ")]
    assert titles == [f"# {load_protocol('quick').title}"]
    shown = "".join(path.read_text() for path in (tmp_path / "site").rglob("*.*"))
    assert "&lt;b&gt;fedavg" in shown
    for live in ("<b>fedavg", "<img", "http://evil"):
        assert live not in shown
    # Data of the views holds titles as text; the browser sets them as text.
    assert "<script>&" not in (tmp_path / "site" / "index.html").read_text()


def printed(protocol: Protocol, records: list[Record], width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    print_leaderboard(Leaderboard(protocol, records), console, {})
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_terminal_gets_the_columns_for_which_it_has_room(protocol: Protocol, width: int) -> None:
    records = [*table_records(), *table_records("--set", "weight_decay=0.01", "learning_rate=0.02")]
    shown, whole = printed(protocol, records, width), printed(protocol, records, 400)
    assert max(map(len, shown.splitlines())) <= width
    assert "…" not in shown
    for number in ("80.50 ± 0.71", "75.50 ± 0.71"):
        assert number in shown
    assert "MB once" in whole
    assert "--wide" not in whole
    left_out = shown.split("Left out for lack of space: ")[1].split(";")[0].replace("\n", " ").split(", ")
    assert "MB once" in left_out
    assert len(left_out) == len(set(left_out))
    head = next(line for line in shown.splitlines() if line.strip().startswith("method"))
    assert not any(column in head for column in left_out)


def test_a_terminal_names_the_cause_of_a_difference(protocol: Protocol) -> None:
    filters = ["--table", "fedpub-2", "--dataset", "citeseer", "--clients", "20", "--method", "local"]
    cells = make_plan(parse([*filters, "--seeds", "3"]).request).cells
    shown = printed(protocol, [make_record(cell, 90 + cell.seed / 10) for cell in cells], 400)
    (line,) = (each for each in shown.splitlines() if "differs from print. " in each)
    assert line.startswith("Local on CiteSeer, METIS, 20 clients differs from print. The data: Local")
    assert line.endswith("results/authors.md; results/notes/fedpub-2.md)")


def test_a_folder_without_records_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no records"):
        write_report(tmp_path)


def test_tables_of_ones_own_share_a_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = [tmp_path / f"{name}.toml" for name in ("first", "second")]
    for path in own:
        path.write_text(f'extends = "quick"\ntitle = "Mine, {path.stem}"\n[grid]\nmethod = "fedavg"\n')
    Records(tmp_path).append(make_record(grid_cells(load_protocol(str(own[0])))[0]))
    write_report(tmp_path, [*map(str, own)])
    site = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert "Mine, second" in site
    assert " 1 record." in site
    assert "# Mine, second" in (tmp_path / "leaderboards" / "second.md").read_text(encoding="utf-8")
    for command in ("show", "report"):
        assert run(tmp_path, command) == 0
        assert "skipped the records of first, an unknown table" in capsys.readouterr().err


TABLES = st.integers(1, 4).flatmap(
    lambda width: st.lists(st.lists(st.text(), min_size=width, max_size=width), min_size=1, max_size=5)
)


@given(TABLES)
@example([["", ""], ["", "\x01"]])
@example([["![note](http://a.example/b.png)"]])
def test_whatever_a_cell_holds_a_table_keeps_its_shape(lines: list[list[str]]) -> None:
    head, *rows = lines
    written = markdown_table(head, rows).split("\n")
    assert len(written) == len(rows) + 2
    for line, cells in zip([written[0], *written[2:]], lines, strict=True):
        assert line.startswith("| ")
        assert line.endswith(" |")
        assert [html.unescape(cell.strip()) for cell in line[1:-1].split("|")] == [
            " ".join("".join(letter if letter.isprintable() else " " for letter in cell).split())
            for cell in cells
        ]
    assert "<" not in "".join(written)
    assert "](" not in "".join(written)
