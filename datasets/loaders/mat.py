"""Safe reading of downloaded MATLAB .mat files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import scipy.io
import scipy.sparse as sp

from fedsub.datasets.loaders.raw import malformed


def read_mat(path: Path, names: Sequence[str]) -> list[Any]:
    """Read the matrices of these names, sparse ones as CSR.

    Raises MalformedFileError if the file is damaged, lacks a matrix, or one is no matrix of numbers.
    """
    try:
        content = scipy.io.loadmat(path, variable_names=names)
    except Exception as error:
        # A damaged file may raise nearly any exception.
        raise malformed(path, f"not a .mat file ({' '.join(str(error).split())})") from error
    found = []
    for name in names:
        if name not in content:
            raise malformed(path, f"the matrix {name!r} is missing")
        matrix = content[name].tocsr() if sp.issparse(content[name]) else content[name]
        if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
            raise malformed(path, f"{name} is no matrix of numbers")
        found.append(matrix)
    return found
