"""Plain arrays of a graph as upstream stores them, before cleaning."""

import lzma
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from fedsub.datasets.errors import UserError
from fedsub.datasets.graph import unusable

MAXIMUM_MEMBER_BYTES = 8 * 2**30
"""Maximum bytes of a zip member; a larger one counts as a decompression bomb."""
UNPACKED_BYTES, UNPACKED_RATIO = 512 * 2**20, 100
"""Members that unpack to more bytes than the first and to more than the second times the file's size count as
a decompression bomb. The registry's graphs unpack to at most seven times their size."""
MAXIMUM_SIDE = 2**31 - 1
"""Maximum rows or columns of a sparse matrix; torch and scipy store the indices in 32 bits."""
SPARSE_COLUMNS = 2**20
"""Features with more columns than this and than entries are refused: models have weights per column."""

DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    tokenize.TokenError,
    SyntaxError,
    EOFError,
    OSError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
    MemoryError,
)
"""Exceptions of zipfile and numpy for damaged files. RuntimeError and MemoryError occur for bits that claim
encryption, an unknown compression or an array of absurd size; TokenError, SyntaxError, TypeError,
ArithmeticError, AttributeError and LookupError for a header that is no valid literal or description."""

Features: TypeAlias = Any
"""A numpy array or a scipy CSR matrix; scipy has no type hints."""


class MalformedFileError(UserError):
    """A data file is damaged, truncated, or not in the format of its name."""

    reason: str = ""
    """What is wrong with the file; empty if it cannot be opened."""

    def of_own(self, what: str, fix: str) -> UserError:
        """Return the error for a user's own file, which cannot be fetched again."""
        return UserError(f"cannot read {what} ({self.reason}): {fix}") if self.reason else self


@dataclass(frozen=True, eq=False)
class RawGraph:
    """Arrays as upstream stores them; n nodes, m stored edges, d features."""

    source: np.ndarray
    """(m,) integer; edges may be one-directional, doubled, or loops."""
    target: np.ndarray
    """(m,) integer."""
    features: Features
    """(n, d), dense or CSR."""
    labels: np.ndarray
    """(n,) integer in 0…C−1; −1 for a node without a label, if the format allows it."""
    official: np.ndarray | None = None
    """(3, S, n) bool: training, validation and test nodes of the S splits published with the graph."""
    attributes: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Name → (n,) integers or text: further attributes of the nodes."""


def malformed(path: Path, reason: str) -> MalformedFileError:
    """Return the error for a file that cannot be read; `reason` completes 'cannot read FILE: …'."""
    error = MalformedFileError(f"cannot read {path}: {reason}; delete the file and fetch it again")
    error.reason = reason
    return error


def checked(raw: RawGraph, path: Path, unlabelled: bool = False, classes: int = 0) -> RawGraph:
    """Check that a graph's arrays fit together, and return it. `unlabelled` allows nodes without a label, -1;
    `classes` is the number of classes if the file states it, else 0.

    Raises MalformedFileError if shapes or types are wrong, lengths disagree, an edge ends outside the graph,
    a label is negative or not below `classes` (if 0, the number of nodes), a feature is unusable
    (`graph.unusable`), or a published split gives a node two roles.
    """
    if raw.labels.ndim != 1 or raw.labels.dtype.kind not in "iu" or len(raw.labels) == 0:
        raise malformed(path, "the labels are not one integer per node")
    nodes = len(raw.labels)
    if raw.features.ndim != 2:
        raise malformed(path, "the features are not one row per node")
    if not raw.features.shape[1]:
        raise malformed(path, "the nodes have no feature")
    if raw.features.shape[1] > max(SPARSE_COLUMNS, raw.features.size):
        columns, entries = raw.features.shape[1], raw.features.size
        raise malformed(path, f"the features have {columns:,} columns for {entries:,} entries")
    if raw.features.shape[0] != nodes:
        raise malformed(path, f"{raw.features.shape[0]} feature rows but {nodes} labels")
    ends = (raw.source, raw.target)
    if any(end.ndim != 1 or end.dtype.kind not in "iu" for end in ends) or len(ends[0]) != len(ends[1]):
        raise malformed(path, "the two ends of the edges are not integer lists of one length")
    if any(len(end) and (int(end.min()) < 0 or int(end.max()) >= nodes) for end in ends):
        raise malformed(path, f"an edge ends outside its {nodes} nodes")
    if raw.labels.min() < (-1 if unlabelled else 0):
        raise malformed(path, "a label is negative")
    # Code that counts classes allocates memory up to the highest label.
    if int(raw.labels.max()) >= (classes or nodes):
        most = f"the file states {classes}" if classes else f"{nodes} nodes make at most {nodes}"
        raise malformed(path, f"a label is {raw.labels.max()} but {most} classes")
    if reason := unusable(raw.features):
        raise malformed(path, reason)
    if raw.official is not None and raw.official.sum(axis=0).max(initial=0) > 1:
        raise malformed(path, "its split gives a node two roles")
    for name, held in raw.attributes.items():
        if held.shape != (nodes,) or held.dtype.kind not in "biuU":
            raise malformed(path, f"its attribute {name} is not one integer or text per node")
    return raw


def masks_of(stored: Sequence[np.ndarray], nodes: int, path: Path) -> np.ndarray:
    """Return published splits as in `RawGraph.official`, from the stored mask of each role, (S, n) or (n,).

    Raises MalformedFileError if they are not masks of one shape.
    """
    masks = [np.atleast_2d(mask) for mask in stored]
    fit = all(mask.shape == (len(masks[0]), nodes) and mask.dtype.kind == "b" for mask in masks)
    if not fit or not len(masks[0]):
        raise malformed(path, f"its split masks are not true or false for each of {nodes} nodes")
    return np.stack(masks)


def csr(stored: Sequence[np.ndarray], shape: np.ndarray | tuple[int, ...], path: Path) -> sp.csr_matrix:
    """Make a CSR matrix from data, indices and indptr of an untrusted file; entries given twice are added.

    Raises MalformedFileError if the parts make no matrix (a shape that is not two integers in 0…2³¹−1,
    out-of-range columns, a row pointer that does not end at the number of entries, ...).
    """
    data, indices, indptr = parts = tuple(np.asarray(part) for part in stored)
    sizes = np.asarray(shape)
    if sizes.size != 2 or any(part.ndim != 1 for part in parts):
        raise malformed(path, "its sparse matrix is not two-dimensional")
    if any(part.dtype.kind not in "iu" for part in (indices, indptr)) or data.dtype.kind not in "biuf":
        raise malformed(path, "its sparse matrix holds something other than numbers")
    # Integers beyond 64 bits become an array of objects.
    if sizes.dtype.kind not in "iu" or int(sizes.min()) < 0 or int(sizes.max()) > MAXIMUM_SIDE:
        raise malformed(path, f"its sparse matrix claims the shape {sizes.ravel().tolist()}")
    shape = tuple(sizes.ravel().tolist())
    consistent = (
        len(indptr) == shape[0] + 1
        and int(indptr[0]) == 0
        and int(indptr[-1]) == len(indices) == len(data)
        # Compared, not subtracted, because a difference may wrap around.
        and bool((indptr[1:] >= indptr[:-1]).all())
    )
    if not consistent:
        raise malformed(path, "the row pointers of its sparse matrix do not fit its entries")
    if len(indices) and (int(indices.min()) < 0 or int(indices.max()) >= shape[1]):
        raise malformed(path, f"its sparse matrix has an entry outside its {shape[1]} columns")
    # scipy needs one index type for both arrays; 32 bits are enough for every graph of the registry.
    if data.dtype == np.float16:  # unknown to scipy
        data = single(data)
    index_type = np.int32 if len(data) <= MAXIMUM_SIDE else np.int64
    matrix = sp.csr_matrix((data, indices.astype(index_type), indptr.astype(index_type)), shape=shape)
    # Entries given twice are summed now; without any, the order stays that of the file.
    summed = matrix.copy()
    summed.sum_duplicates()
    return summed if summed.nnz < matrix.nnz else matrix


def single(values: Features) -> Features:
    """Return values as float32; too large ones become infinite, which `checked` refuses."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32, copy=False)


