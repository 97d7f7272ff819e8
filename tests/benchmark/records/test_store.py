import errno
import json
import os
from contextlib import suppress
from itertools import accumulate
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedsub.benchmark.analysis.frame import Results
from fedsub.benchmark.analysis.scores import Leaderboard
from fedsub.benchmark.records.folder import Records, forget
from fedsub.benchmark.records.jsonl import read_lines
from fedsub.benchmark.records.record import OK, Record, cell_of
from fedsub.benchmark.records.store import SHARED, Store, StoreError, file_of
from fedsub.benchmark.report.leaderboard import markdown
from fedsub.benchmark.spec.protocol import load_protocol
from fedsub.benchmark.spec.request import SEARCH_SEEDS
from fedsub.datasets.errors import UserError
from fedsub.methods.core import registry
from tests.benchmark.fakes import append_many, failed, make_cell, make_record

RUNS = Path(__file__).resolve().parents[3] / "results" / "runs"
relaxed = settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])


def record(seed: int, accuracy: float = 50.0, status: str = "ok") -> Record:
    cell = make_cell(seed=seed)
    return make_record(cell, accuracy) if status == "ok" else failed(cell, f"it broke at {accuracy}")


def lines_of(store: Store) -> list[bytes]:
    """Return the complete lines except those of machines."""
    return [line for line in store.path.read_bytes().split(b"\n")[:-1] if not line.startswith(b'{"id"')]


def test_two_processes_lose_double_and_mix_nothing(tmp_path: Path) -> None:
    context = get_context("spawn")
    start = context.Barrier(2)
    processes = [context.Process(target=append_many, args=(tmp_path, start)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        # May be slow on a busy machine: every append waits for the other's lock.
        process.join(600)
        assert process.exitcode == 0
    store = Store(tmp_path, "cora")
    assert store.warning == ""
    assert len(store.records()) == len(lines_of(store)) == 50 + 2 * 50


actions = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 4), st.booleans(), st.booleans()), min_size=1, max_size=25
)


