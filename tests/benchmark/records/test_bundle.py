import json
import shutil
import sys
from pathlib import Path
from zipfile import ZipFile

import pyarrow
import pytest
from pyarrow import parquet

from fedsub.benchmark.cli.commands import main
from fedsub.benchmark.cli.parser import parse
from fedsub.benchmark.records import bundle, curves
from fedsub.benchmark.records.bundle import MANIFEST, unpack
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.records.latest import verified_by
from fedsub.datasets.errors import UserError
from tests.benchmark.fakes import METRIC, make_cell, make_record, stored, write_method

TABLE = """
[grid]
dataset = ["./rings"]
partition = ["metis"]
clients = [2]
method = ["./mine.py", "local"]
backbone = ["gcn"]
[settings]
rounds = 2
"""


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a bundle with exactly the files that a study needs; the study's folder is gone."""
    home, path = tmp_path / "home", tmp_path / "study.zip"
    (home / "rings").mkdir(parents=True)
    monkeypatch.chdir(home)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    write_method(Path("mine.py"), "shift = beside.shift", "import beside")
    Path("beside.py").write_text("shift = 1\n")
    Path("table.toml").write_text(TABLE)
    Path("rings/nodes.csv").write_text("id,x,label\n" + "".join(f"{i},{i % 3},{i % 2}\n" for i in range(60)))
    Path("rings/edges.csv").write_text("source,target\n" + "".join(f"{i},{i + 1}\n" for i in range(59)))
    assert main(parse(["--table", "table.toml", "--engine", "in-process", "--trust"])) == 0
    assert main(parse(["bundle", str(path), "--table", "table.toml"])) == 0
    monkeypatch.chdir(tmp_path)
    shutil.rmtree(home)
    monkeypatch.setattr(sys, "path", sys.path[1:])
    sys.modules.pop("beside", None)
    with ZipFile(path) as archive:
        names = archive.namelist()
        assert json.loads(archive.read(MANIFEST))["versions"]["torch"]
    assert {"tables/table.toml", "results/runs/rings.jsonl.gz", "results/curves/rings.parquet"} <= {*names}
    parts = {"mine.py", "beside.py", "nodes.csv", "edges.csv"}
    assert {Path(name).name for name in names if name.startswith("parts/")} == parts
    return path


def test_a_bundle_is_verified_where_nothing_else_is(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verify = ["verify", str(study), "--engine", "in-process"]
    capsys.readouterr()
    assert main(parse(verify)) == 0
    said = capsys.readouterr().err
    assert "1 records run again: no differences" in said
    assert "which runs only with --trust" in said
    assert main(parse([*verify, "--trust"])) == 0
    assert "2 records run again: no differences" in capsys.readouterr().err
    sys.modules.pop("beside", None)


def test_a_bundle_holds_the_metrics_of_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    Path("share_right.py").write_text(METRIC)
    Path("chosen.py").write_text(METRIC.replace("share_right", "chosen"))
    grid = TABLE.replace('"./rings"', '"community[nodes=200]"').replace('"./mine.py", ', "")
    table = f'metrics = ["accuracy", "./share_right.py"]{grid}selection_metric = "./chosen.py"\n'
    Path("table.toml").write_text(table)
    assert main(parse(["--table", "table.toml", "--engine", "in-process", "--trust"])) == 0
    bundle = ["bundle", str(tmp_path / "study.zip"), "--table", "table.toml"]
    assert main(parse(bundle)) == 0
    monkeypatch.chdir(tmp_path)
    home.rename(tmp_path / "away")
    verify = ["verify", "study.zip", "--engine", "in-process", "--trust", "--by", "me"]
    assert main(parse(verify)) == 0
    assert "1 records run again: no differences" in capsys.readouterr().err
    assert [*verified_by(Path("results"))] == [each["key"] for each in stored(Path("away/results"))]
    monkeypatch.chdir(tmp_path / "away")
    Path("share_right.py").write_text(METRIC.replace("/ items", "/ 2 / items"))
    assert main(parse(bundle)) == 0
    assert "they have changed since the run" in capsys.readouterr().err


def test_another_content_is_not_run(study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.zip"
    with ZipFile(study) as archive, ZipFile(other, "w") as changed:
        for name in archive.namelist():
            content = archive.read(name)
            changed.writestr(name, content.replace(b"shift = 1", b"shift = 2"))
    assert main(parse(["verify", str(other), "--engine", "in-process", "--trust"])) == 1
    assert "1 of user-supplied files that have changed since" in capsys.readouterr().err


NAMES = ["../evil.txt", "/tmp/evil.txt", "results/../../evil.txt", "results/.hidden", "parts\\..\\evil.txt"]


@pytest.mark.parametrize("name", [*NAMES, "other.txt", "results/a\nb"])
def test_a_name_that_leads_elsewhere_is_refused(name: str, tmp_path: Path) -> None:
    path, folder = tmp_path / "bad.zip", tmp_path / "folder"
    folder.mkdir()
    with ZipFile(path, "w") as archive:
        archive.writestr(MANIFEST, '{"parts": {}}')
        archive.writestr(name, "x")
    with pytest.raises(UserError, match="is not a bundle"):
        unpack(path, folder)
    assert not list(tmp_path.rglob("evil.txt"))


@pytest.mark.parametrize(
    "manifest",
    ['{"parts": {"d": {"method": "../mine.py"}}}', '{"parts": 3}', "[]", "{", '{"parts": {"d": []}}'],
)
def test_a_manifest_that_is_none_is_refused(manifest: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.zip"
    with ZipFile(path, "w") as archive:
        archive.writestr(MANIFEST, manifest)
    with pytest.raises(UserError, match=r"bad\.zip"):
        unpack(path, tmp_path / "folder")


def test_what_is_no_bundle_or_too_large_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bad.zip"
    with pytest.raises(UserError, match=r"bad\.zip"):
        unpack(path, tmp_path / "folder")
    path.write_bytes(b"none")
    with pytest.raises(UserError, match="is not a bundle"):
        unpack(path, tmp_path / "folder")
    with ZipFile(path, "w") as archive:
        archive.writestr("results/a", "x" * 1000)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"xxx", b"xyx", 1))
    with pytest.raises(UserError, match="is not a bundle"):
        unpack(path, tmp_path / "folder")
    path.write_bytes(content)
    monkeypatch.setattr(bundle, "LARGEST", 999)
    with pytest.raises(UserError, match="holds more than"):
        unpack(path, tmp_path / "folder")
    Records(tmp_path).append(make_record(make_cell(), curve={"round": [1], "test": [40.0]}))
    Records(tmp_path).pack()
    (packed,) = tmp_path.glob("curves/*.parquet")
    content = packed.read_bytes()
    parquet.write_table(pyarrow.table({"id": ["0" * 16], "round": ["1"]}), packed)
    records = Records(tmp_path)
    assert [dict(record.curve) for record in records.every()] == [{}]
    assert "holds no curves" in records.warnings()[0]
    packed.write_bytes(content)
    monkeypatch.setattr(curves, "LARGEST", 15)
    records = Records(tmp_path)
    assert [dict(record.curve) for record in records.every()] == [{}]
    assert "unpacks to more than" in records.warnings()[0]
