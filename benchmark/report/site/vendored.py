"""JavaScript of other people that the page carries, from the packages that publish it.

It is stored compressed: the browser unpacks a library when the first plot or table comes into view.
"""

from __future__ import annotations

import base64
import gzip
from functools import cache
from importlib.resources import files
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
    return base64.b64encode(gzip.compress(files(package).joinpath(path).read_bytes(), mtime=0)).decode()
