"""The benchmark from Python: `run` and `results` as a paper's author calls them."""

import os
import random
import re
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pandas
import pytest
import torch
from torch import Tensor, nn

from fedsub import Results, datasets, results, run, tune
from fedsub.benchmark.execution.artifacts import folder_of
from fedsub.benchmark.execution.callbacks import Round, Stop
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.spec.given import Given
from fedsub.benchmark.spec.plan import Skip
from fedsub.datasets.errors import UserError
from fedsub.datasets.graph import build_dataset
from fedsub.datasets.options import Spec
from fedsub.datasets.partition import Partition
from fedsub.methods.core.base import register
from fedsub.methods.core.draws import GlobalDraws
from fedsub.methods.fedavg import FedAvg
from tests.benchmark.fakes import make_cell, make_record, write_method

ROOT = Path(__file__).resolve().parents[2]
SMALL: dict[str, Any] = {"clients": 3, "rounds": 2, "hidden": 8}
GRAPH = "community[nodes=300]"


@register("my-method", title="Mine", paper="none")
class MyMethod(FedAvg):
    """FedAvg under another name."""


def test_the_code_of_the_guide_runs_as_printed(
    data_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "results").mkdir()
    monkeypatch.chdir(tmp_path)
    run(dataset=GRAPH, method="fedavg", results="results", **SMALL)
    guide = (ROOT / "README.md").read_text(encoding="utf-8")
    (printed,) = re.findall(r"```python\n(from fedsub import run, results\n.*?)```", guide, re.DOTALL)
    assert 'method=["fedavg", MyMethod], seeds=5)' in printed
    names: dict[str, Any] = {"MyMethod": MyMethod}
    # Two seeds and four rounds instead of five and a hundred, for speed.
    exec(printed.replace("seeds=5)", "seeds=2, rounds=4)"), names)
    table = names["table"]
    assert isinstance(table, Results)
    frame = table.frame()
    # MyMethod is FedAvg, and has the same figures.
    scores = frame.pivot(index="seed", columns="method", values="accuracy")
    assert scores.shape == (2, 2)
    assert (scores["fedavg"] == scores["my-method"]).all()
    assert scores["fedavg"].nunique() > 1
    assert len(table.curves()) == 4 * 4
    assert list(table.pivot("method", "dataset").index) == ["fedavg", "my-method"]


def test_the_page_on_studies_runs_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/studies.md").read_text("utf-8"), re.DOTALL)
    assert len(blocks) == 3
    monkeypatch.chdir(tmp_path)
    study: dict[str, Any] = {}
    for block in blocks:
        exec(block, study)
    chosen, shares = capsys.readouterr().out.splitlines()
    assert chosen in {f"fedprox[mu={mu}]" for mu in (0.1, 1.0, 10.0)}
    assert len(shares.strip("[]").split()) == 3
    table = pandas.read_csv(tmp_path / "table.csv")
    assert table["method"].tolist() == ["local", "fedavg", chosen]
    assert {"mean", "std", "runs", "rival", "bold", "rank", "p_value"} <= {*table}
    assert "over 5 seeds" in (tmp_path / "table.md").read_text()


def test_what_cells_leave_beside_their_records_is_asked_for_by_name(tmp_path: Path) -> None:
    seeds = {**SMALL, "seeds": 2}
    found = run(dataset=GRAPH, method=MyMethod, results=tmp_path, save="predictions", **seeds)
    for record in found:
        with np.load(folder_of(tmp_path, record.key) / "predictions.npz") as saved:
            assert len(saved["output"]) == len(saved["role"])
    # The earlier runs have no embeddings, and this call does not run them again.
    with pytest.warns(UserWarning, match="2 finished cells lack files of embeddings: make them with --rerun"):
        run(dataset=GRAPH, method=MyMethod, results=tmp_path, save=["embeddings"], **seeds)
    run(dataset=GRAPH, method=MyMethod, results=tmp_path, save=["embeddings"], rerun=True, **seeds)
    assert all((folder_of(tmp_path, record.key) / "embeddings.npz").is_file() for record in found)


