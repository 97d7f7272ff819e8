"""Tables for papers: their content, their bold figures, and that LaTeX can read them."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pylatexenc.latex2text import LatexNodes2Text
from pylatexenc.latexwalker import LatexEnvironmentNode, LatexMacroNode, LatexNode, LatexWalker

from fedsub.benchmark.analysis.frame import Results
from fedsub.benchmark.analysis.means import LEVEL, against_best, holm, make_table
from fedsub.benchmark.cli.parser import parse
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.records.record import Record
from fedsub.benchmark.report.export import as_text, export
from fedsub.benchmark.spec.plan import make_plan, versions_of
from fedsub.datasets.errors import UserError
from tests.benchmark.fakes import make_cell, make_record, run

SCORES: dict[str, dict[str, list[float]]] = {
    "cora": {
        "fedavg": [80, 81, 82, 83, 84],
        "fedprox": [80.2, 80.9, 82.3, 82.8, 84.1],
        "local": [70, 71, 72, 73, 74],
    },
    "pubmed": {
        "fedavg": [60, 61, 62, 63, 64],
        "fedprox": [70, 71, 72, 73, 74.5],
        "local": [70, 72, 72, 72, 74.4],
    },
}


PRESENT = versions_of(make_cell())
"""Present versions: records of earlier ones are left out."""


def some_results() -> Results:
    records = [
        make_record(make_cell(dataset=dataset, method=method, seed=seed, versions=PRESENT), value)
        for dataset, methods in SCORES.items()
        for method, values in methods.items()
        for seed, value in enumerate(values)
    ]
    return Results(tuple(records))


def fill(folder: Path, records: Iterable[Record]) -> None:
    for record in records:
        Records(folder).append(record)


def exported(folder: Path, *argv: str) -> str:
    """The LaTeX table that the command makes of the folder's records."""
    file = folder / "table.tex"
    assert run(folder, "export", str(file), *argv) == 0
    return file.read_text()


def scored(scores: Mapping[str, Sequence[float | None]], **settings: Any) -> Iterator[Record]:
    """A record for each score of each name, with the seeds 0, 1, …"""
    for name, values in scores.items():
        for seed, value in enumerate(values):
            yield make_record(make_cell(label=name, seed=seed, **settings), value)


def nodes_of(nodes: list[LatexNode]) -> list[LatexNode]:
    """Every node of a parsed text, inner ones too."""
    found: list[LatexNode] = []
    for node in nodes:
        found.append(node)
        found += nodes_of(list(getattr(node, "nodelist", None) or ()))
    return found


def cells_of(tabular: str) -> dict[str, list[str]]:
    """First column → the others, of the lines of a tabular."""
    lines = [line for line in tabular.splitlines() if line.endswith(r"\\")]
    rows = [[cell.strip() for cell in line.removesuffix(r"\\").split("&")] for line in lines]
    return {row[0]: row[1:] for row in rows}


def test_latex_has_the_best_and_its_equals_in_bold(tmp_path: Path) -> None:
    path = export(some_results(), tmp_path / "table.tex")
    text = path.read_text()
    walker = LatexWalker(text, tolerant_parsing=False)
    nodes = nodes_of(walker.get_latex_nodes()[0])
    environments = [node.environmentname for node in nodes if isinstance(node, LatexEnvironmentNode)]
    assert environments == ["table", "tabular"]
    macros = [node.macroname for node in nodes if isinstance(node, LatexMacroNode)]
    assert [macros.count(rule) for rule in ("toprule", "midrule", "bottomrule")] == [1, 1, 1]
    rows = cells_of(text)
    assert rows["method"] == ["cora", "pubmed", "mean rank"]
    bold = {name: [r"\mathbf" in cell for cell in rows[name][:2]] for name in ("FedAvg", "FedProx", "Local")}
    assert bold == {"FedAvg": [True, False], "FedProx": [True, True], "Local": [False, True]}
    assert rows["FedAvg"][0] == r"$\mathbf{82.00 \pm 1.58}$"
    assert rows["Local"] == [r"$72.00 \pm 1.58$", rows["Local"][1], "2.50"]
    assert "Holm" in text


