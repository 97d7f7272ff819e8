"""What all tests of graphs stand on."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, so that nothing outlives it."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("FEDSUB_CACHE", str(folder))
    return folder
