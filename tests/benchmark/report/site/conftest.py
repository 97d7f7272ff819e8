"""The site of the records in git, in a real browser."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from playwright.sync_api import sync_playwright

from fedsub.benchmark.report.pages import write_report
from fedsub.benchmark.spec.catalog import remembering
from tests.conftest import NO_BROWSER

RESULTS = Path(__file__).resolve().parents[4] / "results"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`index.html` of the records in git, made by the first test process that requests it."""
    place = tmp_path_factory.getbasetemp()
    folder = (place.parent if "PYTEST_XDIST_WORKER" in os.environ else place) / "site-of-records"
    with FileLock(folder.with_suffix(".lock")):
        if not folder.exists():
            made = tmp_path_factory.mktemp("results")
            for name in ("runs", "curves", "authors", "notes", "arena.json"):
                (made / name).symlink_to(RESULTS / name)
            with remembering():
                write_report(made)
            made.rename(folder)
    return folder / "site" / "index.html"


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A headless Chromium; the test is skipped with a reason if none is installed."""
    with sync_playwright() as started:
        found = next(filter(None, map(shutil.which, BROWSERS)), started.chromium.executable_path)
        if not Path(found).exists():
            pytest.skip(f"{NO_BROWSER}: run make browser")
        browser = started.chromium.launch(executable_path=found)
        yield browser
        browser.close()


class Window:
    """A browser window without a network, with the messages of its console."""

    def __init__(
        self, browser: Any, index: Path, address: str = "", width: int = 1280, **settings: Any
    ) -> None:
        """Open the site at an address."""
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, offline=True, reduced_motion="reduce", **settings
        )
        self.page = self.context.new_page()
        self.errors: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._hear)
        self.page.on("request", self._watch)
        self.clicks = 0
        self.index = index
        self.open(address)

    def _hear(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def _watch(self, request: Any) -> None:
        if request.url.startswith(("http:", "https:", "ws:")):
            self.errors.append(request.url)

    def open(self, address: str) -> None:
        """Open an address afresh, as a link from elsewhere does, and wait for the view."""
        self.page.goto("about:blank")
        self.page.goto(self.index.as_uri() + (f"#{address}" if address else ""))
        self.page.locator("main :is(h1, h2):visible").first.wait_for()

    @property
    def address(self) -> str:
        """The part of the URL after `#`."""
        return str(self.page.evaluate("decodeURI(location.hash.slice(1))"))

    def click(self, name: str) -> None:
        """Click a link, and count it."""
        self.clicks += 1
        self.page.locator("main, nav").get_by_role("link", name=name, exact=True).first.click()

    def choose(self, selector: str, title: str) -> None:
        """Choose an option of a selector, and count it as a click."""
        self.clicks += 1
        self.page.locator(f'select[name="{selector}"]:visible').select_option(label=title)

    def close(self) -> None:
        """Close the window; its console must be empty."""
        assert self.errors == []
        self.context.close()


@pytest.fixture
def window(chromium: Any, index: Path) -> Iterator[Window]:
    """The first screen in a window 1280 wide."""
    opened = Window(chromium, index)
    yield opened
    opened.close()