def test_markdown_and_csv_hold_the_same_figures(tmp_path: Path) -> None:
    results = some_results()
    page = export(results, tmp_path / "t.md").read_text()
    assert re.search(r"\| FedAvg\s*\| \*\*82.00 ± 1.58\*\*\s*\| 62.00 ± 1.58", page)
    table = pandas.read_csv(export(results, tmp_path / "t.csv"))
    found = pandas.read_parquet(export(results, tmp_path / "t.parquet"))
    pandas.testing.assert_frame_equal(found, table, check_dtype=False)
    row = table[(table["method"] == "fedavg") & (table["dataset"] == "cora")].iloc[0]
    assert (row["mean"], row["runs"], bool(row["bold"])) == (82.0, 5, True)
    assert row["std"] == pytest.approx(np.std(SCORES["cora"]["fedavg"], ddof=1))


def test_what_breaks_privacy_is_marked_and_no_rival(tmp_path: Path) -> None:
    central = [make_record(make_cell(method="central", seed=seed), 99.0, privacy="seen") for seed in (0, 1)]
    plain = [make_record(make_cell(seed=seed), 80.0 + seed) for seed in (0, 1)]
    text = export(Results((*central, *plain)), tmp_path / "t.tex").read_text()
    rows = cells_of(text)
    assert rows["Central †"] == [r"$99.00 \pm 0.00$", ""]
    # With two seeds nothing is bold.
    assert rows["FedAvg"] == [r"$80.50 \pm 0.71$", "1.00"]
    assert not make_table(Results((*central, *plain))).figures["bold"].any()
    assert "breaks privacy" in text
    partly = Results((*central, *plain, make_record(make_cell(method="central", dataset="pubmed"), 99.0)))
    assert [*as_text(make_table(partly), "", "").index] == ["central †", "fedavg"]
    assert [*as_text(make_table(partly, "dataset", "method"), "", "").columns] == ["central †", "fedavg"]


def test_a_column_without_every_rows_figure_ranks_nobody() -> None:
    cora = scored({"a": [80.0], "b": [70.0], "c": [None]}, dataset="cora")
    pubmed = scored({"a": [60.0], "b": [70.0], "c": [65.0]}, dataset="pubmed")
    shown = as_text(make_table(Results((*cora, *pubmed))), "{mean}", "{mean}")
    assert shown["mean rank"].to_dict() == {"a": "3.00", "b": "1.00", "c": "2.00"}


def test_means_that_are_equal_as_printed_share_a_rank_and_do_not_differ() -> None:
    values = {"a": [60.0, 61.0, 62.0], "b": [62.003, 60.0, 61.0], "c": [50.0, 51.0, 52.0]}
    table = make_table(Results(tuple(scored(values))), against="b")
    assert table.figures.set_index("method")["rank"].to_dict() == {"a": 1.5, "b": 1.5, "c": 3.0}
    assert as_text(table, "", "").loc["a", "above b"] == "+0.00"


@pytest.mark.parametrize("title", ["[12] Fed_Avg", "*Fed", "a<b>|c [mu=1]", "&%_#{}~\\$"])
def test_a_title_is_the_text_that_latex_prints(tmp_path: Path, title: str) -> None:
    fill(tmp_path, some_results())
    text = exported(tmp_path, "--title", f"fedavg={title}")
    first = text.split(r"\midrule")[1].split(" & $")[0]
    # Otherwise an argument of the line before, or another letter in LaTeX's default encoding.
    assert not re.search(r"^\s*[*[]|(?<!\$)[<>|]", first)
    assert LatexNodes2Text().latex_to_text(first).strip() == title


def test_only_a_row_with_equal_settings_is_subtracted_and_settings_are_shown_rounded() -> None:
    slow = scored({"fedavg": [60.0], "b": [70.0]}, learning_rate=0.1 + 0.2)
    fast = scored({"fedavg": [40.0], "b": [45.0]}, learning_rate=0.5)
    alone = scored({"b": [9.0]}, learning_rate=1.0)
    above = as_text(make_table(Results((*slow, *fast, *alone)), against="fedavg"), "", "")["above fedavg"]
    assert above["fedavg"].to_dict() == {"0.3": "+0.00", "0.5": "+0.00"}
    assert above["b"].to_dict() == {"0.3": "+10.00", "0.5": "+5.00", "1": ""}