def edges_of(adjacency: sp.csr_matrix) -> tuple[np.ndarray, np.ndarray]:
    """Return source and target of every stored entry, each (nnz,) int32 or int64."""
    rows = np.repeat(np.arange(adjacency.shape[0], dtype=adjacency.indices.dtype), np.diff(adjacency.indptr))
    return rows, adjacency.indices


@contextmanager
def open_zip(path: Path, content: str) -> Iterator[zipfile.ZipFile]:
    """Open a zip file for reading in memory; no member is extracted to disk.

    Exceptions from reading it in the block become MalformedFileError: it is damaged, or its members are not
    the expected `content`.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except MalformedFileError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise malformed(path, f"its members are not {content} ({error})") from error
    except DAMAGE as error:
        raise malformed(path, "not a zip file, or truncated") from error


def sole_member(archive: zipfile.ZipFile, path: Path, ending: str) -> zipfile.ZipInfo:
    """Return the only member of a zip file whose name has this ending, in any folder.

    Raises MalformedFileError if there is none or several, or if it is implausibly large (`check_unpacked`).
    """
    named = (member for member in archive.infolist() if member.filename.endswith(ending))
    found = [each for each in named if not each.is_dir() and not each.filename.startswith("__MACOSX")]
    if len(found) != 1:
        raise malformed(path, f"it holds {len(found)} members named *{ending} where one is expected")
    check_unpacked(found, path)
    return found[0]


def check_unpacked(members: Iterable[zipfile.ZipInfo], path: Path) -> None:
    """Raises MalformedFileError for members of a zip file that are implausibly large."""
    total = 0
    for member in members:
        total += member.file_size
        if member.file_size > MAXIMUM_MEMBER_BYTES:
            raise malformed(path, f"its member {member.filename} claims {member.file_size} bytes")
    if reason := too_large(total, path):
        raise malformed(path, reason)


def too_large(size: int, path: Path) -> str:
    """Return why `size` bytes are too many for a file's content; empty if they are not."""
    packed = path.stat().st_size
    if size <= max(UNPACKED_BYTES, UNPACKED_RATIO * packed):
        return ""
    return f"its {packed:,} bytes unpack to {size:,}, more than {UNPACKED_RATIO} times as many"
