"""No cell stops a grid: whatever the mixture of failures, all other cells get their records."""

import re
import resource
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsub.benchmark.execution import runner
from fedsub.benchmark.records.record import Record
from fedsub.benchmark.records.store import Store
from fedsub.benchmark.spec.cell import Cell
from fedsub.datasets.partition import partition
from fedsub.datasets.registry import load
from tests.benchmark.fakes import endless_run, make_record, run, stored


def limited_memory(cell: Cell, *given: object) -> Record:
    """Run out of memory: the address space may not grow by the requested 64 GiB."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**28, limits[1]))
    try:
        return make_record(cell, float(np.ones(2**33).sum()))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def raising(kind: type[BaseException], *words: object) -> Callable[..., Record]:
    def run(cell: Cell, *given: object) -> Record:
        raise kind(*words)

    return run


def too_many_clients(cell: Cell, *given: object) -> Record:
    partition(load("community[nodes=60,communities=6]"), "metis", 100_000, cell.seed)
    raise AssertionError("it was partitioned")


def recorded(**results: object) -> Callable[..., Record]:
    return lambda cell, *given: make_record(cell, **results)  # type: ignore[arg-type]


WAYS: Mapping[str, tuple[Callable[..., Record], str]] = MappingProxyType(
    {
        "good": (recorded(), ""),
        "user error": (too_many_clients, "100000 clients"),
        "error": (raising(RuntimeError, "two\nlines \ud800"), "RuntimeError: two lines"),
        "odd extras": (recorded(extras={"model": np.random.default_rng}), "cannot be written as JSON"),
        "no figures": (recorded(metrics={"accuracy": "half"}), "metrics must be"),
        "exit": (raising(SystemExit, 3), "SystemExit: 3"),
        "memory error": (raising(MemoryError), "MemoryError"),
        "memory": (limited_memory, "Unable to allocate"),
    }
)
"""Name of a way to end → run function and words of the failure; empty if it succeeds."""
NAMES = tuple(WAYS)


def mixed_run(cell: Cell) -> Record:
    """End in the way that the seed selects; exceptions pass through `attempt` as in real runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "run", WAYS[NAMES[cell.seed % len(NAMES)]][0])
        return runner.attempt(cell)


@settings(max_examples=10)
@given(ways=st.lists(st.sampled_from(NAMES), min_size=1, max_size=8))
def test_no_failure_that_python_sees_stops_a_grid(
    ways: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Runs one cell for each of `ways`, then the failed ones again."""
    folder = tmp_path_factory.mktemp("grid")
    seeds = [number * len(NAMES) + NAMES.index(way) for number, way in enumerate(ways)]
    argv = ("--method", "fedavg", "--seeds", ",".join(map(str, seeds)) + ",", "--engine", "in-process")
    failing = [seed for seed, way in zip(seeds, ways, strict=True) if WAYS[way][1]]
    assert run(folder, *argv, work=mixed_run) == bool(failing)
    found = stored(folder)
    assert Counter(record["seed"] for record in found) == Counter(seeds)
    for record in found:
        assert record["status"] == ("failed" if record["seed"] in failing else "ok"), record
        assert re.search(WAYS[NAMES[record["seed"] % len(NAMES)]][1], record.get("error", "")), record
    assert run(folder, *argv) == 0
    again = [record["seed"] for record in stored(folder)]
    assert Counter(again[len(seeds) :]) == Counter(failing)
    assert Store(folder, "default").warning == ""


@pytest.mark.parametrize("engine", ["process", "ray"])
def test_dead_and_endless_cells_stop_no_grid_on_workers(engine: str, tmp_path: Path) -> None:
    """Covers only failures outside Python; those inside are the same as in process, and tested above."""
    if engine == "ray":
        pytest.importorskip("ray", reason="Ray is an optional extra")
    argv = ("--method", "fedavg", "--seeds", "5", "--engine", engine)
    assert run(tmp_path, *argv, "--workers", "2", "--timeout", "5", work=endless_run) == 1
    found = {record["seed"]: record.get("error", "") for record in stored(tmp_path)}
    assert {seed for seed, error in found.items() if not error} == {0, 3}
    assert re.search("killed|died|crashed", found[1])
    assert re.search(r"it was stopped after \d+ s", found[2])
    assert re.search("exit code 0|died|crashed", found[4])
    assert run(tmp_path, *argv[:4], "--engine", "in-process") == 0
    assert sorted(record["seed"] for record in stored(tmp_path)[5:]) == [1, 2, 4]
