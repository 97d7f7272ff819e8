"""Fixtures of all tests of graphs."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A separate cache folder for each test."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("FEDSUB_CACHE", str(folder))
    return folder
