import importlib.metadata
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fedsub.benchmark.cli.parser import parse
from fedsub.benchmark.spec import catalog
from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.plan import make_plan, versions_of
from fedsub.datasets.errors import UserError
from fedsub.datasets.options import defaults_of
from fedsub.datasets.synthetic import GENERATORS
from fedsub.methods.core import registry

TOY = """
seeds = 2
[grid]
dataset = ["community"]
partition = ["metis"]
clients = [3, 4]
method = ["fedprox[mu=0.5]", "fedprox[mu=0.7]", "fedavg"]
backbone = ["gcn"]
[settings]
rounds = 5
[[override]]
when = { method = ["fedprox"] }
settings = { rounds = 6 }
"""


@pytest.fixture
def toy(tmp_path: Path) -> str:
    path = tmp_path / "toy.toml"
    path.write_text(TOY)
    return str(path)


def cells(*argv: str) -> tuple[Cell, ...]:
    return make_plan(parse(argv).request).cells


def labels(*argv: str) -> list[str]:
    return list(dict.fromkeys(cell.label for cell in cells(*argv)))


def test_alone_it_is_the_quick_table() -> None:
    found = cells()
    assert {cell.protocol for cell in found} == {"quick"}
    assert {cell.method for cell in found} == {"local", "central", "fedavg", "fedprox", "fedper"}


def test_a_dataset_or_method_without_a_table_runs_under_the_default_protocol() -> None:
    (cell,) = cells("--dataset", "cora", "--method", "fedavg", "--rounds", "7", "--clients", "3")
    assert (cell.protocol, cell.dataset.text, cell.schedule.rounds, cell.clients) == ("default", "cora", 7, 3)
    assert {cell.dataset.text for cell in cells("--method", "fedavg")} == {"community"}


def test_a_grid_is_the_product_of_its_axes(toy: str) -> None:
    plan = make_plan(parse(["--table", toy]).request)
    assert len(plan.cells) == 3 * 2 * 2
    assert len({cell.key for cell in plan.cells}) == len(plan.cells)
    assert not plan.skipped
    assert {cell.schedule.rounds for cell in plan.cells if cell.method == "fedprox"} == {6}
    assert {cell.schedule.rounds for cell in plan.cells if cell.method == "fedavg"} == {5}


def test_a_bare_method_selects_its_variants_and_options_exactly_one(toy: str) -> None:
    assert labels("--table", toy, "--method", "fedprox") == ["fedprox[mu=0.5]", "fedprox[mu=0.7]"]
    assert labels("--table", toy, "--method", "fedprox[mu=0.7]") == ["fedprox[mu=0.7]"]
    assert labels("--table", toy, "--method", "fedprox[mu=0.9],fedavg") == ["fedprox[mu=0.9]", "fedavg"]
    (cell, *_) = cells("--table", toy, "--method", "fedprox[mu=0.9]")
    assert cell.schedule.rounds == 6
    assert dict(cell.options) == {"mu": 0.9}


def test_an_option_that_a_table_sets_is_told_from_one_that_is_asked_for(tmp_path: Path) -> None:
    """The table runs FedProx with μ = 0.1: requesting the method's default 0.01 requests another row."""
    path = tmp_path / "toy.toml"
    grid = TOY.replace('"fedprox[mu=0.5]", "fedprox[mu=0.7]"', '"fedprox"')
    path.write_text(grid.replace("settings = { rounds = 6 }", "options = { mu = 0.1 }"))

    def found(method: str) -> tuple[str, dict[str, Any]]:
        (cell, *_) = cells("--table", str(path), "--method", method)
        return cell.label, dict(cell.options)

    assert found("fedprox") == found("fedprox[mu=0.1]") == ("fedprox", {"mu": 0.1})
    assert found("fedprox[mu=0.01]") == ("fedprox[mu=0.01]", {})
    assert found("fedprox[mu=0.2]") == ("fedprox[mu=0.2]", {"mu": 0.2})


