import os
import signal
from functools import partial
from pathlib import Path

import pytest

from fedsub.benchmark.execution.engines import InProcess, ProcessPool, SlurmEngine, create_engine, process
from fedsub.benchmark.execution.logs import log_path, logged
from fedsub.benchmark.spec.request import Request
from tests.benchmark.fakes import (
    disk_filling_run,
    failed,
    limits_run,
    loud_run,
    make_cells,
    once_deadly_run,
    quick_run,
    torn_serve,
)


def test_a_worker_killed_in_the_middle_of_its_answer_costs_its_cell_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "_serve", torn_serve)
    (dead,) = ProcessPool(workers=1).map(quick_run, make_cells(1), failed)
    assert "killed twice" in (dead.error or "")
    (alone,) = ProcessPool(workers=1, timeout=60, retries=False).map(quick_run, make_cells(1), failed)
    assert "killed" in (alone.error or "")


def test_what_was_lost_for_want_of_memory_is_tried_again_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "first"))
    records = list(ProcessPool(workers=2).map(once_deadly_run, make_cells(4), failed))
    assert sorted(record.cell.seed for record in records) == [0, 1, 2, 3]
    assert {record.status for record in records} == {"ok"}
    # They run after all others, in separate processes.
    assert {record.cell.seed for record in records[-2:]} == {1, 2}
    alone = {record.extras["process"] for record in records[-2:]}
    assert alone.isdisjoint(record.extras["process"] for record in records[:2])


def test_a_log_is_kept_of_the_cell_that_fails(tmp_path: Path) -> None:
    records = list(ProcessPool(workers=1).map(partial(logged, loud_run, tmp_path), make_cells(2), failed))
    bad = next(record for record in records if record.status == "failed")
    (path,) = (tmp_path / "logs").iterdir()
    assert path == log_path(tmp_path, bad.key)
    text = path.read_text()
    for part in (bad.cell.title, "on standard output", "a warning of seed 1", "from a child"):
        assert part in text
    assert text.endswith("Traceback: here\n")


def test_a_log_on_a_full_disk_costs_no_record(tmp_path: Path) -> None:
    (made,) = ProcessPool(workers=1).map(partial(logged, disk_filling_run, tmp_path), make_cells(1), failed)
    assert made.error is None


def test_workers_keep_to_their_threads_and_hear_no_ctrl_c_even_while_they_start() -> None:
    """The timeout is longer than the system can wait."""
    before = os.environ.get("OMP_NUM_THREADS")
    (record,) = ProcessPool(1, threads=1, timeout=720 * 3600.0).map(limits_run, make_cells(1), failed)
    assert record.extras == {"torch": 1, "variable": "1", "held": True}
    assert os.environ.get("OMP_NUM_THREADS") == before
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_a_pool_that_is_closed_early_leaves_no_process() -> None:
    records = ProcessPool(workers=2).map(quick_run, make_cells(6), failed)
    first = next(iter(records))
    records.close()
    with pytest.raises(ProcessLookupError):
        os.kill(first.extras["process"], 0)


def test_one_cell_or_a_debugger_stays_in_process() -> None:
    assert isinstance(create_engine(Request(workers=4), cells=1), InProcess)
    assert isinstance(create_engine(Request(engine="in-process"), cells=9), InProcess)
    assert isinstance(create_engine(Request(engine="slurm"), cells=1), SlurmEngine)
    # Even with one worker, a killed cell must not end the others.
    assert create_engine(Request(), cells=9) == ProcessPool(workers=1)
    assert create_engine(Request(workers=4, threads=2), cells=3) == ProcessPool(workers=3, threads=2)
