"""The page of a small results folder, in a real browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import sync_playwright

from fedsub.benchmark.records.store import Store
from fedsub.benchmark.report.pages import write_report
from tests.benchmark.fakes import make_cell, make_record
from tests.conftest import NO_BROWSER

RESULTS = Path(__file__).resolve().parents[4] / "results"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
HOSTILE = "</script><img src=x onerror=\"document.title='taken'\">"
"""What a record's names may hold."""


@pytest.fixture(scope="session")
def page_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`index.html` of FED-PUB's Table 2 as shipped, with its notes, and of records with hostile names."""
    folder = tmp_path_factory.mktemp("results")
    for name in ("runs/fedpub-2.jsonl", "notes/fedpub-2.md", "notes/fedpub-fig7.md"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(RESULTS / name, folder / name)
    store = Store(folder, "quick")
    for seed, dataset in enumerate(("community[nodes=300]", HOSTILE)):
        cell = make_cell(protocol="quick", dataset=dataset, label=HOSTILE, clients=3, seed=seed)
        one = {"round": [1], "validation": [50.0], "test": [51.0]}
        store.append(make_record(cell, partition_statistics={"nodes_held": 300}, note=HOSTILE, curve=one))
    (folder / "claims.md").write_text(f"# Claims\n\n{HOSTILE} [x](javascript:alert(1))\n")
    return write_report(folder)[-1]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A headless Chromium; skips, and says so, where none is installed."""
    with sync_playwright() as started:
        found = next(filter(None, map(shutil.which, BROWSERS)), started.chromium.executable_path)
        if not Path(found).exists():
            pytest.skip(f"{NO_BROWSER}: run make browser")
        browser = started.chromium.launch(executable_path=found)
        yield browser
        browser.close()


class Window:
    """A window of the browser on the page, and what its console said."""

    def __init__(self, browser: Any, path: Path, width: int = 1280, **settings: Any) -> None:
        """Open the page; without a network, as a reader on a train has none."""
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, offline=True, reduced_motion="reduce", **settings
        )
        self.page = self.context.new_page()
        self.errors: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on(
            "console",
            lambda message: (
                self.errors.append(message.text) if message.type in ("error", "warning") else None
            ),
        )
        self.page.on(
            "request",
            lambda request: (
                self.errors.append(request.url)
                if request.url.startswith(("http:", "https:", "ws:"))
                else None
            ),
        )
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("#all-figures tbody tr td button")

    def plot(self, table: str, kind: str) -> Any:
        """A plot, scrolled to and drawn."""
        figure = self.page.locator(f'.plot[data-table="{table}"][data-kind="{kind}"]')
        figure.scroll_into_view_if_needed()
        figure.locator(".main-svg").first.wait_for()
        return figure

    def filter(self, column: str) -> Any:
        """The choice of what is shown of a column."""
        return self.page.locator(f'#filters select[data-column="{column}"]')

    def rows(self) -> list[list[str]]:
        """The text of the lines of the table of all figures that are in sight."""
        found: list[list[str]] = self.page.locator("#all-figures tbody").evaluate(
            "body => [...body.rows].map(row => [...row.cells].map(cell => cell.innerText))"
        )
        return found


@pytest.fixture
def window(chromium: Any, page_path: Path) -> Iterator[Window]:
    """The page in a window 1280 wide; at the end its console must have said nothing."""
    opened = Window(chromium, page_path)
    yield opened
    assert opened.errors == []
    opened.context.close()