@relaxed
@given(actions=actions)
def test_writers_at_once_lose_and_double_nothing(
    actions: list[tuple[int, int, bool, bool]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """For any interleaving of three writers the file reads as if the actions came one after another.

    The latest success of a key counts; without one, its latest failure.
    """
    folder = tmp_path_factory.mktemp("store")
    writers = [Store(folder, "cora") for _ in range(3)]
    expected: dict[str, Record] = {}
    written = 0
    for number, (writer, seed, replace, good) in enumerate(actions):
        item = record(seed, float(number), "ok" if good else "failed")
        held = expected.get(item.key)
        wanted = replace or held is None or held.status != "ok"
        assert writers[writer].append(item, replace=replace) == wanted
        if wanted:
            written += 1
            if good or held is None or held.status != "ok":
                expected[item.key] = item
    again = Store(folder, "cora")
    assert {item.key: item.to_json() for item in again.records()} == {
        key: item.to_json() for key, item in expected.items()
    }
    assert [again.done(key) for key in expected] == [item.status == "ok" for item in expected.values()]
    assert not again.done("missing")
    assert len(lines_of(again)) == written
    assert again.warning == ""


@relaxed
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["append", "take out", "read", "spoil", "pack", "kill"]), st.integers(0, 3)
        ),
        max_size=15,
    )
)
def test_an_open_reader_sees_what_a_new_one_does(
    steps: list[tuple[str, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever others append and remove between two reads: the file may have been replaced and be longer."""
    folder = tmp_path_factory.mktemp("store")
    reader = Store(folder, "cora")
    reader.append(record(9, 9.0))
    expected = {9: 9.0}
    for number, (step, seed) in enumerate(steps):
        if step == "append":
            Store(folder, "cora").append(record(seed, float(number)), replace=True)
            expected[seed] = float(number)
        elif step == "take out" and seed in expected:
            forget(Records(folder), [record(seed).key])
            del expected[seed]
        elif step == "spoil":
            with reader.path.open("ab") as file:
                file.write(b"not json\n")
        elif step == "read":
            reader.refresh()
        elif step == "pack":
            Records(folder).pack()
        elif step == "kill" and reader.path.exists():
            lines = reader.path.read_bytes()
            Records(folder).pack()
            reader.path.write_bytes(lines)
    reader.refresh()
    again = Store(folder, "cora")
    assert {found.cell.seed: found.metrics["accuracy"] for found in again.records()} == expected
    assert reader.records() == again.records()
    assert reader.warning == again.warning


def test_a_new_file_with_the_number_of_the_old_is_read_afresh(tmp_path: Path) -> None:
    """As after `git pull`, which deletes a file before it writes it."""
    reader = Store(tmp_path, "cora")
    reader.append(record(0))
    lines = reader.path.read_bytes()
    reader.path.write_bytes(b"")
    Store(tmp_path, "cora").append(record(1))
    Store(tmp_path, "cora").append(record(2))
    assert reader.path.stat().st_size > len(lines)
    reader.refresh()
    assert [item.cell.seed for item in reader.records()] == [1, 2]


@relaxed
@given(data=st.data())
def test_a_tail_torn_at_any_byte_costs_only_its_record(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("store")
    store = Store(folder, "cora")
    for seed in range(3):
        store.append(record(seed))
    content = store.path.read_bytes()
    cut = data.draw(st.integers(0, len(content)))
    store.path.write_bytes(content[:cut])
    again = Store(folder, "cora")
    # A line that lacks only its line end is whole; the first three hold what all share.
    ends = accumulate(map(len, content.splitlines(keepends=True)))
    whole = sum(cut >= end - 1 for end in [*ends][3:])
    assert [item.cell.seed for item in again.records()] == list(range(whole))
    assert store.append(record(9))
    final = Store(folder, "cora")
    assert [item.cell.seed for item in final.records()] == [*range(whole), 9]
    assert final.warning == ""


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([10**400, -(10**400), 1e308, 5e-324, float("nan"), float("inf")])
    | st.text(st.characters(), max_size=3)
    | st.sampled_from(["ok", "failed", "\ud800", "fedavg[", "|<b>\n", "accuracy", "test"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["accuracy", "up", "round", "test", "train"]), inner, max_size=3)
    ),
    max_leaves=6,
)


def damage(data: st.DataObject, values: dict[str, Any]) -> dict[str, Any]:
    """Return the values with one of them, at any depth, removed or replaced."""
    place = values
    path = []
    while True:
        path.append(data.draw(st.sampled_from(sorted(place))))
        inner = place[path[-1]]
        if not isinstance(inner, dict) or not inner or data.draw(st.booleans()):
            break
        place = inner
    if data.draw(st.booleans()):
        del place[path[-1]]
    else:
        place[path[-1]] = data.draw(json_values)
    return values


def lines_with(values: dict[str, Any]) -> str:
    """Return the lines of a record with values that `Store.append` may refuse."""
    values = {name: value for name, value in values.items() if name != "seed"}
    head: dict[str, Any] = {name: values.pop(name) for name in ("key", "status") if name in values}
    lines = []
    for number, (reference, names) in enumerate(SHARED.items()):
        head[reference] = f"{number:012x}"
        part = {name: values.pop(name) for name in names if name in values}
        lines.append(json.dumps({"id": head[reference], **part}, separators=(",", ":")))
    return "\n".join([*lines, json.dumps({**head, **values}, separators=(",", ":"))]) + "\n"


EXTRAS = {"client_names": ["north", "south"], "epsilon": 0.5, "added_nodes": 3}


@settings(relaxed, max_examples=100)
@given(data=st.data())
def test_a_damaged_record_is_passed_over_or_harmless(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("store")
    store = Store(folder, "cora")
    # Seeds that `damage` is unlikely to produce: it must not make a record with the same key.
    good = [make_record(make_cell(protocol="quick", seed=seed)) for seed in (987_651, 987_652)]
    store.append(good[0])
    statistics: dict[str, float | None] = {"nodes_held": 10.0, "edge_homophily": 0.5}
    made = make_record(make_cell(protocol="quick"), extras=EXTRAS, partition_statistics=statistics)
    values = damage(data, {name: value for name, value in made.to_dict().items() if name != "curve"})
    # If a setting was changed, the key must match it again.
    with suppress(KeyError, TypeError, ValueError, AttributeError):
        values["key"] = cell_of(values).key
    with store.path.open("ab") as file:
        file.write(lines_with(values).encode())
    store.append(good[1])
    again = Store(folder, "cora")
    assert {record.key for record in good} <= {record.key for record in again.records()}
    assert again.warning or len(again.records()) == 3
    markdown(Leaderboard(load_protocol("quick"), again.records())).encode()
    Results(tuple(again.records())).frame()
    Results(tuple(again.records())).by_client()


@relaxed
@given(data=st.data())
def test_whatever_line_is_damaged_what_is_run_again_is_read(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("store")
    store = Store(folder, "cora")
    made = [make_record(make_cell(seed=seed, rounds=rounds)) for seed, rounds in ((0, 5), (1, 5), (0, 6))]
    for each in made:
        store.append(each)
    path = data.draw(st.sampled_from([store.path, folder / "curves" / "cora.jsonl"]))
    lines = path.read_bytes().splitlines()
    number = data.draw(st.integers(0, len(lines) - 1))
    lines[number] = json.dumps(damage(data, json.loads(lines[number])), separators=(",", ":")).encode()
    path.write_bytes(b"\n".join(lines) + b"\n")
    again = Store(folder, "cora")
    for each in made:
        again.append(each)
    assert all(again.done(each.key) for each in made)
    assert {each.key for each in made} <= {each.key for each in Store(folder, "cora").records()}


@pytest.mark.parametrize(
    "changes",
    [
        {"versions": "metis=9"},
        {"options": {"alpha": 1}, "chosen": ["alpha"]},
        {"metrics": {"accuracy": "50"}},
        {"curve": {"round": [1, 2], "test": [1.0, 2.0]}},
        {"label": "\ud800"},
    ],
)
def test_a_line_that_is_not_quite_a_record_is_unreadable(changes: dict[str, Any], tmp_path: Path) -> None:
    store = Store(tmp_path, "cora")
    store.append(record(0))
    values = {name: value for name, value in record(1).to_dict().items() if name != "curve"}
    with store.path.open("a") as file:
        file.write(lines_with({**values, **changes}))
    again = Store(tmp_path, "cora")
    assert [item.cell.seed for item in again.records()] == [0]
    assert again.warning


def test_a_record_that_could_not_be_read_again_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path, "cora")
    for results, words in (
        ({"metrics": {"accuracy": "half"}}, "metrics must be"),
        ({"extras": {"model": object()}}, "cannot be written as JSON"),
        ({"extras": {"name": "\ud800"}}, "cannot be read back"),
        ({"seconds": {"train": float("nan")}}, "seconds must be"),
    ):
        with pytest.raises(UserError, match=words) as caught:
            store.append(make_record(make_cell(), **results))
        assert not isinstance(caught.value, StoreError)
    assert not store.path.exists()


@pytest.mark.parametrize("path", sorted(RUNS.glob("*.jsonl.gz")), ids=lambda path: path.name)
def test_every_record_that_comes_with_the_benchmark_is_read(path: Path) -> None:
    graph = path.name.removesuffix(".jsonl.gz")
    store = Store(RUNS.parent, graph)
    records = store.records()
    assert records
    # Records of a search's trials have no curve.
    assert all(record.curve["test"] for record in records if record.cell.seed not in SEARCH_SEEDS)
    assert store.warning == ""
    # No key may have two results: neither could be trusted.
    results = [record.key for record in records if record.status == OK]
    assert sum(b'"status":"ok"' in line for line in read_lines(path)) == len(results)
    assert {file_of(record.cell.dataset) for record in records} == {graph}


def test_a_line_of_before_with_all_options_and_some_since_gone_is_read() -> None:
    before = RUNS.parent / "rungs"
    for record in Store(before, "chameleon_filtered").records():
        assert record.options.keys() >= vars(registry.make_options(record.cell.method, {})).keys()
    lines = read_lines(before / "runs" / "chameleon_filtered.jsonl.gz")
    assert not any(b'"defaults"' in line for line in lines)


def test_a_damaged_packed_file_is_one_sentence(tmp_path: Path) -> None:
    Store(tmp_path, "cora").append(record(0))
    Records(tmp_path).pack()
    (packed,) = (tmp_path / "runs").glob("*.gz")
    content = packed.read_bytes()
    checksum = bytes(255 - byte for byte in content[-8:])
    for damaged in (
        content[:-9], content[:30] + b"\0" * 9 + content[39:], content[:-8] + checksum, b"no gzip", b""
    ):  # fmt: skip
        packed.write_bytes(damaged)
        with pytest.raises(StoreError, match=r"cora\.jsonl\.gz is damaged"):
            Store(tmp_path, "cora")


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path, "cora")
    store.append(record(0))
    before = store.path.read_bytes()
    write = os.write

    def half(descriptor: int, content: bytes) -> int:
        if len(content) < 200:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, content[: len(content) // 2])

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(StoreError, match="No space left on device"):
        store.append(record(1))
    monkeypatch.undo()
    assert store.path.read_bytes() == before
    assert store.append(record(1))
    assert [item.cell.seed for item in Store(tmp_path, "cora").records()] == [0, 1]


def test_a_line_that_another_process_is_writing_is_left_alone(tmp_path: Path) -> None:
    store = Store(tmp_path, "cora")
    store.append(record(0))
    Store(tmp_path / "other", "toy").append(record(1))
    line = (tmp_path / "other" / "runs" / "toy.jsonl").read_bytes().splitlines(keepends=True)[-1]
    with store.path.open("ab") as file:
        file.write(line[:50])
        file.flush()
        reader = Store(tmp_path, "cora")
        assert [item.cell.seed for item in reader.records()] == [0]
        assert reader.warning == ""
        file.write(line[50:])
    assert not reader.append(record(1))
    assert [item.cell.seed for item in reader.records()] == [0, 1]
