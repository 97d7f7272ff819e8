"""Safe reading of downloaded `.npz` files, without unpickling; all damage raises MalformedFileError."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np
import scipy.sparse as sp

from fedsub.datasets.loaders.raw import DAMAGE, MalformedFileError, check_unpacked, csr, malformed


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

    def matrix(self, *prefixes: str) -> sp.csr_matrix:
        """Return the CSR matrix in the arrays `data`, `indices`, `indptr` and `shape`, their names begun by
        the first of these prefixes that the file uses; upstream spellings vary."""
        prefix = next((each for each in prefixes if f"{each}data" in self), prefixes[0])
        *parts, shape = (self[prefix + part] for part in ("data", "indices", "indptr", "shape"))
        return csr(parts, shape, self.path)


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
