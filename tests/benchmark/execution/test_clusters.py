"""Ray and Slurm without a cluster: a stand-in for Ray's scheduler, submitit's own local ones."""

import json
import math
import os
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest
import submitit
import torch

from fedsub.benchmark.execution.engines import RayEngine, SlurmEngine
from fedsub.benchmark.execution.engines.base import lacked_memory
from fedsub.benchmark.execution.leases import Leases, leased
from fedsub.benchmark.execution.runner import ended
from fedsub.benchmark.records.folder import TRIALS, Records
from fedsub.benchmark.records.record import Record
from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.request import SEARCH_SEEDS
from fedsub.datasets.errors import UserError
from tests.benchmark.fakes import (
    deadly_run,
    failed,
    make_cell,
    make_cells,
    make_record,
    once_deadly_run,
    quick_run,
)


class RayError(Exception):
    pass


class LocalRayletDiedError(RayError):
    pass


class RayTaskError(RayError):
    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause


@dataclass
class PlayedRay:
    """A stand-in for Ray that runs a task when its result is awaited; seeds in `lost` fail once."""

    lost: tuple[int, ...] = ()
    nodes_there: list[dict[str, Any]] = field(
        default_factory=lambda: [{"Alive": True, "Resources": {"CPU": 4.0, "memory": 8e9}}]
    )
    asked: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    most_pending: int = 0
    loss: type[RayError] = RayError
    exceptions: ClassVar[Any] = types.SimpleNamespace(
        RayError=RayError, RayTaskError=RayTaskError, LocalRayletDiedError=LocalRayletDiedError
    )

    def install(self, monkeypatch: pytest.MonkeyPatch) -> Self:
        monkeypatch.setitem(sys.modules, "ray", self)
        return self

    def init(self, **arguments: Any) -> None:
        self.cores = arguments.get("num_cpus", 4)

    def shutdown(self) -> None: ...

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": float(self.cores)}

    def nodes(self) -> list[dict[str, Any]]:
        return self.nodes_there

    def remote(self, work: Callable[[Cell], Record]) -> Any:
        def submit(options: dict[str, Any], cell: Cell) -> Callable[[], Record]:
            is_first = all(seed != cell.seed for seed, _ in self.asked)
            self.asked.append((cell.seed, options))

            def finish() -> Record:
                if is_first and cell.seed in self.lost:
                    raise self.loss("the node died")
                try:
                    return work(cell)
                except Exception as error:
                    raise RayTaskError(error) from error

            return finish

        return types.SimpleNamespace(
            options=lambda **options: types.SimpleNamespace(remote=lambda cell: submit(options, cell))
        )

    def wait(self, pending: list[Any], num_returns: int) -> tuple[list[Any], list[Any]]:
        self.most_pending = max(self.most_pending, len(pending))
        return pending[:num_returns], pending[num_returns:]

    def get(self, finish: Callable[[], Record]) -> Record:
        return finish()


def test_ray_takes_a_cell_when_there_are_cores_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = PlayedRay().install(monkeypatch)
    taken: list[int] = []

    def queue() -> Iterator[Cell]:
        for cell in make_cells(6):
            taken.append(cell.seed)
            yield cell

    records = RayEngine(workers=2, threads=3).map(quick_run, queue(), failed)
    assert next(records).cell.seed == 0
    assert taken == [0, 1]
    assert [record.cell.seed for record in records] == [1, 2, 3, 4, 5]
    assert ray.cores == 6
    assert ray.most_pending == 2
    (record,) = RayEngine(1).map(quick_run, [make_cell(device="cuda")], failed)
    assert "no node of this Ray cluster has a GPU" in str(record.error)


def test_a_cell_that_ray_loses_is_tried_once_more_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = PlayedRay(lost=(1,)).install(monkeypatch)
    records = list(RayEngine(2, memory=lambda cell: 800.0).map(quick_run, make_cells(3), failed))
    assert sorted((record.cell.seed, record.status) for record in records) == [(n, "ok") for n in range(3)]
    first, second = (needs for seed, needs in ray.asked if seed == 1)
    assert (second["num_cpus"], second["memory"]) == (4.0, 2 * first["memory"])