def test_what_is_on_record_needs_no_graph(
    data_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It needs no writable folder either: a clone holds records whose graphs are not available."""
    one: dict[str, Any] = {"dataset": "cora", "method": "fedavg", "results": tmp_path, **SMALL}
    (record,) = run(**one)
    monkeypatch.setattr(
        "fedsub.benchmark.execution.run.keep_available",
        lambda cells, download: ([], [Skip("cora", "gone")] * len(cells)),
    )
    monkeypatch.setattr(Records, "append", lambda *arguments: pytest.fail("nothing is written"))
    assert [*run(**one)] == [record]
    with pytest.raises(UserError, match="cora: gone"):
        run(**{**one, "rounds": 3})


def test_a_class_and_a_graph_reach_the_workers_and_their_rounds_and_files_this_process(
    tmp_path: Path,
) -> None:
    graph, seen = datasets.load("community", nodes=300), list[Round]()
    given = {**SMALL, "seeds": 2}
    there: dict[str, Any] = {
        "workers": 2,
        "callbacks": [seen.append],
        "results": tmp_path,
        "save": "predictions",
    }
    table, plain = run(graph, method=MyMethod, **given, **there), run(GRAPH, method="fedavg", **given)
    assert table.frame()["accuracy"].tolist() == plain.frame()["accuracy"].tolist()
    assert set(table.frame()["method"]) == {"my-method"}
    told = {(each.cell.seed, each.round): each.scores["test"] for each in seen}
    assert sorted(told) == [(seed, number) for seed in (0, 1) for number in (1, 2)]
    assert [told[0, 1], told[0, 2]] == pytest.approx(table.records[0].curve["test"], abs=1e-3)
    assert all((folder_of(tmp_path, record.key) / "predictions.npz").is_file() for record in table)


def test_graphs_and_partitions_may_be_objects() -> None:
    graph = networkx.karate_club_graph()
    for node, content in graph.nodes(data=True):
        content |= {"x": [float(node % 3), 1.0], "label": int(content["club"] == "Officer")}
    owner = np.arange(34) % 2
    (record,) = run(dataset=graph, partition=owner, clients=2, method=Spec("fedavg"), rounds=1)
    assert record.result.partition_statistics["nodes_held"] == 34
    assert record.cell.files

    def halves(dataset: datasets.Dataset, clients: int, seed: int) -> np.ndarray:
        return np.arange(dataset.nodes) % clients

    table = run(dataset=[graph, GRAPH], partition=halves, clients=2, method="fedavg", rounds=1)
    assert set(table.frame()["partition"]) == {"halves"}
    assert table.records[0].result.partition_statistics == record.result.partition_statistics
    sets = [{*range(0, 34, 2)}, {*range(1, 34, 2)}]
    for other in (owner.tolist(), sets, [sets], dict(enumerate(owner.tolist()))):
        (same,) = run(dataset=graph, partition=other, clients=2, method="fedavg", rounds=1)
        assert same.key == record.key


def test_a_graph_without_labels_and_with_a_path_for_its_name_predicts_links() -> None:
    graph = networkx.karate_club_graph()
    for node, content in graph.nodes(data=True):
        content |= {"x": [float(node % 3), 1.0], "label": -1}
    graph.name = "clubs/karate.pt"
    (record,) = run(dataset=graph, clients=2, method="fedavg", task="link-prediction", rounds=1)
    assert record.cell.dataset == Spec("clubs_karate_pt")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"seeds": 0}, "seeds must be a count"),
        ({"method": []}, "an empty list selects nothing"),
        ({"rounds": []}, "an empty list selects nothing"),
        ({"timeout": 3}, "has no argument timeout"),
        ({"save": "model"}, "save needs a folder"),
        ({"checkpoint": -3}, "checkpoint must be seconds"),
        ({"callbacks": print}, "callbacks must be a list of functions"),
        ({"leavers": "7@1"}, "clients are numbered from 0 to 1"),
        ({"dataset": 7}, "a graph cannot be a int"),
        ({"partition": "metis", "method": type("Bare", (FedAvg,), {})}, "put @register"),
    ],
)
def test_mistakes_are_sentences(given: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        run(**{"dataset": GRAPH, "clients": 2, "method": "fedavg", **given})  # type: ignore[arg-type]


class Perceptron(nn.Module):
    """A user's network that reads no edges."""

    def __init__(self, features: int, classes: int, hidden: Sequence[int]) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(features, hidden[0]), nn.ReLU(), nn.Linear(hidden[0], classes))

    def forward(self, graph: Any, h: Tensor) -> Tensor:
        """Logits, (nodes, classes)."""
        logits: Tensor = self.layers(h)
        return logits


def test_code_that_only_a_table_names_runs_where_it_is_trusted(tmp_path: Path) -> None:
    plugin, table = write_method(tmp_path / "mine.py"), tmp_path / "mine.toml"
    table.write_text(f"extends = 'quick'\n[grid]\nmethod = [{str(plugin)!r}]\n")
    asked: dict[str, Any] = {"dataset": "community[nodes=60]", "rounds": 1, "seeds": 1, "progress": False}
    with pytest.raises(UserError, match="runs only if you name the file or give --trust"):
        run(table=str(table), **asked)
    assert len(run(table=str(table), trust=True, **asked).records) == 1
    assert len(run(table=str(table), method=plugin, **asked).records) == 1


