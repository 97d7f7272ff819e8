"""Files are written whole or not at all; arrays are kept for each content, and never a reason to fail."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsub.datasets.cache import remember
from fedsub.datasets.errors import UserError
from fedsub.datasets.files import explained, user_cache, write_atomically
from tests.methods.federations import small_dataset

GRAPH, OTHER = (small_dataset(nodes=6, seed=seed).adjacency() for seed in (0, 1))


def ask(value: float, seed: int = 0) -> np.ndarray:
    """Return the array cached under the seed; without one, cache an array full of `value`."""
    return remember("structure", "x", GRAPH, {"seed": seed}, lambda: np.full((6, 2), value))


def test_it_is_computed_once_and_again_for_other_content() -> None:
    assert (ask(1) == 1).all()
    assert (ask(2) == 1).all()
    assert (ask(2, seed=1) == 2).all()
    assert remember("structure", "x", OTHER, {"seed": 0}, lambda: np.full((6, 2), 3)).max() == 3
    assert not list((user_cache() / "structure").glob("*.tmp"))


def pickled(file: Path) -> None:
    with file.open("wb") as handle:
        np.savez(handle, values=np.array([{}] * 6, dtype=object))


def exchanged(file: Path) -> None:
    """Replace the file's array but keep the checksum of the original."""
    with np.load(file) as content:
        checksum = content["checksum"]
    np.savez(file, values=np.full((6, 2), 7), checksum=checksum)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda file: file.write_bytes(file.read_bytes()[:40]), "unreadable"),
        (pickled, "unreadable"),
        (exchanged, "its checksum does not match"),
    ],
)
def test_a_broken_file_is_computed_again(damage, said: str, caplog: pytest.LogCaptureFixture) -> None:
    ask(0)
    (file,) = (user_cache() / "structure").glob("*.npz")
    damage(file)
    assert (ask(1) == 1).all()
    assert said in caplog.text
    assert (ask(2) == 1).all()


def test_an_array_of_another_file_is_computed_again() -> None:
    ask(0, seed=0)
    ask(1, seed=1)
    one, other = (user_cache() / "structure").glob("*.npz")
    one.write_bytes(other.read_bytes())
    assert (ask(0, seed=0) == 0).all()
    assert (ask(1, seed=1) == 1).all()


@settings(max_examples=60)
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_changes_no_answer(place: float, bit: int) -> None:
    ask(3)
    (file,) = (user_cache() / "structure").glob("*.npz")
    content = bytearray(file.read_bytes())
    content[int(place * len(content))] ^= 1 << bit
    file.write_bytes(content)
    assert (ask(3) == 3).all()


def test_nothing_half_written_stays(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")
    with pytest.raises(TypeError):
        write_atomically(path, "text")  # type: ignore[arg-type]
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_the_system_refuses_is_one_sentence(tmp_path: Path) -> None:
    class OwnError(UserError):
        pass

    (tmp_path / "file").touch()
    with (
        pytest.raises(OwnError, match=r"^cannot write .*below: File exists; choose another$"),
        explained("write", tmp_path / "file" / "below", "choose another", OwnError),
    ):
        write_atomically(tmp_path / "file" / "below", b"")
