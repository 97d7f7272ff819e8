"""Safe reading of downloaded pickles, without running code in them.

A pickle is a program. Names outside `_ALLOWED`, a list of harmless ones, raise. Stand-in classes receive
arrays and matrices, so that the content is checked before numpy's and scipy's own classes see it.
"""

import collections
import io
import pickle
import pickletools
import re
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import scipy.sparse as sp

from fedsub.datasets.loaders.raw import csr, malformed, single

_NUMERIC = re.compile(r"[biuf](1|2|4|8)")


class PickledType:
    """Receives a pickled numpy dtype: its code, such as `f4`, and its byte order."""

    def __init__(self, code: object, *rest: object) -> None:
        self.code = code
        self.order: object = "="

    def __setstate__(self, state: object) -> None:
        """Keep the byte order, the second entry of the state."""
        self.order = state[1] if isinstance(state, tuple) and len(state) > 1 else None


class _Pickled:
    """Receives the state of any pickled object."""

    state: object = None

    def __init__(self, *arguments: object) -> None:
        """Ignore the arguments of numpy's `_reconstruct`; the content arrives as the state."""

    def __setstate__(self, state: object) -> None:
        self.state = state


class PickledArray(_Pickled):
    """Stand-in for a numpy array; `array` rebuilds it from checked parts."""

    def array(self, path: Path) -> np.ndarray:
        """Return the array. Raises MalformedFileError if it is not numeric or its length is wrong."""
        if not isinstance(self.state, tuple) or len(self.state) != 5:
            raise malformed(path, "a pickled array has no content")
        _, shape, kind, fortran, content = self.state
        if not isinstance(kind, PickledType) or not isinstance(kind.code, str):
            raise malformed(path, "a pickled array has no type")
        if not _NUMERIC.fullmatch(kind.code) or kind.order not in ("<", ">", "=", "|"):
            raise malformed(path, f"a pickled array has the type {kind.code!r} where numbers are expected")
        if isinstance(content, str):  # the bytes of a Python 2 pickle, by way of latin1
            content = content.encode("latin1")
        if not isinstance(content, bytes) or not isinstance(shape, tuple):
            raise malformed(path, "a pickled array is damaged")
        try:
            flat = np.frombuffer(content, dtype=np.dtype(f"{kind.order}{kind.code}"))
            return flat.reshape(shape, order="F" if fortran else "C")
        except (ValueError, TypeError) as error:
            raise malformed(path, "a pickled array is damaged") from error


class PickledMatrix(_Pickled):
    """Stand-in for a scipy CSR matrix; `matrix` rebuilds it from checked parts."""

    def matrix(self, path: Path) -> sp.csr_matrix:
        """Return the matrix, (rows, columns). Raises MalformedFileError if one of its parts is missing."""
        if not isinstance(self.state, dict):
            raise malformed(path, "a pickled matrix has no content")
        shape = self.state.get("_shape", self.state.get("shape"))
        if not isinstance(shape, tuple) or not all(isinstance(size, int) for size in shape):
            raise malformed(path, "a pickled matrix has no shape")
        parts = [as_array(self.state.get(key), path) for key in ("data", "indices", "indptr")]
        return csr(parts, shape, path)


def _new_matrix(cls: object, *arguments: object) -> PickledMatrix:
    """Replace `copy_reg._reconstructor`, for sparse matrices only."""
    if cls is not PickledMatrix:
        raise pickle.UnpicklingError("only sparse matrices may be constructed")
    return PickledMatrix()


def _latin_bytes(text: str, encoding: str = "latin1") -> bytes:
    """Replace `_codecs.encode`, with which protocol 2 stores bytes."""
    if encoding != "latin1":
        raise pickle.UnpicklingError("only latin1 bytes are allowed")
    return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): PickledArray,
    ("numpy", "dtype"): PickledType,
    ("numpy.core.multiarray", "_reconstruct"): PickledArray,
    ("numpy._core.multiarray", "_reconstruct"): PickledArray,
    ("scipy.sparse.csr", "csr_matrix"): PickledMatrix,
    ("scipy.sparse._csr", "csr_matrix"): PickledMatrix,
    ("collections", "defaultdict"): collections.defaultdict,
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("__builtin__", "list"): list,
    ("builtins", "list"): list,
    ("__builtin__", "object"): object,
    ("builtins", "object"): object,
    ("copy_reg", "_reconstructor"): _new_matrix,
    ("copyreg", "_reconstructor"): _new_matrix,
    ("_codecs", "encode"): _latin_bytes,
}


_KEPT_UNDER = ("PUT", "BINPUT", "LONG_BINPUT")


class RestrictedUnpickler(pickle.Unpickler):
    """An unpickler that accepts only the names in `_ALLOWED`."""

    def find_class(self, module: str, name: str) -> Any:
        """Return the stand-in for `module.name`; raises UnpicklingError for any name not on the list."""
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"the pickle asks for {module}.{name}, which is refused") from None


def load_pickle(stream: BinaryIO, path: Path) -> Any:
    """Load a pickle of arrays (as `PickledArray`), CSR matrices (`PickledMatrix`), lists and dicts.

    Raises MalformedFileError if it is damaged or names anything else.
    """
    content = stream.read()
    try:
        for code, argument, _ in pickletools.genops(content):
            # The unpickler's memo is allocated up to the largest index, so a huge index must be refused.
            if code.name in _KEPT_UNDER and int(argument or 0) > len(content):
                raise pickle.UnpicklingError(f"an entry is kept under the number {argument}")
        return RestrictedUnpickler(io.BytesIO(content), fix_imports=False, encoding="latin1").load()
    except Exception as error:
        # A damaged pickle may raise nearly any exception.
        raise malformed(path, f"not a pickle of arrays ({error})") from error


def as_array(content: Any, path: Path) -> np.ndarray:
    """Return the unpickled object as a numeric array. Raises MalformedFileError if it is not one."""
    if not isinstance(content, PickledArray):
        raise malformed(path, "it holds something else where an array is expected")
    return content.array(path)


def as_matrix(content: Any, path: Path) -> sp.csr_matrix:
    """Return an unpickled sparse or dense matrix as CSR. Raises MalformedFileError if it is no matrix."""
    if isinstance(content, PickledMatrix):
        return content.matrix(path)
    array = as_array(content, path)
    if array.ndim != 2:
        raise malformed(path, f"it holds an array of shape {array.shape} where a matrix is expected")
    return sp.csr_matrix(single(array))