def test_an_option_at_its_default_is_the_same_cell() -> None:
    plain = cells("--method", "fedprox")
    spelt = cells("--method", "fedprox[mu=0.01]")
    assert [cell.key for cell in plain] == [cell.key for cell in spelt]
    assert spelt[0].label == "fedprox"
    assert catalog.differing_options("fedprox", {"mu": 1}) == {"mu": 1.0}


def test_a_tables_own_variants_run_whatever_has_no_effect_in_them(tmp_path: Path) -> None:
    path = tmp_path / "toy.toml"
    path.write_text(TOY.replace('"fedavg"]', '"fedavg", "fedpub[lambda2=0.1]"]'))
    assert cells("--table", str(path), "--method", "fedpub[lambda2=0.1]")
    assert cells("--method", "fedpub[lambda2=0.1,regularizer=printed]", "fedpub[lambda2=0.001]")


def test_a_method_with_its_own_network_runs_with_one_backbone() -> None:
    plan = make_plan(parse(["--method", "fedstruct", "fedavg", "--backbone", "sgc", "gcn"]).request)
    assert {cell.architecture.backbone for cell in plan.cells if cell.method == "fedstruct"} == {"sgc"}
    assert {cell.architecture.backbone for cell in plan.cells if cell.method == "fedavg"} == {"sgc", "gcn"}
    assert [skip.what for skip in plan.skipped] == ["fedstruct with gcn"]
    assert cells("--method", "fedstruct", "--backbone", "gcn", "gcn") == cells(
        "--method", "fedstruct", "--backbone", "gcn"
    )


def test_natural_clients_outside_the_largest_component_are_not_left_out_unasked() -> None:
    place = ("--dataset", "community[across=0]", "--partition", "attribute[key=community]")
    asked = (*place, "--method", "local")
    with pytest.raises(UserError, match=r"23 of 24 clients .* set largest_component=false"):
        cells(*asked)
    (cell,) = cells(*asked, "--set", "largest_component=false")
    assert cell.clients == 24
    assert cells(*asked, "--clients", "1")


def test_what_is_named_twice_is_run_once(toy: str) -> None:
    once = ["--table", toy, "--method", "fedprox", "--clients", "3", "--backbone", "gcn", "--seeds", "1,"]
    twice = ["--table", toy, "--method", "fedprox[mu=0.7]", "--clients", "3", "--backbone", "gcn"]
    both = cells(*once, *twice, "--seeds", "1", "--dataset", "community,community")
    assert [cell.key for cell in both] == [cell.key for cell in cells(*once)]


def test_every_cell_has_the_versions_of_its_own_parts(tmp_path: Path) -> None:
    path = tmp_path / "toy.toml"
    grid = TOY.replace('"community"', '"community", "cora"').replace(
        'method = ["fedprox"]', 'dataset = ["cora"]'
    )
    path.write_text(grid.replace("rounds = 6", 'split = "official"'))
    found = {cell.dataset.text: cell for cell in cells("--table", str(path), "--method", "fedavg")}
    assert found["community"].versions != found["cora"].versions
    assert all(cell.versions == versions_of(cell) for cell in found.values())
    links = path.with_name("links.toml")
    links.write_text(TOY.replace("rounds = 5", 'task = "link-prediction"'))
    both = cells("--table", str(path), str(links), "--method", "fedavg", "--dataset", "community")
    assert {cell.task.name: "task=2" in cell.versions for cell in both} == {
        "node-classification": False,
        "link-prediction": True,
    }


