"""Safe reading of downloaded `.npz` files, without unpickling; all damage raises MalformedFileError."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np

from fedsub.datasets.loaders.raw import DAMAGE, MalformedFileError, check_unpacked, malformed


class NpzReader:
    """The arrays of an open npz file by name, each read at its use. Object arrays are refused."""

    def __init__(self, path: Path, content: Mapping[str, np.ndarray]) -> None:
        self.path = path
        self._content = content

    def __getitem__(self, key: str) -> np.ndarray:
        if key not in self._content:
            raise malformed(self.path, f"the array {key!r} is missing")
        reason = f"the array {key!r} is damaged or holds objects"
        try:
            found = self._content[key]
        except DAMAGE as error:
            raise malformed(self.path, reason) from error
        # numpy returns a member that is no array as bytes.
        if not isinstance(found, np.ndarray):
            raise malformed(self.path, reason)
        return found

    def __contains__(self, key: object) -> bool:
        return key in self._content

    def names(self) -> list[str]:
        """Return the names of all arrays."""
        return list(self._content)

    def first(self, *keys: str) -> np.ndarray:
        """Return the array under the first of these names that exists; upstream spellings vary."""
        return self[next((key for key in keys if key in self._content), keys[0])]


@contextmanager
def open_npz(path: Path, member: BinaryIO | None = None) -> Iterator[NpzReader]:
    """Open an npz file for reading, or an npz `member` of the file at `path`.

    Raises MalformedFileError if it is truncated, is no npz file, cannot be opened, or unpacks to an
    implausible size.
    """
    try:
        content = np.load(member or path, allow_pickle=False)
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise MalformedFileError(
            f"cannot read {path} ({error.strerror}): give the path of an npz file"
        ) from error
    except DAMAGE as error:
        raise malformed(
            path, "its npz member is damaged" if member else "not an npz file, or truncated"
        ) from error
    if isinstance(content, np.ndarray):
        raise malformed(path, "one array, not an npz file")
    with content:
        check_unpacked(content.zip.infolist(), path)
        yield NpzReader(path, content)