def test_a_network_is_a_class_a_function_or_a_path(tmp_path: Path) -> None:
    path = tmp_path / "gat.py"
    path.write_text("from torch import nn\n\n\nclass Linear(nn.Module):\n    pass\n")
    table = run(dataset=GRAPH, method="local", backbone=["mlp", Perceptron], **SMALL)
    mlp, own = table.records
    assert (mlp.backbone, own.backbone) == ("mlp", "Perceptron")
    assert mlp.cell.files == "" != own.cell.files
    again = run(dataset=GRAPH, method="local", backbone=Perceptron, **SMALL)
    assert again.records[0].key == own.key
    assert again.records[0].metrics == own.metrics
    with pytest.raises(UserError, match=r"gat.py has no function network\(\)"):
        run(dataset=GRAPH, method="local", backbone=path, **SMALL)
    with pytest.raises(UserError, match="a backbone cannot be 3"):
        run(dataset=GRAPH, method="local", backbone=3, **SMALL)


def test_a_failed_cell_is_said_and_the_others_stay() -> None:
    @register("stumbling", title="", paper="")
    class Stumbling(FedAvg):
        def build(self) -> None:
            super().build()
            if self.setting.seed == 1:
                raise RuntimeError("stumbled")

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        table = run(dataset=GRAPH, method=Stumbling, seeds=2, **SMALL)
    assert any("1 of 2 cells failed" in str(each.message) for each in said)
    assert [record.cell.seed for record in table.failures] == [1]
    assert "stumbled" in table._repr_html_()
    with pytest.raises(UserError, match=r"1 of 1 cells failed.*stumbled"):
        run(dataset=GRAPH, method=Stumbling, seeds=[1], **SMALL)


def test_a_run_leaves_the_programs_random_numbers_alone() -> None:
    def drawn() -> tuple[float, ...]:
        return random.random(), float(np.random.random()), float(torch.rand(()))  # noqa: NPY002

    draws = GlobalDraws()
    before = draws.values
    expected = [drawn(), drawn()]
    draws.values = before
    found = [drawn()]
    run(dataset=GRAPH, method="fedavg", seeds=1, **SMALL)
    assert [*found, drawn()] == expected


def test_a_callback_ends_a_cell_as_stopped(tmp_path: Path) -> None:
    def early(done: Round) -> None:
        if done.cell.seed == 0 and done.round == 1:
            raise Stop("no hope")

    one: dict[str, Any] = {"dataset": GRAPH, "method": "fedavg", "seeds": 2, "results": tmp_path, **SMALL}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = run(**one, callbacks=[early])
    assert [record.status for record in found] == ["stopped", "ok"]
    assert not found.failures
    assert [record.status for record in results(tmp_path)] == ["stopped", "ok"]
    # A stopped run has no result, and is run again.
    assert [record.status for record in run(**one)] == ["ok", "ok"]


def test_a_list_of_values_is_a_grid() -> None:
    found = run(
        dataset=GRAPH, method="local", clients=2, rounds=1, learning_rate=[0.01, 0.03], hidden=[[8], [8, 4]]
    ).frame()
    points = [*zip(found["learning_rate"], found["hidden"], strict=True)]
    assert {*points} == {(rate, hidden) for rate in (0.01, 0.03) for hidden in ("8", "8+4")}
    assert len(points) == 4 * found["seed"].nunique()
    (one,) = run(dataset=GRAPH, method="local", clients=2, rounds=1, seeds=1, hidden=[8, 4])
    assert one.cell.architecture.hidden == (8, 4)
    arrays: dict[str, Any] = {
        "rounds": np.int64(1),
        "hidden": np.array([8, 4]),
        "learning_rate": np.array([0.01, 0.03]),
    }
    several = run(GRAPH, "metis", range(2, 4), "local", seeds=1, **arrays)
    assert {(record.cell.clients, record.cell.schedule.learning_rate) for record in several} == {
        (clients, rate) for clients in (2, 3) for rate in (0.01, 0.03)
    }
    assert {record.cell.architecture.hidden for record in several} == {(8, 4)}


def test_finished_cells_are_told_unless_it_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    one: dict[str, Any] = {"dataset": GRAPH, "method": "local", "seeds": 2, **SMALL}
    run(**one)
    assert "[2/2] " in capsys.readouterr().err
    run(**one, progress=False)
    assert capsys.readouterr().err == ""


def test_a_frame_holds_one_type_a_column() -> None:
    given = {"fedgta": 16, "fedstruct": "global"}
    records = [make_record(make_cell(method=each, options={"degrees": given[each]})) for each in given]
    found = Results(tuple(records)).frame()
    assert found["options.degrees"].tolist() == ["16", "global"]


