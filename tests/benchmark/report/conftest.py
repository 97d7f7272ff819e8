"""What all tests of pages share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fedsub.benchmark.spec.catalog import remembering


@pytest.fixture(scope="package", autouse=True)
def _remembering() -> Iterator[None]:
    """As commands do: without it most of a report's time is spent on describing methods anew."""
    with remembering():
        yield
