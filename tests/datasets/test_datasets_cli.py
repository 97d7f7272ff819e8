"""`python -m datasets`: tables for people, JSON for programs, one sentence for mistakes."""

import json
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest

from fedsub.datasets import registry
from fedsub.datasets.cli import main

SMALL = "community[communities=6,nodes=120]"


@pytest.fixture(autouse=True)
def no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDSUB_DATA", raising=False)


def test_list_names_every_graph_and_how_to_get_the_absent(capsys: pytest.CaptureFixture[str]):
    assert main(["list"]) == 0
    text = capsys.readouterr().out
    for name in registry.names():
        assert name in text
    assert "2,708" in text
    assert "fedsub data fetch NAME" in text
    assert main(["list", "--format", "json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["cora"]["here"] == "no"
    assert rows["cora"]["edges"] == 5278
    assert rows["community"]["here"] == "generated"


def test_info(capsys: pytest.CaptureFixture[str]):
    assert main(["info", "wikics"]) == 0
    text = capsys.readouterr().out
    assert "215,603" in text
    assert "Mernyei" in text
    assert "put wikics.npz into the folder that FEDSUB_DATA names" in text
    assert main(["info", SMALL, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["measured"]["nodes"] == 120


def test_info_says_what_was_read_beside_features(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    rows = ("a,x,1,Rome,train", "b,,2,Oslo,test", "c,y,3,Oslo,test", "d,y,3,,test")
    (tmp_path / "nodes.csv").write_text("\n".join(("id,label,f1,branch,split", *rows)))
    (tmp_path / "edges.csv").write_text("from,to\na,b\nb,c\n")
    assert main(["info", str(tmp_path)]) == 0
    said = capsys.readouterr().out.splitlines()[-3:]
    assert said == ["without a label: 1 nodes", "official splits: 1", "attribute branch: 2 values"]
    # as many clients as listed values: a node without a value belongs to no client
    assert main(["partition", str(tmp_path), "--scheme", "attribute[key=branch]", "--clients", "2"]) == 0


def test_export_leaves_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    assert main(["export", SMALL]) == 0
    before = Path("community.npz").read_bytes()
    assert main(["export", "community[nodes=60]"]) == 2
    assert "community.npz exists: give another file with --output" in capsys.readouterr().err
    assert main(["export", "./community.npz"]) == 2
    assert main(["export", "./"]) == 2
    assert "there is no nodes.csv" in capsys.readouterr().err
    assert Path("community.npz").read_bytes() == before
    assert main(["export", "community[nodes=60]", "--output", "community.npz"]) == 0
    assert registry.load("./community.npz").nodes == 60


def test_a_full_disk_leaves_the_clients_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def full(stream: BinaryIO, clients: np.ndarray) -> None:
        stream.write(b"half")
        raise OSError(28, "No space left on device")

    file = tmp_path / "clients.npy"
    file.write_bytes(b"kept")
    monkeypatch.setattr(np, "save", full)
    assert main(["partition", SMALL, "--output", str(file)]) == 2
    assert "clients.npy: No space left on device" in capsys.readouterr().err
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"kept"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["export", SMALL, "--output", "mine.txt"], "the file's name must end in .npz"),
        (["info", "~nobody-here/x.csv"], "there is no graph at ~nobody-here/x.csv: check the path"),
        (["list", "--data", "a" * 300], "File name too long; check the path"),
        (["list", "--data", "/nowhere"], "the data folder /nowhere does not exist"),
        (["partition", SMALL, "--output", "clients.txt"], "the file's name must end in .npy"),
        (["partition", SMALL, "--scheme", "random", "--seed", "-1"], "give a seed of at least 0"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert sentence in captured.err
    assert captured.err.count("\n") == 1


def test_partition_prints_statistics(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    more = ["--scheme", "louvain-openfgl[delta=1]", "--output", str(tmp_path / "clients.npy")]
    assert main(["partition", SMALL, "--clients", "30", "--format", "json", *more]) == 0
    captured = capsys.readouterr()
    content = json.loads(captured.out)
    assert "added edges are not in the file" in captured.err
    assert content["dataset"] == SMALL
    assert content["statistics"]["clients"] == 30
