"""Taking records out of a folder."""

from pathlib import Path

import pytest

from fedsub.benchmark.records.folder import forget
from fedsub.benchmark.records.store import Store
from fedsub.datasets.errors import UserError
from tests.benchmark.fakes import make_cell, make_record


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    store = Store(tmp_path, "cora")
    for seed in range(3):
        store.append(make_record(make_cell(seed=seed), 50.0 + seed))
        store.append(make_record(make_cell(seed=seed, method="mine", label="mine", files="ab"), 60.0))
    return tmp_path


def test_what_is_forgotten_is_gone_and_all_else_stays(folder: Path) -> None:
    open_elsewhere = Store(folder, "cora")
    gone = make_cell(seed=1).key
    said = forget(folder, [gone])
    assert [record.key for record in said] == [gone]
    for store in (Store(folder, "cora"), open_elsewhere):
        store.refresh()
        assert store.get(gone) is None
        assert len(store.records()) == 5
        assert store.unreadable == []
    assert open_elsewhere.append(make_record(make_cell(seed=1), 55.0))
    assert len(Store(folder, "cora").records()) == 6


@pytest.mark.parametrize("key", ["0000000000000000", "", "abc"])
def test_a_key_that_no_record_has_is_a_sentence(key: str, folder: Path) -> None:
    before = (folder / "runs" / "cora.jsonl").read_bytes()
    with pytest.raises(UserError, match=r"no records in .* have a key that begins with"):
        forget(folder, [make_cell(seed=0).key, key])
    assert (folder / "runs" / "cora.jsonl").read_bytes() == before


def test_a_beginning_that_two_records_share_forgets_neither(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of more keys than there are letters two begin alike."""
    store = Store(folder, "cora")
    for seed in range(3, 20):
        store.append(make_record(make_cell(seed=seed)))
    first = [record.key[0] for record in store.records()]
    monkeypatch.setattr("fedsub.benchmark.records.folder.LEAST", 1)
    shared = next(letter for letter in first if first.count(letter) > 1)
    with pytest.raises(UserError, match=f"^{first.count(shared)} records in .* begins with '{shared}'"):
        forget(folder, [shared])
    assert len(Store(folder, "cora").records()) == len(first)


def test_six_letters_of_a_key_are_enough_and_five_are_not(folder: Path) -> None:
    alone = make_cell(rounds=7)
    Store(folder, "cora").append(make_record(alone))
    with pytest.raises(UserError, match="no records in"):
        forget(folder, [alone.key[:5]])
    assert len(forget(folder, [alone.key[:6]])) == 1