def test_a_table_may_run_fewer_seeds_of_some_rows_and_more_where_they_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "toy.toml"
    path.write_text(
        f"{TOY}[[override]]\nwhen = {{ method = ['fedprox'] }}\nseeds = 0\n"
        "[[override]]\nwhen = { method = ['fedprox[mu=0.7]'], clients = [3] }\nseeds = 1\n"
    )
    plan = make_plan(parse(["--table", str(path)]).request)
    assert Counter(cell.label for cell in plan.cells) == {"fedavg": 4, "fedprox[mu=0.7]": 1}
    assert [skip.what for skip in plan.skipped] == ["3 rows of toy"]
    assert len(cells("--table", str(path), "--seeds", "3")) == 3 * 3 * 2
    with pytest.raises(UserError, match="nothing to run: 2 rows of toy: give --seeds to run them"):
        cells("--table", str(path), "--method", "fedprox[mu=0.5]")


def test_two_tables_of_one_name_are_refused(toy: str, tmp_path: Path) -> None:
    other = tmp_path / "other" / "toy.toml"
    other.parent.mkdir()
    other.write_text(TOY)
    argv = ("--table", toy, str(other), "--method", "fedavg")
    assert cells(*argv) == cells("--table", toy, "--method", "fedavg")
    other.write_text(TOY.replace("rounds = 5", "rounds = 50"))
    with pytest.raises(UserError, match="two tables are called toy"):
        cells(*argv)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--method", "fedpox"], "unknown method 'fedpox'.*fedprox"),
        (["--method", "fedpub[lambda2=0.1]"], "lambda2 has no effect here: it needs regularizer=printed"),
        (["--method", "fedcog[hidden=7]"], "hidden has no effect here.*other than gcn"),
        (["--dataset", "community[nodez=300]"], "option of community 'nodez'.*nodes"),
        (["--dataset", "community[nodes=-5]"], "community's nodes must be at least 1"),
        (["--method", "fedadam[beta1=5]"], r"fedadam's beta1 must be in \[0, 1\)"),
        (["--dataset", "./nowhere"], "there is no graph at ./nowhere: check the path"),
        (["--partition", "metiss"], "unknown partition scheme 'metiss'.*metis"),
        (["--set", "split=zzz"], "unknown split 'zzz': choose from file, official, per-class, ratio"),
        (["--set", "rounds=0"], "at least 1"),
        (["--set", "mu=0.1"], r"'mu': it is an option of .*fedprox.*\[mu=…\]"),
        (["--partition", str(Path(__file__).parents[3] / "README.md")], r"write file\[path=.*README.md\]"),
        (["--set", "learning_rate=0.1,0.2"], "finite number.*for a grid give learning_rate=0.1 learning"),
        (["--task", "regression"], "unknown task 'regression'"),
    ],
)
def test_bad_input_is_one_sentence_with_the_nearest_names(argv: list[str], words: str) -> None:
    with pytest.raises(UserError) as caught:
        make_plan(parse(argv).request)
    assert re.search(words, str(caught.value)), str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        # An invalid split of one method only; the others are valid.
        ("rounds = 6", 'split = "ratio[train=2]"', "ratio's train must be in"),
        ("seeds = 2", 'metrics = ["acuracy"]', "toy: unknown metric 'acuracy': did you mean accuracy"),
        ('"fedavg"', '"fedavgg"', "fedavgg: unknown method 'fedavgg' in table toy: did you mean fedavg"),
    ],
)
def test_a_table_of_ones_own_is_checked_as_the_command_line_is(
    old: str, new: str, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "toy.toml"
    path.write_text(TOY.replace(old, new))
    with pytest.raises(UserError, match=words):
        cells("--table", str(path))


def test_graphs_that_the_field_scores_by_roc_auc_are_selected_by_it() -> None:
    found = cells("--dataset", "cora", "tolokers", "--method", "fedavg", "--clients", "3")
    assert [cell.schedule.selection_metric for cell in found] == ["", "roc_auc"]
    argv = ("--dataset", "minesweeper", "--method", "fedavg", "--seeds", "1")
    for table in ("quick", "all-methods"):
        assert {cell.schedule.selection_metric for cell in cells("--table", table, *argv)} == {"roc_auc"}
    (named, *_) = cells("--table", "quick", *argv, "--set", "selection_metric=accuracy")
    assert named.schedule.selection_metric == "accuracy"


def test_all_takes_every_table_but_those_to_try_things_with() -> None:
    found = {cell.protocol for cell in cells("--all", "--seeds", "1")}
    assert {"fedpub-2", "fedstruct-1", "fedspray-2"} <= found
    assert found.isdisjoint({"default", "quick"})


def test_metrics_that_a_protocol_names_besides_the_tasks_own_are_in_the_cells(
    toy: str, tmp_path: Path
) -> None:
    path = tmp_path / "named.toml"
    path.write_text('metrics = ["accuracy", "macro_f1", "update_mb"]' + TOY)
    plain, named = (cells("--table", str(each), "--method", "fedavg")[0] for each in (toy, path))
    assert (plain.further_metrics, named.further_metrics) == ((), ("macro_f1",))
    assert Cell.from_dict(json.loads(json.dumps(named.to_dict()))) == named
    (linked, *_) = cells("--table", str(path), "--method", "fedavg", "--task", "link-prediction")
    assert linked.further_metrics == ()


def test_two_metrics_of_one_name_are_refused(tmp_path: Path) -> None:
    tables = []
    for number, name in enumerate(("one/found.py", "two/found.py", "macro_f1.py")):
        tables.append(str(tmp_path / f"table{number}.toml"))
        Path(tables[-1]).write_text(f'metrics = ["accuracy", "./{name}"]{TOY}')
    for asked in (tables[:2], tables[2:]):
        with pytest.raises(UserError, match="there is another metric"):
            cells("--table", *asked)


def test_a_plug_in_that_cannot_be_imported_stops_no_plan_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    point = importlib.metadata.EntryPoint("theirs", "no_such_package:Theirs", registry.GROUP)
    found = {registry.GROUP: [point]}
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: found.get(group, []))
    assert cells("--method", "fedavg", "--backbone", "sgc", "--task", "link-prediction")
    with pytest.raises(UserError, match="the plug-in theirs cannot be imported from no_such_package:Theirs"):
        cells("--method", "theirs")