def test_curves_have_what_a_method_reports_of_every_round() -> None:
    found = Results((make_record(make_cell(), by_round={"sparsity": [10.0, 20.0]}),))
    assert found.curves()["sparsity"].tolist() == [10.0, 20.0]


def test_clients_of_an_attribute_a_file_and_of_what_is_given_are_counted(tmp_path: Path) -> None:
    graph = networkx.path_graph(12)
    for node, values in graph.nodes(data=True):
        values |= {"x": [float(node), 1.0], "y": node % 2, "ward": "abc"[node % 3]}
    by_name, in_sets = ["Oslo", "Rome", "Bern"] * 4, [{*range(4)}, {*range(4, 8)}, {*range(8, 12)}]
    np.save(tmp_path / "clients.npy", np.arange(12, dtype=np.uint8) % 3)
    in_file = f"file[path={tmp_path / 'clients.npy'}]"
    for given in (np.arange(12) % 3, by_name, in_sets, in_file, "attribute[key=ward]"):
        found = run(dataset=graph, partition=given, method="local", rounds=1, seeds=1)
        assert [record.cell.clients for record in found] == [3]
    assert found.by_client()["name"].tolist() == ["a", "b", "c"]


def test_numba_has_a_folder_where_nothing_can_be_written() -> None:
    code = "import os; os.access = lambda *asked: False; import fedsub; print(os.environ['NUMBA_CACHE_DIR'])"
    kept = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    done = subprocess.run([sys.executable, "-c", code], env=kept, capture_output=True, text=True, check=True)
    assert "fedsub-numba-" in done.stdout
    assert not Path(done.stdout.strip()).exists()


def test_the_best_of_a_search_runs_as_it_was_found(data_directory: Path, tmp_path: Path) -> None:
    found = tune(GRAPH, "louvain", 3, "ditto", trials=4, rounds=6, results=tmp_path, progress=False)
    (outcome,) = found.outcomes
    assert (outcome.method, len(outcome.rows), outcome.left_out) == ("ditto", 4, 0)
    frame = found.frame()
    assert frame["trial"].tolist() == [0, 1, 2, 3]
    assert frame["first"].notna().all()
    assert frame["validation"].notna().sum() == 2
    assert frame.loc[frame["validation"].idxmax(), "best"]
    best, before = found.best("ditto"), {record.key for record in results(tmp_path)}
    assert best["rounds"] == 6
    (record,) = run(GRAPH, "louvain", 3, seeds=1, progress=False, **best)
    # The search has run it with all rounds.
    assert record.cell.with_seed(1000).key in before
    with pytest.raises(UserError, match="belong to searches"):
        run(GRAPH, "louvain", 3, seeds=[1000], **best)
    again = tune(GRAPH, "louvain", 3, "ditto", trials=4, rounds=6, results=tmp_path, progress=False)
    assert again.best() == best


def test_a_search_among_several_must_be_named(data_directory: Path, tmp_path: Path) -> None:
    given: dict[str, Any] = {"trials": np.int64(2), "cap": 0, "rounds": 3, "hidden": 8, "progress": False}
    found = tune(GRAPH, "metis", 3, ["fedavg", MyMethod], **given)
    assert found.best("my-method")["method"] == "my-method"
    assert found.best("fedavg", clients=3, hidden=8)["hidden"] == [8]
    with pytest.raises(UserError, match="2 searches match"):
        found.best()


def test_a_given_partition_keeps_its_edges_and_names_and_fits_its_graph() -> None:
    graph = datasets.load("community[nodes=60]")
    nodes = (np.arange(30), np.arange(30, 60))
    edges, none = np.array([[0], [59]]), np.zeros((2, 0))
    kinds = [(edges, ("a", "b")), (none, ("a", "b")), (none, ("a", "c"))]
    parts = [Partition("own", nodes, *kind) for kind in kinds]
    given = [Given() for _ in parts]
    drawn = []
    for each, part in zip(given, parts, strict=True):
        name = each.partition(part, graph)
        drawn.append(each.objects["partition scheme", name](graph, 2, 0))
    assert [each.edges.tolist() for each in drawn] == [[[0], [59]], [[], []], [[], []]]
    assert drawn[0].names == ("a", "b")
    assert given[0].digests != given[1].digests != given[2].digests
    source, target = np.arange(29), np.arange(1, 30)
    lone = build_dataset("lone", source, target, np.ones((60, 2)), np.arange(60) % 2)
    with pytest.raises(UserError, match="only the largest component is used: set largest_component=false"):
        run(lone, parts[0], method="local", rounds=1, progress=False)
