"""Runs that are interrupted, killed or share their folder: nothing is lost or run twice."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.records.record import Record
from tests.benchmark.fakes import failed, make_record, quick_run, run, stored, wait_until

ROOT = Path(__file__).resolve().parents[3]
ONE = ("--method", "fedavg", "--engine", "in-process")
GRID = ("--method", "fedavg", "--seeds", "12", "--workers", "2")
PATIENCE = 300.0
"""Seconds until a process without a record counts as stuck; on a busy machine the first takes a minute."""


def start(folder: Path, work: str, *argv: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.benchmark.fakes", work, *argv, "--results", str(folder)]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        # A test run in the background of a shell ignores Ctrl-C, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def wait_for_records(process: subprocess.Popen[str], folder: Path, count: int) -> None:
    runs = folder / "runs"
    deadline = time.monotonic() + PATIENCE
    while sum(path.read_bytes().count(b'{"key"') for path in runs.glob("*.jsonl")) < count:
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            pytest.fail(f"no {count} records: {process.communicate()[1]}")
        time.sleep(0.05)


def test_kill_9_in_mid_grid_loses_and_doubles_nothing(tmp_path: Path) -> None:
    process = start(tmp_path, "slow_run", *GRID)
    wait_for_records(process, tmp_path, 3)
    process.kill()
    process.communicate()
    before = stored(tmp_path)
    assert 3 <= len(before) < 12
    # The workers notice that their parent is gone.
    workers = {record["extras"]["process"] for record in before}
    wait_until(
        lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers), 10, "a worker outlived it"
    )
    assert run(tmp_path, *GRID, "--engine", "in-process") == 0
    after = stored(tmp_path)
    assert after[: len(before)] == before
    assert sorted(record["seed"] for record in after) == list(range(12))


def test_three_processes_on_one_folder_run_nothing_twice_though_one_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    log.touch()
    monkeypatch.setenv("FAKE_LOG", str(log))
    grid = ("--method", "fedavg", "--seeds", "12", "--engine", "in-process")
    processes = [start(tmp_path, "logged_run", *grid) for _ in range(3)]
    wait_until(log.read_text, PATIENCE, "no process began a cell")
    (killed,) = (process for process in processes if process.pid == int(log.read_text().split()[0]))
    killed.kill()
    killed.communicate()
    for process in processes:
        if process is not killed:
            _, errors = process.communicate(timeout=PATIENCE)
            assert process.returncode == 0, errors
    assert sorted(record["seed"] for record in stored(tmp_path)) == list(range(12))
    runs = [int(line.split()[1]) for line in log.read_text().splitlines()]
    assert {*runs} == {*range(12)}
    assert len(runs) <= 12 + 1


def test_what_another_process_finished_meanwhile_is_not_run(tmp_path: Path) -> None:
    ran = []

    def work(cell: Any) -> Record:
        ran.append(cell.seed)
        other = dataclasses.replace(cell, seed=cell.seed + 1)
        Records(tmp_path).append(make_record(other))
        return quick_run(cell)

    assert run(tmp_path, *ONE, "--seeds", "4", work=work) == 0
    assert ran == [0, 2]


@pytest.mark.parametrize("argv", [("--seeds", "4"), ("--seeds", "4", "--rerun")])
def test_what_another_process_tried_meanwhile_is_not_tried_again(
    argv: tuple[str, ...], tmp_path: Path
) -> None:
    ran = []

    def work(cell: Any) -> Record:
        ran.append(cell.seed)
        if cell.seed % 2 == 0:
            other = failed(dataclasses.replace(cell, seed=cell.seed + 1), "as it did before")
            Records(tmp_path).append(other, replace=True)
        return failed(cell, "as it did before")

    assert run(tmp_path, *ONE, "--seeds", "4", work=lambda cell: failed(cell, "as it did before")) == 1
    assert run(tmp_path, *ONE, *argv, work=work) == 1
    assert ran == [0, 2]


def test_ctrl_c_keeps_finished_cells_and_says_so_in_one_line(tmp_path: Path) -> None:
    process = start(tmp_path, "slow_run", *GRID)
    wait_for_records(process, tmp_path, 2)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert errors.splitlines()[-1].startswith("fedsub: interrupted; finished cells are kept")
    assert "Traceback" not in errors
    assert len(stored(tmp_path)) >= 2
    assert (tmp_path / "leaderboards" / "default.md").exists()
