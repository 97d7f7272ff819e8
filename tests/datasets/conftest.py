"""Fixtures of all tests of graphs."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def cache(own_cache: Path) -> Path:
    return own_cache
