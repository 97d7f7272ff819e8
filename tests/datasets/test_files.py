"""Files are written whole or not at all."""

from pathlib import Path

import pytest

from fedsub.datasets.errors import UserError
from fedsub.datasets.files import explained, write_atomically


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
