import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fedsub import datasets
from fedsub.benchmark.cli.commands import main
from fedsub.benchmark.cli.parser import parse
from fedsub.benchmark.execution.runner import attempt, is_own, users_graphs
from fedsub.benchmark.spec import sources
from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.plan import make_plan
from fedsub.benchmark.spec.protocol import load_protocol
from fedsub.datasets.errors import UserError
from fedsub.datasets.partition import partition
from fedsub.datasets.plugins import LOADED
from tests.benchmark.fakes import quick_run, stored, write_method


def named(folder: Path) -> dict[str, tuple[str, ...]]:
    """Write one file of each kind to `folder`; return for each kind the filter that names it."""
    for name in ("graph.npz", "scheme.py", "clients.txt"):
        (folder / name).write_text("def partition(dataset, clients, seed, size=1): ...\n")
    (folder / "graph.py").write_text("def load(size=1): ...\n")
    (folder / "roles.py").write_text("def split(labels, partition, generator, size=1): ...\n")
    write_method(folder / "mine.py", "version = 1")
    (folder / "my_net.py").write_text("def network(features, classes): ...\n")
    return {
        "graph.npz": ("--dataset", "./graph.npz"),
        "graph.py": ("--dataset", "./graph.py[size=3]"),
        "scheme.py": ("--partition", "./scheme.py[size=3]"),
        "roles.py": ("--set", "split=./roles.py[size=3]"),
        "clients.txt": ("--partition", "file[path=clients.txt]", "--clients", "3"),
        "mine.py": ("--method", "./mine.py"),
        "my_net.py": ("--backbone", "./my_net.py"),
    }


def cell_of(*argv: str) -> Cell:
    values = {"--dataset": "community", "--method": "fedavg", **dict(zip(argv[::2], argv[1::2], strict=True))}
    options = [word for pair in values.items() for word in pair]
    (cell,) = make_plan(parse([*options, "--seeds", "1"]).request).cells
    return cell


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], tuple[str, ...]]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDSUB_DATA", raising=False)
    return named(tmp_path).__getitem__


@pytest.mark.parametrize(
    "name", ["graph.npz", "graph.py", "scheme.py", "roles.py", "clients.txt", "mine.py", "my_net.py"]
)
def test_an_edited_file_is_another_cell(name: str, write: Callable[[str], tuple[str, ...]]) -> None:
    before = cell_of(*write(name))
    assert cell_of(*write(name)).key == before.key
    Path(name).write_text(Path(name).read_text() + "edited = 1\n")
    after = cell_of(*write(name))
    assert after.key != before.key
    assert after.group != before.group
    assert Cell.from_dict(after.to_dict()).key == after.key


@pytest.mark.parametrize("name", ["graph.py", "scheme.py", "roles.py", "mine.py", "my_net.py"])
def test_a_comment_and_another_spelling_of_the_path_change_nothing(
    name: str, write: Callable[[str], tuple[str, ...]]
) -> None:
    filters = write(name)
    before = cell_of(*filters)
    content = Path(name).read_text()
    Path(name).write_text(f'"""What it is."""\n# A comment.\n\n{content}')
    elsewhere = filters[1].replace("./", f"{Path.cwd()}/")
    after = cell_of(filters[0], elsewhere)
    assert after.key == before.key
    assert after.paths != before.paths
    assert after == before


