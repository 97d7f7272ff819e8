"""A folder from which any machine can run a cell's clients, each with only its own data."""

import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedsub.benchmark.cli.commands import BAD_INPUT, main
from fedsub.benchmark.cli.parser import parse
from fedsub.benchmark.execution.flower.create import create
from fedsub.benchmark.execution.runner import make_clients
from fedsub.benchmark.spec.custom import NamedFiles, user_objects_of
from fedsub.datasets.archive import read_archive
from fedsub.datasets.errors import UserError
from fedsub.datasets.plugins import user_objects
from fedsub.methods import tasks
from tests.benchmark.fakes import METRIC, make_cell, write_method

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedsub-bench[flower]'")

from fedsub.benchmark.execution.flower.app import cell_of

CELL = make_cell(dataset="community[nodes=120]", clients=3)


def test_a_clients_file_holds_its_nodes_and_edges_alone(tmp_path: Path) -> None:
    """Also a client with fewer nodes than there are classes."""
    cell = replace(CELL, clients=60)
    federation = make_clients(cell)[2]
    create(cell, federation, tmp_path / "app")
    files = [tmp_path / "app" / "clients" / f"client-{client}.npz" for client in range(60)]
    assert sorted((tmp_path / "app" / "clients").iterdir()) == sorted(files)
    source, target = (end.numpy() for end in federation.graph.edges())
    for client, file in enumerate(files):
        raw, meta = read_archive(file)
        assert meta["classes"] == 6
        mine = (federation.client == client).numpy()
        assert np.array_equal(raw.labels, federation.labels.numpy()[mine])
        assert len(raw.source) == int((mine[source] & mine[target] & (source < target)).sum())
        assert raw.official is not None
        assert np.array_equal(raw.official[0, 0], federation.train.numpy()[mine])


@pytest.mark.parametrize("method", ["fedstruct", "fedcog", "fedsage+"])
def test_methods_that_need_others_nodes_are_refused(tmp_path: Path, method: str) -> None:
    with pytest.raises(UserError, match="runs as a simulation only, because clients"):
        create(replace(CELL, method=method), make_clients(CELL)[2], tmp_path / "app")
    assert not (tmp_path / "app").exists()


COMMAND = ("--dataset", "community[nodes=120]", "--method", "fedpub", "--clients", "3")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (("--method", "fedavg"), "not those of"),
        (("--rounds", "3", "--set", "learning_rate=0.1", "learning_rate=0.2"), "not those of"),
        (("--table", "quick", "fedpub-2"), "not those of"),
        (("--task", "link-prediction"), "runs as a simulation only: its node pairs are drawn over all"),
    ],
)
def test_what_is_no_single_federation_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changed: tuple[str, ...], said: str
) -> None:
    assert main(parse(["flower", "create", str(tmp_path / "app"), *COMMAND, *changed])) == BAD_INPUT
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(("option", "value"), [("--timeout", "5"), ("--save", "model")])
def test_what_the_engine_cannot_do_is_refused(
    option: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["run", *COMMAND, "--engine", "flower", "--results", str(tmp_path / "results"), option, value]
    with pytest.raises(SystemExit):
        parse(command)
    assert option in capsys.readouterr().err


@pytest.mark.parametrize(("method", "metric"), [("mine.py", "mine.py"), ("test_mine.py", "score.py")])
def test_files_that_an_app_cannot_hold_are_refused(method: str, metric: str, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    given = write_method(tmp_path / "one" / method), tmp_path / metric
    given[1].write_text(METRIC)
    cell = NamedFiles().named(replace(CELL, method=str(given[0]), further_metrics=(str(given[1]),)))
    refused = pytest.raises(UserError, match=rf"{method}.*: rename")
    with user_objects(user_objects_of(cell)), refused:
        create(cell, make_clients(CELL)[2], tmp_path / "app")
    assert not (tmp_path / "app").exists()


@pytest.mark.parametrize(
    ("folder", "said"),
    [("", "is not empty"), *((each, "Not a directory; choose") for each in ("mine.txt", "mine.txt/app"))],
)
def test_what_is_in_place_of_a_new_folder_is_kept(
    folder: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.txt").touch()
    assert main(parse(["flower", "create", str(tmp_path / folder), *COMMAND])) == BAD_INPUT
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("names", ["metrics = './score.py'\n{}", "{}selection_metric = './score.py'"])
def test_a_users_metric_goes_with_the_app(
    names: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("score.py").write_text(
        "from fedsub.methods.tasks.metrics import Score, metric\n@metric()\ndef score(output, items):\n"
        "    return Score(items.count / (items.count + 1), items.count)\n"
    )
    grid = "[grid]\ndataset='community[nodes=60]'\nmethod='fedavg'\npartition='metis'\nbackbone='gcn'\n"
    Path("table.toml").write_text(names.format(f"{grid}clients = 2\n[settings]\nrounds = 1\n"))
    argv = ["flower", "create", "app", "--table", "table.toml", "--trust", "--seeds", "1"]
    assert main(parse(argv)) == 0
    Path("score.py").unlink()
    config = tomllib.loads(Path("app/pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    cell = cell_of(config, Path("app"))
    found = tasks.NodeClassification.metrics_with(cell.further_metrics, cell.schedule.selection_metric)
    assert "score" in {each.name for each in found}
