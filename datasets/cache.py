"""Disk cache of arrays computed from a matrix, keyed by its content."""

import hashlib
import importlib.metadata
import io
import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from fedsub.datasets.files import user_cache, write_atomically
from fedsub.datasets.loaders.raw import DAMAGE

logger = logging.getLogger(__name__)


def _digest(matrix: sp.csr_matrix) -> str:
    """Return the SHA-256 of a sparse matrix: shape, structure and values."""
    content = hashlib.sha256(repr(matrix.shape).encode())
    for part in (matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data):
        content.update(np.ascontiguousarray(part).tobytes())
    return content.hexdigest()


def remember(
    room: str,
    kind: str,
    matrix: sp.csr_matrix,
    parameters: Mapping[str, object],
    compute: Callable[[], np.ndarray],
    dimensions: int = 2,
) -> np.ndarray:
    """Read an array with one row for each row of `matrix` from the cache, else compute and cache it.

    `room` is the folder in the user cache: `partitions` or `structure`. The key hashes the matrix, the kind
    and the parameters, which must name everything that changes the result: options, seed, library version. A
    file that cannot be read, has a wrong checksum, or does not hold numbers of that many rows and
    `dimensions` is computed again and rewritten. That and a folder that cannot be written are only logged as
    warnings: the cache is never a reason to fail.
    """
    text = json.dumps([kind, _digest(matrix), dict(parameters)], sort_keys=True, default=str)
    path = user_cache() / room / f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:32]}.npz"
    if path.exists():
        try:
            with np.load(path, allow_pickle=False) as content:
                values, checksum = content["values"], content["checksum"]
            if values.ndim != dimensions or len(values) != matrix.shape[0] or values.dtype.kind not in "iuf":
                raise ValueError(f"{values.dtype} values of shape {values.shape}, not {matrix.shape[0]} rows")
            if not np.array_equal(checksum, _checksum(path, values)):
                raise ValueError("its checksum does not match")
            return values
        except DAMAGE as error:
            logger.warning("cached file %s is unreadable (%s): computing it again", path, error)
    values = compute()
    content = io.BytesIO()
    np.savez_compressed(content, values=values, checksum=_checksum(path, values))
    try:
        write_atomically(path, content.getbuffer())
    except OSError as error:
        logger.warning("cannot write to the cache in %s (%s): continuing without it", path.parent, error)
    return values


def _checksum(path: Path, values: np.ndarray) -> np.ndarray:
    """Return BLAKE2b over the file's name and the array, (64,) uint8; the name detects swapped files."""
    content = hashlib.blake2b(repr((path.name, values.dtype.str, values.shape)).encode())
    content.update(np.ascontiguousarray(values).tobytes())
    return np.frombuffer(content.digest(), dtype=np.uint8)


def remember_groups(
    kind: str,
    library: str,
    version: int,
    matrix: sp.csr_matrix,
    compute: Callable[..., np.ndarray],
    **parameters: float,
) -> np.ndarray:
    """Call `remember` for the groups `compute(matrix, **parameters)`, one per row, (n,) int64.

    `library` is the package that computes them, `version` the version of the scheme's own code. A change of
    either may change the groups, so both are part of the key.
    """

    def compact() -> np.ndarray:
        return np.asarray(compute(matrix, **parameters), dtype=np.int32)

    key = {**parameters, "version": importlib.metadata.version(library), "scheme": version}
    return remember("partitions", kind, matrix, key, compact, dimensions=1).astype(np.int64)
