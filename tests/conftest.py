"""Fixtures shared by the whole suite."""

import gc
import os
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

# Several processes whose threads outnumber the cores take ten times as long. Read when torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# The first example of a test may compile a kernel, and machines differ: timings are for benchmarks.
settings.register_profile("suite", deadline=None, max_examples=50)
settings.load_profile("suite")

# As on the command line.
gc.set_threshold(100_000)

NO_BROWSER = "no Chromium is installed"
"""Beginning of the reason for which browser tests are skipped."""


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip into a failure with FEDSUB_NO_SKIP=1 (CI with the real graphs), where it hides a fault."""
    if os.environ.get("FEDSUB_NO_SKIP") == "1" and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        # .ci/run sets this after it has failed to install a browser.
        if os.environ.get("FEDSUB_NO_BROWSER") == "1" and NO_BROWSER in str(reason):
            return
        report.outcome = "failed"
        report.longrepr = f"FEDSUB_NO_SKIP=1 forbids skipping: {reason}"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Apply the rule against skips to every phase of a test."""
    report = yield
    _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Apply the rule against skips to modules that skip themselves."""
    report = yield
    _refuse_skip(report)
    return report


@pytest.fixture(scope="session")
def data_directory() -> Path:
    """The folder of real graphs; tests that need it are skipped with a reason if it is not set."""
    folder = os.environ.get("FEDSUB_DATA")
    if not folder:
        pytest.skip("FEDSUB_DATA is not set: point it at the folder of graph archives to run this test")
    return Path(folder)


@pytest.fixture
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh cache folder, in which graphs, partitions and answers are kept."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("FEDSUB_CACHE", str(folder))
    return folder