def test_rows_of_numbers_are_named_by_their_text(tmp_path: Path) -> None:
    for clients, value in ((5, 80.0), (10, 70.0)):
        Records(tmp_path).append(make_record(make_cell(clients=clients, versions=PRESENT), value))
    rows = cells_of(exported(tmp_path, "--rows", "clients", "--title", "10=ten", "--against", "5"))
    assert (rows["ten"][-1], rows["5"][-1]) == ("-10.00", "+0.00")


def test_names_that_look_like_numbers_stay_and_titles_stay_apart(tmp_path: Path) -> None:
    names = ["2019_20", "1e3", "1000"]
    found = Results(tuple(make_record(make_cell(dataset=name)) for name in names))
    assert [*as_text(make_table(found, "dataset", "method"), "", "").index] == names
    with pytest.raises(UserError, match="two names of the axis dataset have the title '1000'"):
        export(found, tmp_path / "t.md", titles={"1e3": "1000"})
    with pytest.raises(UserError, match="only tables have titles"):
        export(found, tmp_path / "cost.svg", titles={"fedavg": "A"})


@pytest.mark.parametrize("ending", [".tex", ".md", ".csv", ".parquet"])
def test_rows_of_an_option_are_empty_for_methods_without_it(tmp_path: Path, ending: str) -> None:
    methods: dict[str, Any] = {"local": ({}, ""), "central": ({}, "seen"), "fedprox": ({"mu": 0.1}, "")}
    records = [
        make_record(make_cell(method=name, options=options, seed=seed), 60.0 + seed, privacy=privacy)
        for name, (options, privacy) in methods.items()
        for seed in range(3)
    ]
    results = Results(tuple(records))
    assert export(results, tmp_path / f"t{ending}", rows="options.mu").stat().st_size
    figures = make_table(results, rows="options.mu").figures.set_index("method")
    assert figures["options.mu"].to_dict() == {"local": "", "central": "", "fedprox[mu=0.1]": "0.1"}
    # The methods have names in this table, so they compete as in a table of methods.
    assert figures["rival"].to_dict() == {"local": True, "central": False, "fedprox[mu=0.1]": True}


def fedavg_and_local(name: str, values: tuple[Any, Any]) -> Results:
    """FedAvg with one value of a setting, and Local, ten points better, with the other."""
    records = [
        make_record(make_cell(method=method, seed=seed, **{name: value}), score + seed)
        for method, value, score in zip(("fedavg", "local"), values, (50.0, 60.0), strict=True)
        for seed in range(3)
    ]
    return Results(tuple(records))


@pytest.mark.parametrize(
    ("name", "values"), [("clients", (5, 10)), ("rounds", (50, 100)), ("selection", ("last", "per-client"))]
)
def test_methods_that_were_run_unlike_stand_apart(name: str, values: tuple[Any, Any]) -> None:
    """Even if each method was run with one value only, so that its own rows do not differ."""
    results = fedavg_and_local(name, values)
    table = make_table(results)
    assert table.levels == ("method", name)
    # Neither has a rival.
    assert not table.figures["bold"].any()
    assert table.figures["rank"].tolist() == [1.0, 1.0]
    assert [*results.pivot().index] == [("fedavg", values[0]), ("local", values[1])]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("backbone", ("gcn", "sgc")),
        ("local_epochs", (1, 2)),
        ("learning_rate", (0.01, 0.1)),
        ("weighting", ("uniform", "nodes")),
        # These settings change no figure.
        ("further_metrics", ([], ["macro_f1"])),
        ("kernel", ("auto", "dgl")),
    ],
)
def test_what_belongs_to_a_method_does_not_keep_it_from_competing(name: str, values: tuple[Any, Any]) -> None:
    assert make_table(fedavg_and_local(name, values)).figures["bold"].tolist() == [False, True]