@pytest.mark.parametrize("edited", ["pkg/__init__.py", "helper.py"])
def test_all_that_a_package_beside_runs_counts(
    edited: str, write: Callable[[str], tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    filters = write("scheme.py")
    Path("pkg").mkdir()
    Path("pkg/__init__.py").write_text("one = 1\n")
    Path("pkg/mod.py").write_text("import helper\nfrom .part import two\n")
    Path("pkg/part.py").write_text("two = 2\n")
    Path("helper.py").write_text("three = 3\n")
    Path("scheme.py").write_text("from pkg.mod import two\n" + Path("scheme.py").read_text())
    monkeypatch.syspath_prepend("")
    before = cell_of(*filters).key
    Path(edited).write_text(Path(edited).read_text() + "four = 4\n")
    assert cell_of(*filters).key != before
    for name in ("pkg", "pkg.mod", "pkg.part", "helper"):
        sys.modules.pop(name, None)


def test_an_edited_module_beside_is_loaded_anew_in_one_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "numbers_of_mine.py").write_text("one = 1\n")
    (tmp_path / "shifting.py").write_text("from numbers_of_mine import one\nshift = one\n")
    scheme = tmp_path / "scheme.py"
    scheme.write_text(
        "import numpy as np\nfrom shifting import shift\n"
        "def partition(dataset, clients, seed):\n"
        "    return (np.arange(dataset.nodes) + shift) % clients\n"
    )
    graph = datasets.load("community[nodes=60]")
    first = partition(graph, str(scheme), 3, 0)
    assert partition(graph, str(scheme), 3, 0).client.tolist() == first.client.tolist()
    assert first.nodes[1][0] == 0
    # An imported module is unchanged, but holds values of another module from before its change.
    (tmp_path / "numbers_of_mine.py").write_text("one = 10 + 1\n")
    assert partition(graph, str(scheme), 3, 0).nodes[2][0] == 0
    for name in ("shifting", "numbers_of_mine"):
        sys.modules.pop(name, None)


def test_a_partition_in_the_folder_of_archives_is_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data" / "partitions").mkdir(parents=True)
    (tmp_path / "data" / "partitions" / "some.npz").touch()
    monkeypatch.setenv("FEDSUB_DATA", str(tmp_path / "data"))
    scheme = ("--partition", "file[path=partitions/some.npz]", "--clients", "3")
    assert cell_of(*scheme).files == ""
    monkeypatch.chdir(tmp_path / "data")
    assert cell_of(*scheme).files == ""
    assert cell_of(*scheme[2:], "--partition", f"file[path={tmp_path}/data/{scheme[1][10:]}").files != ""


def test_an_edited_method_runs_again_and_stands_beside_its_earlier_state(
    tmp_path: Path, write: Callable[[str], tuple[str, ...]], capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results"
    argv = parse(["--workers", "1", "--results", str(results), *write("mine.py")])
    assert main(argv, quick_run) == 0
    write_method(Path("mine.py"), "version = 2")
    assert main(argv, quick_run) == 0
    assert main(argv, quick_run) == 0
    assert "1 done before" in capsys.readouterr().err
    first, second = stored(results)
    assert first["key"] != second["key"]
    page = (results / "leaderboards" / "default.md").read_text()
    for record in (first, second):
        assert f"| mine · files {record['files'][:8]} |" in page


def test_a_method_edited_after_the_plan_gives_no_result_under_the_old_key(
    write: Callable[[str], tuple[str, ...]],
) -> None:
    argv = ["--dataset", "community[nodes=200]", "--clients", "2", "--seeds", "1", "--set", "rounds=2"]
    (cell,) = make_plan(parse([*argv, *write("mine.py")]).request).cells
    write_method(Path("mine.py"), "version = 1", "# As it was.")
    assert attempt(cell).status == "ok"
    write_method(Path("mine.py"), "version = 2")
    assert "mine.py has changed since the cells were planned" in (attempt(cell).error or "")


def test_a_method_of_the_tree_that_is_edited_makes_other_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    argv = ["--dataset", "community", "--method", "fedavg,fedprox,local,fedaux", "--seeds", "1"]

    def keys() -> dict[str, str]:
        return {cell.method: cell.key for cell in make_plan(parse(argv).request).cells}

    before = keys()
    # FedProx extends FedAvg, Local does not; FedAux imports functions from a file of FED-PUB.
    for file, others in (("fedavg.py", ["fedavg", "fedprox"]), ("fedpub/pruning.py", ["fedaux"])):
        monkeypatch.setattr(sources, "edited", {file: b"step = 2"}.copy)
        assert [name for name, key in keys().items() if key != before[name]] == others


def test_a_graph_in_a_folder_called_like_one_of_the_benchmark_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cora").mkdir()
    for name in ("nodes.csv", "edges.csv"):
        (tmp_path / "cora" / name).touch()
    monkeypatch.chdir(tmp_path)
    cell = cell_of("--dataset", "./cora")
    assert cell.dataset.name == "cora (own)"
    assert is_own(cell)
    assert not is_own(cell_of("--dataset", "cora"))


TABLE = """
[grid]
dataset = ["community[nodes=60]"]
partition = ["metis"]
clients = [2]
method = ["./mine.py", "fedavg"]
backbone = ["gcn"]
[settings]
rounds = 1
"""


@pytest.mark.parametrize("said", ["mine", "./mine.py", "mine.py"])
def test_an_override_finds_a_method_by_its_name_and_by_its_path(
    said: str, write: Callable[[str], tuple[str, ...]]
) -> None:
    write("mine.py")
    Path("table.toml").write_text(
        f"{TABLE}[[override]]\nwhen = {{ method = ['{said}'] }}\nsettings = {{ rounds = 7 }}\n"
    )
    cells = make_plan(parse(["--table", "table.toml"]).request).cells
    assert {cell.method: cell.schedule.rounds for cell in cells} == {"mine": 7, "fedavg": 1}
    # On a page the row goes by its name.
    place = {"dataset": "community[nodes=60]", "partition": "metis", "clients": 2, "backbone": "gcn"}
    assert load_protocol("table.toml").settings_for(**place, method="mine")["rounds"] == 7


@pytest.mark.parametrize("when", ['method = ["mien"]', 'dataset = ["coar"]', 'method = ["./other.py"]'])
def test_an_override_that_matches_nothing_is_refused(
    when: str, write: Callable[[str], tuple[str, ...]]
) -> None:
    write("mine.py")
    Path("table.toml").write_text(f"{TABLE}[[override]]\nwhen = {{ {when} }}\nsettings = {{ rounds = 7 }}\n")
    with pytest.raises(UserError, match="table: an override matches nothing"):
        make_plan(parse(["--table", "table.toml"]).request)


def test_the_code_of_a_table_runs_only_where_it_is_named_or_trusted(
    write: Callable[[str], tuple[str, ...]], capsys: pytest.CaptureFixture[str]
) -> None:
    write("mine.py")
    write_method(Path("mine.py"), above="open('ran', 'a').close()")
    Path("table.toml").write_text(TABLE)
    table = ["--table", "table.toml", "--results", "results"]

    def runs(*argv: str, code: int = 0) -> bool:
        for name in [name for name in sys.modules if name.startswith(LOADED)]:
            del sys.modules[name]
        Path("ran").unlink(missing_ok=True)
        assert main(parse(argv), quick_run) == code
        return Path("ran").exists()

    assert not runs("run", *table, "--dry-run")
    assert (
        "./mine.py: its code runs only if you name the file or give --trust (trust=True in Python)"
        in capsys.readouterr().err
    )
    assert runs("run", *table, "--dry-run", "--trust")
    assert runs("run", *table, "--dry-run", "--method", "./mine.py")
    run = ["run", *table, "--engine", "in-process"]
    assert not runs(*run)
    assert runs(*run, "--trust")
    for name in ("metrics = ['./mine.py']", "[settings]\nselection_metric = './mine.py'"):
        Path("scored.toml").write_text(f"{name}\n[grid]\nmethod = ['fedavg']\ndataset = ['community']\n")
        assert not runs("run", "--table", "scored.toml", *run[3:], code=2)
    for command in (["show", *table], ["report", *table], ["export", "out.csv", *table], ["list"]):
        assert not runs(*command), command
    assert "mine" in Path("results/leaderboards/table.md").read_text()
    assert "mine" in Path("out.csv").read_text()


def test_a_run_says_once_what_was_read_of_a_graph(write: Callable[[str], tuple[str, ...]]) -> None:
    for name in ("a", "b"):
        Path(name, "rings").mkdir(parents=True)
        Path(name, "rings/nodes.csv").write_text(f"id,x,label\n1,1,{name}\n2,2,c\n3,3,c\n")
        Path(name, "rings/edges.csv").write_text("source,target\n1,2\n2,3\n")
    argv = ["--dataset", "./a/rings", "./b/rings", "--clients", "2", *write("mine.py"), "local"]
    lines = [*users_graphs(make_plan(parse(argv).request).cells)]
    assert [line.partition(" nodes")[0] for line in lines] == ["rings: 3", "rings: 3"]