@pytest.mark.parametrize("dead", ["raylet", "nodes"])
def test_cells_without_a_node_are_left_to_run(dead: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = PlayedRay(lost=(1, 2, 3)).install(monkeypatch)
    records = RayEngine(2).map(quick_run, make_cells(4), failed)
    assert next(records).status == "ok"
    if dead == "raylet":
        ray.loss = LocalRayletDiedError
    else:
        ray.nodes_there[0]["Alive"] = False
    with pytest.raises(UserError, match="Ray has no node left; 2 cells did not finish"):
        list(records)


def test_refused_memory_twice_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = PlayedRay().install(monkeypatch)
    (record,) = RayEngine(1).map(lambda cell: failed(cell, "MemoryError: no more"), make_cells(1), failed)
    assert record.error == "MemoryError: no more"
    assert len(ray.asked) == 2


def test_torchs_lack_of_memory_is_one() -> None:
    with pytest.raises(RuntimeError) as raised:
        torch.empty(2**50)
    assert lacked_memory(ended(make_cell(), raised.value))


def test_a_cell_killed_within_its_time_is_tried_once_more_in_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = PlayedRay().install(monkeypatch)
    found = RayEngine(1, timeout=60.0).map(deadly_run, make_cells(2), failed)
    records = {each.cell.seed: each for each in found}
    assert "was killed" in (records[1].error or "")
    assert (records[0].error, [seed for seed, _ in ray.asked]) == (None, [0, 1, 1])


def test_a_job_that_is_lost_is_tried_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "first"))
    # Seconds for a result to show on a shared disk after its job ended.
    monkeypatch.setattr(submitit.Job, "_results_timeout_s", 1)
    engine = SlurmEngine(tmp_path / "jobs", cluster="local")
    records = list(engine.map(once_deadly_run, make_cells(2), failed))
    assert [(record.cell.seed, record.status) for record in records] == [(0, "ok"), (1, "ok")]
    assert os.getpid() not in {record.extras["process"] for record in records}


def test_a_job_keeps_its_lease_and_its_record_when_its_submitter_is_killed(tmp_path: Path) -> None:
    cell = make_cell()
    submitter = (
        "import json, os, signal, sys; from pathlib import Path\n"
        "from fedsub.benchmark.execution.leases import Leases, holder\n"
        "Leases(Path(sys.argv[1])).__enter__().claim(sys.argv[2]); print(json.dumps(holder()), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    claim = (
        "import sys; from pathlib import Path; from fedsub.benchmark.execution.leases import Leases\n"
        "with Leases(Path(sys.argv[1])) as leases: print(leases.claim(sys.argv[2]))"
    )

    def python(code: str) -> str:
        command = [sys.executable, "-c", code, str(tmp_path), cell.key]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    holder = json.loads(python(submitter))
    claimed: list[str] = []

    def work(cell: Cell) -> Record:
        claimed.append(python(claim))
        return quick_run(cell)

    # As of a first job that was lost on another node.
    lost = {**holder, "machine": "gone", "submitter": holder}
    (tmp_path / "leases" / f"{cell.key}.lease").write_text(json.dumps(lost))
    record = leased(work, tmp_path, holder, cell)
    assert claimed == ["False"]
    assert [found.key for found in [*Records(tmp_path).every()]] == [record.key]
    assert python(claim) == "True"


def test_a_job_leaves_a_cell_that_another_has_begun(tmp_path: Path) -> None:
    cell = make_cell()
    with Leases(tmp_path) as others:
        others.claim(cell.key)
        with pytest.raises(UserError, match="another process is running this cell"):
            leased(quick_run, tmp_path, {"machine": "gone"}, cell)


def test_a_job_keeps_of_a_trial_what_its_submitter_keeps(tmp_path: Path) -> None:
    cell = make_cell(protocol=TRIALS, seed=SEARCH_SEEDS[0])
    leased(lambda cell: make_record(cell, extras={"large": 1.0}), tmp_path, {"machine": "gone"}, cell)
    (record,) = Records(tmp_path).every()
    assert not record.extras


def test_a_job_of_slurm_always_has_an_end(tmp_path: Path) -> None:
    """Slurm takes whole minutes, and no infinite time."""
    engines = [SlurmEngine(tmp_path, timeout=timeout) for timeout in (None, math.inf, 61.0)]
    asked = [engine._needs(make_cells(1), 1) for engine in engines]
    assert [needs["timeout_min"] for needs in asked] == [24 * 60, 24 * 60, 2]
