"""What all tests of figures share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fedsub.benchmark.spec.catalog import remembering


@pytest.fixture(scope="package", autouse=True)
def _remembering() -> Iterator[None]:
    """As commands do: without it methods are described anew for every plan."""
    with remembering():
        yield
