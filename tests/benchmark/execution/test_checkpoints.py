"""Cells that are interrupted and go on: files, refusals, full disks, kill -9."""

import importlib.metadata
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from fedsub.benchmark.cli.commands import main
from fedsub.benchmark.cli.parser import parse
from fedsub.benchmark.execution.callbacks import Round
from fedsub.benchmark.execution.checkpoints import checkpoint_of, path_of
from fedsub.benchmark.execution.runner import run
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.records.record import Record
from fedsub.benchmark.spec.cell import Cell
from fedsub.datasets.federation import Federation
from fedsub.methods.checks.subject import communities
from fedsub.methods.core import registry
from fedsub.methods.core.state import Checkpoint
from fedsub.methods.stacked.backbones import BACKBONES
from tests.benchmark.fakes import comparable, make_cell, wait_until, with_settings

ROOT = Path(__file__).resolve().parents[3]
CELL = make_cell(dataset="community[nodes=300,communities=12]", clients=3, rounds=4, hidden=[8])
ALWAYS = 1e-9
"""Seconds between two checkpoints: one after every round."""


class Stopped(BaseException):
    """Interrupts a cell like Ctrl-C."""


def kept(results: Path, every: float = ALWAYS) -> Callable[[Cell, Federation], Checkpoint]:
    """Return what makes checkpoints in `results`."""
    return partial(checkpoint_of, results, every)


def interrupted(results: Path) -> None:
    """Leave the checkpoint of CELL, interrupted in its third round, in `results`."""

    def stop(done: Round) -> None:
        if done.round == 3:
            raise Stopped

    with pytest.raises(Stopped):
        run(CELL, callbacks=[stop], checkpoint=kept(results))
    assert path_of(results, CELL.key).is_file()


def rounds_of(results: Path) -> tuple[list[int], Record]:
    """Run CELL; return the rounds that it computed and its record."""
    seen: list[int] = []
    return seen, run(CELL, callbacks=[lambda done: seen.append(done.round)], checkpoint=kept(results))


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    return comparable(run(CELL))


def test_an_interrupted_cell_goes_on_to_the_record_of_an_uninterrupted_one(
    tmp_path: Path, whole: dict[str, Any]
) -> None:
    interrupted(tmp_path)
    seen, record = rounds_of(tmp_path)
    assert seen == [3, 4]
    assert comparable(record) == whole


def test_a_cell_with_other_metrics_starts_anew(tmp_path: Path) -> None:
    interrupted(tmp_path)
    more = replace(CELL, further_metrics=("roc_auc",))
    with pytest.warns(UserWarning, match="a different metrics; the cell starts from round 1"):
        assert "roc_auc" in run(more, checkpoint=kept(tmp_path)).metrics


def test_a_cell_that_is_shorter_than_the_interval_writes_nothing(tmp_path: Path) -> None:
    run(CELL, checkpoint=kept(tmp_path, 600))
    assert [*tmp_path.iterdir()] == []


def changed(path: Path, part: str, **parts: Any) -> None:
    found = torch.load(path, weights_only=True)
    torch.save({**found, part: {**found[part], **parts}}, path)


def flipped(path: Path) -> None:
    """One bit in the middle of a tensor."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


BROKEN: dict[str, tuple[Callable[[Path], Any], str]] = {
    "other code": (lambda path: changed(path, "stamp", code="0"), "a different code"),
    "other data": (lambda path: changed(path, "stamp", graph="0"), "a different graph"),
    "other torch": (lambda path: changed(path, "stamp", torch="1.0"), "a different torch"),
    "a flipped bit": (flipped, "it is damaged"),
    "torn": (lambda path: path.write_bytes(path.read_bytes()[:1000]), "BadZipFile"),
    "empty": (lambda path: path.write_bytes(b""), "BadZipFile"),
    "foreign": (lambda path: torch.save([1], path), "TypeError"),
    "foreign inside": (lambda path: torch.save({"stamp": 1, "state": 1}, path), "AttributeError"),
    "other state": (lambda path: changed(path, "state", method={}), "KeyError"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_checkpoint_of_no_use_is_told_and_the_cell_starts_anew(
    name: str, tmp_path: Path, whole: dict[str, Any]
) -> None:
    interrupted(tmp_path)
    spoil, why = BROKEN[name]
    spoil(path_of(tmp_path, CELL.key))
    with pytest.warns(UserWarning, match=f"cannot continue from .*({why}).*starts from round 1"):
        seen, record = rounds_of(tmp_path)
    assert seen == [1, 2, 3, 4]
    assert comparable(record) == whole


@pytest.mark.parametrize(("part", "group"), [("method", registry.GROUP), ("backbone", BACKBONES.group)])
def test_the_code_of_an_installed_plug_in_is_part_of_the_stamp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, group: str
) -> None:
    package = tmp_path / "their_package"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    point = importlib.metadata.EntryPoint("theirs", "their_package:Theirs", group)
    monkeypatch.setattr(
        importlib.metadata, "entry_points", lambda group: [point] if group == point.group else []
    )
    cell, codes = with_settings(CELL, **{part: "theirs"}), []
    for size in (1, 2):
        (package / "step.py").write_text(f"size = {size}\n")
        stamp = checkpoint_of(tmp_path, ALWAYS, cell, communities(3, 60)).stamp()
        codes.append(stamp["code of theirs"])
    assert codes[0] != codes[1]
    assert not any(name.startswith("code of") for name in kept(tmp_path)(CELL, communities(3, 60)).stamp())


def test_code_in_a_checkpoint_is_not_run(tmp_path: Path) -> None:
    class Bad:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "made"),)

    path = path_of(tmp_path, CELL.key)
    path.parent.mkdir()
    torch.save({"stamp": {}, "state": Bad()}, path)
    with pytest.warns(UserWarning, match="starts from round 1"):
        run(CELL, checkpoint=kept(tmp_path, 600))
    assert not (tmp_path / "made").exists()


def test_a_full_disk_costs_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.warns(UserWarning, match="No space left"):
            run(CELL, checkpoint=kept(tmp_path))
    assert [*(tmp_path / "checkpoints").iterdir()] == []


GRID = ("--dataset", "community[nodes=300]", "--method", "fedpub", "--clients", "3", "--rounds", "120")


def test_kill_9_in_mid_cell_costs_the_rounds_since_the_checkpoint(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = [sys.executable, "-m", "benchmark", *GRID, "--workers", "1", "--checkpoint", "0.01s"]
    process = subprocess.Popen(
        [*command, "--results", str(tmp_path / "cut")], cwd=ROOT, start_new_session=True
    )
    folder = tmp_path / "cut" / "checkpoints"
    wait_until(lambda: [*folder.glob("*.pt")], 120, "no checkpoint was written")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    (path,) = folder.glob("*.pt")
    assert 0 < torch.load(path, weights_only=True)["state"]["done"] < 120
    for name in ("cut", "whole"):
        assert main(parse([*GRID, "--engine", "in-process", "--results", str(tmp_path / name)])) == 0
    assert "1 of these cells continue from checkpoints" in capfd.readouterr().err
    assert [*folder.iterdir()] == []
    (cut,), (whole,) = (Records(tmp_path / name).every() for name in ("cut", "whole"))
    assert comparable(cut) == comparable(whole)