@pytest.mark.parametrize(
    ("asked", "spelt"),
    [
        ("metis[recursive=false]", "metis"),
        ("metis[ recursive = True ]", "metis[recursive=true]"),
        ("dirichlet[alpha=0.50]", "dirichlet[alpha=0.5]"),
    ],
)
def test_a_scheme_is_one_cell_under_every_spelling(asked: str, spelt: str, toy: str) -> None:
    first, second = (cells("--table", toy, "--partition", text) for text in (asked, spelt))
    assert {cell.partition.text for cell in first} == {spelt}
    assert [cell.key for cell in first] == [cell.key for cell in second]


def test_a_generated_graph_is_one_cell_under_every_spelling() -> None:
    (plain,) = cells("--dataset", "community", "--method", "fedavg")
    nodes = defaults_of(GENERATORS["community"].options)["nodes"]
    (spelt,) = cells("--dataset", f"community[nodes={nodes}]", "--method", "fedavg")
    assert spelt.key == plain.key
    (binary,) = cells("--dataset", "coauthor_cs[binary=false]", "--method", "fedavg")
    assert binary.dataset.text == "coauthor_cs[binary=false]"


@pytest.mark.parametrize(
    ("setting", "with_effect"),
    [
        ("hops=3", "--backbone gcn,sgc"),
        ("heads=4", "--backbone gcn,gat"),
        ("gpr_hops=3", "--backbone gcn,gprgnn"),
        ("gpr_dropout=true", "--backbone gcn,gprgnn"),
        ("privacy_delta=0.001", "--set privacy_noise=1 privacy_clip=1"),
    ],
)
def test_a_setting_without_effect_is_refused(setting: str, with_effect: str) -> None:
    with pytest.raises(UserError, match=f"{setting.partition('=')[0]} has no effect here: it needs"):
        cells("--method", "fedavg", "--set", setting)
    assert cells("--method", "fedavg", "--set", setting, *with_effect.split())