def test_where_methods_stand_in_the_columns_a_row_is_what_is_compared(tmp_path: Path) -> None:
    across = make_table(some_results(), rows="dataset", columns="method").figures
    along = make_table(some_results()).figures
    for name in ("bold", "rank", "p_value"):
        found, wanted = (each.set_index(["dataset", "method"])[name] for each in (across, along))
        pandas.testing.assert_series_equal(found.sort_index(), wanted.sort_index())
    page = export(some_results(), tmp_path / "t.md", rows="dataset", columns="method").read_text()
    assert page.startswith("| dataset | FedAvg | FedProx | Local |\n")
    assert "mean of a row" in page
    assert "Mean rank" not in page


def test_what_was_run_with_other_options_under_one_name_is_never_averaged(tmp_path: Path) -> None:
    """A table may set options that the methods' names do not show, and may have set others before."""
    rows: tuple[tuple[str, float, dict[str, Any], dict[str, Any]], ...] = (
        ("fedavg", 60.0, {}, {}),
        ("fedgraph", 70.0, {}, {"start": "zero"}),
        ("fedgraph", 80.0, {"start": "glorot"}, {}),
    )
    records = [
        make_record(
            make_cell(method=method, label=method, seed=seed, options=options),
            value + seed,
            default_options=defaults,
        )
        for method, value, options, defaults in rows
        for seed in range(3)
    ]
    table = make_table(Results(tuple(records)))
    assert table.levels == ("method", "options.start")
    assert table.figures["mean"].tolist() == [61.0, 71.0, 81.0]
    assert table.figures["std"].tolist() == [1.0, 1.0, 1.0]
    # They still compete.
    assert table.figures["bold"].tolist() == [False, False, True]
    assert table.figures["rank"].tolist() == [3.0, 2.0, 1.0]
    shown = as_text(table, "{mean}", "{mean}")
    assert [*shown.index] == [("fedavg", ""), ("fedgraph", "zero"), ("fedgraph", "glorot")]
    assert shown["mean rank"].tolist() == ["3.00", "2.00", "1.00"]
    assert [*Results(tuple(records)).pivot().index] == [*shown.index]


@pytest.mark.parametrize("name", ["=1+1", "+x", "-x", "@x"])
def test_text_that_a_spreadsheet_would_run_is_quoted(tmp_path: Path, name: str) -> None:
    record = make_record(make_cell(dataset="cora", label=name, method="mine"), 50.0)
    assert f"'{name}," in export(Results((record,)), tmp_path / "t.csv").read_text()


def test_two_graphs_of_one_name_do_not_compete() -> None:
    records = [
        make_record(
            make_cell(dataset="a/graph", method=method, files=digest * 8, seed=seed, versions=PRESENT),
            value + seed,
        )
        for digest, best in (("aaaaaaaa", "fedavg"), ("bbbbbbbb", "local"))
        for method in ("fedavg", "local")
        for seed in range(4)
        for value in [80.0 if method == best else 70.0]
    ]
    figures = make_table(Results(tuple(records))).figures
    assert figures["dataset"].nunique() == 2
    assert figures[figures["bold"]]["method"].tolist() == ["fedavg", "local"]


def indistinguishable(values: pandas.DataFrame, sign: int) -> list[object]:
    return [name for name, p in against_best(values, sign).items() if p >= LEVEL]


NAN = float("nan")


