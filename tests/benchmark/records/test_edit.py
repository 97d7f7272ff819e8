"""Records forgotten and renamed."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsub.benchmark.execution.runner import failed
from fedsub.benchmark.records.edit import forget, rename
from fedsub.benchmark.records.store import Store
from fedsub.datasets.errors import UserError
from tests.benchmark.fakes import make_cell, make_record


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    store = Store(tmp_path, "toy")
    for seed in range(3):
        store.append(make_record(make_cell(seed=seed), 50.0 + seed))
        store.append(make_record(make_cell(seed=seed, method="mine", label="mine", files="ab"), 60.0))
    return tmp_path


def test_what_is_forgotten_is_gone_and_all_else_stays(folder: Path) -> None:
    open_elsewhere = Store(folder, "toy")
    gone = make_cell(seed=1).key
    said = forget(folder, [gone[:8]])
    assert len(said) == 1
    assert gone in said[0]
    for store in (Store(folder, "toy"), open_elsewhere):
        store.refresh()
        assert store.get(gone) is None
        assert len(store.records()) == 5
        assert store.unreadable == []
    assert open_elsewhere.append(make_record(make_cell(seed=1), 55.0))
    assert len(Store(folder, "toy").records()) == 6


@pytest.mark.parametrize("key", ["0000000000000000", "", "abc"])
def test_a_key_that_no_record_has_is_a_sentence(key: str, folder: Path) -> None:
    before = (folder / "runs" / "toy.jsonl").read_bytes()
    with pytest.raises(UserError, match=r"no records in .* have a key that begins with"):
        forget(folder, [make_cell(seed=0).key, key])
    assert (folder / "runs" / "toy.jsonl").read_bytes() == before


def test_a_beginning_that_two_records_share_forgets_neither(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of more keys than there are letters two begin alike."""
    store = Store(folder, "toy")
    for seed in range(3, 20):
        store.append(make_record(make_cell(seed=seed)))
    first = [record.key[0] for record in store.records()]
    monkeypatch.setattr("fedsub.benchmark.records.edit.LEAST", 1)
    shared = next(letter for letter in first if first.count(letter) > 1)
    with pytest.raises(UserError, match=f"^{first.count(shared)} records in .* begins with '{shared}'"):
        forget(folder, [shared])
    assert len(Store(folder, "toy").records()) == len(first)


@pytest.mark.parametrize(("letters", "enough"), [(5, False), (6, True)])
def test_six_letters_of_a_key_are_enough(letters: int, enough: bool, folder: Path) -> None:
    key = make_cell(seed=1).key[:letters]
    if enough:
        assert len(forget(folder, [key])) == 1
        return
    with pytest.raises(UserError, match="no records in"):
        forget(folder, [key])


def test_a_new_name_replaces_what_was_called_so(folder: Path) -> None:
    old = make_cell(seed=0, method="mine", label="mine", files="ab").key
    new = make_cell(seed=0, method="better", label="better", files="ab")
    Store(folder, "toy").append(make_record(new, 10.0))
    for path in (*beside(folder, old), *beside(folder, new.key)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(path))
    rename(folder, "mine", "better")
    found = Store(folder, "toy").get(new.key)
    assert found is not None
    assert found.metrics == {"accuracy": 60.0}
    assert [path.read_text() for path in beside(folder, new.key)] == [*map(str, beside(folder, old))]


def test_a_part_of_ones_own_is_renamed(folder: Path) -> None:
    assert len(rename(folder, "mine", "better")) == 3
    records = Store(folder, "toy").records()
    assert sorted({record.cell.method for record in records}) == ["better", "fedavg"]
    found = Store(folder, "toy").get(make_cell(seed=0, method="better", label="better", files="ab").key)
    assert found is not None
    assert found.cell.label == "better"
    assert found.metrics == {"accuracy": 60.0}


def test_a_file_of_before_gets_a_name(folder: Path) -> None:
    Store(folder, "toy").append(make_record(make_cell(method="./old.py", label="./old.py[mu=1]", files="cd")))
    rename(folder, "./old.py", "old")
    labels = {record.cell.label for record in Store(folder, "toy").records()}
    assert "old[mu=1]" in labels


def test_a_part_is_not_renamed_to_its_own_name(folder: Path) -> None:
    with pytest.raises(UserError, match="mine is its name already"):
        rename(folder, "mine", "mine")
    assert len(Store(folder, "toy").records()) == 6


def test_names_of_the_benchmark_stay(folder: Path) -> None:
    for names in (("fedavg", "mine2"), ("mine", "fedavg"), ("mine", "cora")):
        with pytest.raises(UserError, match="is a name of the benchmark"):
            rename(folder, *names)
    with pytest.raises(UserError, match="no record in"):
        rename(folder, "nobody", "somebody")


def beside(folder: Path, key: str) -> list[Path]:
    """What a cell may leave beside its record."""
    return [folder / "saved" / key / "model.pt", folder / "logs" / f"{key}.log"]


def test_what_lies_beside_a_record_goes_with_it(folder: Path) -> None:
    old = make_cell(seed=0, method="mine", label="mine", files="ab").key
    new = make_cell(seed=0, method="better", label="better", files="ab").key
    other = make_cell(seed=0).key
    checkpoints = [folder / "checkpoints" / f"{key}.pt" for key in (old, other)]
    for path in (*beside(folder, old), *beside(folder, other), *checkpoints):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(path))
    rename(folder, "mine", "better")
    assert [path.read_text() for path in beside(folder, new)] == [*map(str, beside(folder, old))]
    assert not any(path.exists() for path in (*beside(folder, old), checkpoints[0]))
    assert all(path.exists() for path in (*beside(folder, other), checkpoints[1]))
    forget(folder, [new, other])
    assert not [path for path in folder.rglob("*") if path.suffix in (".pt", ".log")]
    assert not [*(folder / "saved").iterdir()]


def test_a_failure_takes_nothing_from_a_success_of_its_new_name(folder: Path) -> None:
    success = make_cell(seed=7, method="better", label="better", files="ab")
    store = Store(folder, "toy")
    store.append(make_record(success, 80.0))
    store.append(failed(make_cell(seed=7, method="mine", label="mine", files="ab"), "it stumbled"))
    saved = beside(folder, success.key)[0]
    saved.parent.mkdir(parents=True)
    saved.write_text("a model")
    rename(folder, "mine", "better")
    found = Store(folder, "toy").get(success.key)
    assert found is not None
    assert found.metrics == {"accuracy": 80.0}
    assert saved.read_text() == "a model"
