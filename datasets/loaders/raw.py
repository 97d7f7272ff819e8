"""Plain arrays of a graph as upstream stores them, before cleaning."""

from __future__ import annotations

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
"""A larger member of a zip file is taken for a decompression bomb."""
UNPACKED_BYTES, UNPACKED_RATIO = 512 * 2**20, 100
"""So are members of a file that together unpack to more bytes than this and to more than this many times its
size. The graphs of the registry unpack to at most seven times their size."""
MAXIMUM_SIDE = 2**31 - 1
"""Rows or columns of a sparse matrix; torch and scipy keep the indices in 32 bits."""
SPARSE_COLUMNS = 2**20
"""More columns than this, and than entries, are no features: every model has weights for each of them."""

DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    tokenize.TokenError,
    SyntaxError,
    EOFError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    MemoryError,
)
"""What zipfile and numpy raise on damaged files: RuntimeError and MemoryError stand for bits that
claim encryption, an unknown compression, or an array of absurd size; TokenError, SyntaxError and
TypeError for a header that is no longer the Python literal it should be."""

Features: TypeAlias = Any
"""A numpy array or a scipy CSR matrix; scipy comes without types."""


class MalformedFileError(UserError):
    """A data file is damaged, truncated, or not of the format its name promises."""

    reason: str = ""
    """What is wrong with it."""


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
    """(n,) integer in 0…C−1; −1 for a node without a label, where those are allowed."""
    official: np.ndarray | None = None
    """(3, S, n) bool: training, validation and test nodes of the S splits published with the graph."""
    attributes: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Name → (n,) integers or text: further attributes of the nodes."""


def malformed(path: Path, reason: str) -> MalformedFileError:
    """The error for a file that cannot be read; `reason` completes 'cannot read FILE: …'."""
    error = MalformedFileError(f"cannot read {path}: {reason}; delete the file and fetch it again")
    error.reason = reason
    return error


def checked(raw: RawGraph, path: Path, unlabelled: bool = False) -> RawGraph:
    """Check that a graph's arrays fit together, and return it. `unlabelled` allows nodes without a label, -1.

    Raises MalformedFileError if shapes or types are wrong, lengths disagree, an edge ends outside
    the graph, a label is negative or not below the number of nodes, a feature is not finite in
    single precision, in which it will be kept, or a published split gives a node two roles.
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
    # whatever counts classes makes room for the highest of them
    if int(raw.labels.max()) >= nodes:
        raise malformed(path, f"a label is {raw.labels.max()} but {nodes} nodes make at most {nodes} classes")
    if reason := unusable(raw.features):
        raise malformed(path, reason)
    if raw.official is not None and raw.official.sum(axis=0).max(initial=0) > 1:
        raise malformed(path, "its split gives a node two roles")
    for name, held in raw.attributes.items():
        if held.shape != (nodes,) or held.dtype.kind not in "biuU":
            raise malformed(path, f"its attribute {name} is not one integer or text per node")
    return raw


def masks_of(stored: Sequence[np.ndarray], nodes: int, path: Path) -> np.ndarray:
    """Published splits as in `RawGraph.official`, from the masks of each role, (S, n) or (n,), as stored.

    Raises MalformedFileError where they are not three such masks of one shape.
    """
    masks = [np.atleast_2d(mask) for mask in stored]
    fit = all(mask.shape == (len(masks[0]), nodes) and mask.dtype.kind == "b" for mask in masks)
    if not fit or not len(masks[0]):
        raise malformed(path, f"its split masks are not true or false for each of {nodes} nodes")
    return np.stack(masks)


def csr(stored: Sequence[np.ndarray], shape: np.ndarray | tuple[int, ...], path: Path) -> sp.csr_matrix:
    """A CSR matrix from the data, indices and indptr of an untrusted file.

    Raises MalformedFileError where the parts do not make a matrix (a shape that is not two integers
    in 0…2³¹−1, out-of-range columns, a row pointer that does not end at the number of entries, ...).
    """
    data, indices, indptr = parts = tuple(np.asarray(part) for part in stored)
    sizes = np.asarray(shape)
    if sizes.size != 2 or any(part.ndim != 1 for part in parts):
        raise malformed(path, "its sparse matrix is not two-dimensional")
    if any(part.dtype.kind not in "iu" for part in (indices, indptr)) or data.dtype.kind not in "biuf":
        raise malformed(path, "its sparse matrix holds something other than numbers")
    # integers beyond 64 bits become an array of objects
    if sizes.dtype.kind not in "iu" or int(sizes.min()) < 0 or int(sizes.max()) > MAXIMUM_SIDE:
        raise malformed(path, f"its sparse matrix claims the shape {sizes.ravel().tolist()}")
    shape = tuple(sizes.ravel().tolist())
    consistent = (
        len(indptr) == shape[0] + 1
        and int(indptr[0]) == 0
        and int(indptr[-1]) == len(indices) == len(data)
        # compared, not subtracted: a difference may wrap around
        and bool((indptr[1:] >= indptr[:-1]).all())
    )
    if not consistent:
        raise malformed(path, "the row pointers of its sparse matrix do not fit its entries")
    if len(indices) and (int(indices.min()) < 0 or int(indices.max()) >= shape[1]):
        raise malformed(path, f"its sparse matrix has an entry outside its {shape[1]} columns")
    # scipy needs one index type for both arrays; 32 bits hold every graph of the registry
    if data.dtype == np.float16:  # unknown to scipy
        data = single(data)
    index_type = np.int32 if len(data) <= MAXIMUM_SIDE else np.int64
    matrix = sp.csr_matrix((data, indices.astype(index_type), indptr.astype(index_type)), shape=shape)
    # An entry given twice is their sum, before anything is done with it. Else the order is the file's.
    summed = matrix.copy()
    summed.sum_duplicates()
    return summed if summed.nnz < matrix.nnz else matrix


def single(values: Features) -> Features:
    """The values as float32; those too large become infinite, which `checked` refuses."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32, copy=False)


def edges_of(adjacency: sp.csr_matrix) -> tuple[np.ndarray, np.ndarray]:
    """Source and target of every stored entry, each (nnz,) int32 or int64."""
    rows = np.repeat(np.arange(adjacency.shape[0], dtype=adjacency.indices.dtype), np.diff(adjacency.indptr))
    return rows, adjacency.indices


@contextmanager
def open_zip(path: Path, content: str) -> Iterator[zipfile.ZipFile]:
    """Open a zip file for reading in memory: no member is ever extracted.

    Whatever reading it in the block raises becomes MalformedFileError: its damage, or members that are not
    the `content` that is expected.
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
    """The one member of a zip file whose name has this ending, in any folder.

    Raises MalformedFileError if there is none, more than one, or it is implausibly large (`check_unpacked`).
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
    """Why `size` bytes are too many for the content of a file; empty if they are not."""
    packed = path.stat().st_size
    if size <= max(UNPACKED_BYTES, UNPACKED_RATIO * packed):
        return ""
    return f"its {packed:,} bytes unpack to {size:,}, more than {UNPACKED_RATIO} times as many"
