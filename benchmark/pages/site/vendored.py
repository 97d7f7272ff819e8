"""JavaScript of other people that the page carries, from the packages that publish it.

It is stored compressed: the browser unpacks a library when the first plot or table comes into view.
"""

from __future__ import annotations

import base64
import gzip
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from types import MappingProxyType

LIBRARIES = MappingProxyType(
    {
        "plotly": ("plotly", "package_data/plotly.min.js"),
        "datatables": ("itables", "html/dt_bundle.js"),
    }
)
"""Name on the page → the package that brings it and the file there."""


@cache
def packed(name: str) -> str:
    """A library, gzipped, in base64; the same bytes at every call."""
    package, path = LIBRARIES[name]
    # Not imported: only its file is wanted, and what imports it would take seconds.
    return base64.b64encode(gzip.compress(_file(package, path).read_bytes(), mtime=0)).decode()


def _file(package: str, path: str) -> Traversable:
    return files(package).joinpath(path)