@pytest.mark.parametrize(
    ("columns", "best"),
    [
        pytest.param(([80, 81, 82], [80, 81, 82], [79, 80, 81]), "ab", id="a tie"),
        pytest.param(([80, 81, 82], [80.003, 81.003, 82.003]), "ab", id="a tie as printed"),
        pytest.param(([90, 91, 92], [80, 81, 82]), "a", id="a clear best"),
        pytest.param(([80], [79]), "", id="one seed each"),
        pytest.param(([80, 81], [79, 80]), "", id="two seeds each"),
        pytest.param(([80, 81, 82],), "", id="no rival"),
        pytest.param(([80, 81, 82], [99, NAN, NAN]), "", id="no rival with enough seeds"),
        pytest.param(([80, 81, 82], [70, 71, 72], [99, NAN, NAN]), "a", id="a lucky seed"),
        # On the draws that both have a is worse by one point.
        pytest.param(([80, 79, 80, NAN], [81, 80, 81, 40]), "b", id="no hard draw"),
        pytest.param(([80, 79, 80, 99], [81, 80, 81, NAN]), "b", id="an easy draw"),
        pytest.param(([80, 81, 82, NAN, NAN, NAN], [NAN, NAN, NAN, 99, 98, 97]), "", id="no common draw"),
        pytest.param(([80, 81, 82, 83, NAN], [80, 81, NAN, NAN, 99], [70, 71, 72, 73, 74]), "", id="too few"),
        pytest.param(
            (
                [80] * 3 + [NAN] * 3 + [70] * 3,
                [79] * 3 + [80] * 3 + [NAN] * 3,
                [NAN] * 3 + [79] * 3 + [71] * 3,
            ),
            "abc",
            id="a circle",
        ),
        # The draw that c lacks counts between the others.
        pytest.param(([80, 80, 80, 99], [81, 81, 81, 81], [70, 70, 70, NAN]), "ab", id="a draw of two"),
    ],
)
def test_bold_takes_common_draws_and_a_rival(columns: tuple[list[float], ...], best: str) -> None:
    values = pandas.DataFrame(dict(zip("abc", columns, strict=False)))
    assert {*indistinguishable(values, 1)} == {*best}
    assert {*indistinguishable(-values, -1)} == {*best}
    assert indistinguishable(values, 0) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_corrects_upwards_and_keeps_the_order(values: list[float]) -> None:
    by_hand = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": float("nan")})
    assert by_hand == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06, "d": float("nan")}, nan_ok=True)
    corrected = list(holm(dict(enumerate(values))).values())
    assert all(after >= before or after == 1 for before, after in zip(values, corrected, strict=True))
    order = np.argsort(values, kind="stable")
    assert (np.diff(np.array(corrected)[order]) >= 0).all()


def test_rows_stand_as_asked_for_beside_their_difference(tmp_path: Path) -> None:
    fill(tmp_path, some_results())
    argv = ["--method", "local", "fedavg", "--against", "fedavg", "--dataset", "pubmed", "cora"]
    rows = cells_of(exported(tmp_path, *argv))
    assert [*rows] == ["method", "Local", "FedAvg"]
    assert rows["method"] == ["pubmed", "cora", "mean rank", "above FedAvg"]
    # 72.08 − 62 and 72 − 82, on average.
    assert (rows["Local"][-1], rows["FedAvg"][-1]) == ("+0.04", "+0.00")


def test_the_command_line_exports_what_its_filters_let_through(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path, some_results())
    file = tmp_path / "table.md"
    axes = ("--rows", "dataset", "--columns", "method")
    assert run(tmp_path, "export", str(file), "--method", "fedavg", "local", *axes) == 0
    assert str(file) in capsys.readouterr().out
    page = file.read_text()
    assert "fedprox" not in page
    assert page.startswith("| dataset")
    assert run(tmp_path, "export", str(file), "--method", "fedavgx") == 2
    assert "unknown method in the records 'fedavgx': did you mean fedavg" in capsys.readouterr().err
    assert run(tmp_path, "export", str(tmp_path / "table.doc")) == 2
    assert "must end in" in capsys.readouterr().err
    drawn = tmp_path / "ranks.pdf"
    assert run(tmp_path, "export", str(drawn)) == 0
    assert drawn.read_bytes().startswith(b"%PDF")
    assert run(tmp_path, "export", str(tmp_path / "table.pdf")) == 2
    assert "must be curves.pdf or cost.pdf or ranks.pdf" in capsys.readouterr().err


def test_runs_that_deviate_from_their_table_are_left_out_unless_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--table", "fedpub-2", "--dataset", "cora", "--clients", "10", "--method", "fedavg"]
    for more in ([], ["--set", "learning_rate=0.5"]):
        cells = make_plan(parse([*asked, "--seeds", "1", *more]).request).cells
        fill(tmp_path, map(make_record, cells))
    for more, left_out in (([], True), (["--rows", "learning_rate"], False)):
        text = exported(tmp_path, *asked, *more)
        assert ("left out 1 run " in capsys.readouterr().err) == left_out == ("\n0.5 &" not in text)
