"""Every view: its size, its links, its state in the address, and its accessibility."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.benchmark.report.site.conftest import Window

BOARD = "leaderboard/cora/metis/10/all-methods"
VIEWS = (
    *("", BOARD, "cost/cora/metis/10/all-methods", "map/all-methods"),
    *("check", "check/fed-pub/2", "check/fed-pub/2/cora-metis-10-fed-pub", "papers", "papers/fed-pub"),
    *("codes", "method", "method/fedpub", "graph", "graph/cora", "decide", "find?q=cora%20fedpub"),
    *("check/fedstruct/1", "cost/cora/metis/20/topfgl-3"),
    *("leaderboard/twitch/attribute-key-language/7/natural", "map/dial", "edges", "arena"),
)
CONTRAST = {"runOnly": ["color-contrast"], "resultTypes": ["violations"]}
"""Rules of axe that a page may break only in dark mode."""


def pages_of(index: Path) -> dict[str, list[str]]:
    """Address → title and content, of every data file."""
    found: dict[str, list[str]] = {}
    for path in sorted((index.parent / "data").glob("*.js")):
        text = path.read_text(encoding="utf-8")
        assigned = re.fullmatch(r"Object\.assign\(window\.(\w+)\?\?=\{\},(.*)\);\n", text, re.DOTALL)
        assert assigned is not None, path
        if assigned[1] == "PAGES":
            found |= json.loads(assigned[2])
    return found


def test_the_first_screen_is_small_and_needs_no_data_file(index: Path) -> None:
    assert index.stat().st_size <= 300_000
    assert sum(path.stat().st_size for path in index.parent.glob("*.*")) <= 2_000_000
    text = index.read_text(encoding="utf-8")
    assert re.findall(r'(?:src|href)="([^#"]+)"', text) == ["data:,", "style.css", "app.js"]
    assert "unsafe" not in text
    # A view loads one more file.
    assert max(path.stat().st_size for path in (index.parent / "data").glob("*.js")) <= 1_500_000


def test_every_link_leads_to_a_page_and_nothing_is_remote(index: Path) -> None:
    pages = pages_of(index)
    texts = [index.read_text(encoding="utf-8"), *(html for _, html in pages.values())]
    links = {link for text in texts for link in re.findall(r'href="#([^"]*)"', text)}
    choices = {value for text in texts for value in re.findall(r'<option value="([^"]*/[^"]*)"', text)}
    assert {link for link in links | choices if link not in pages} <= {"", "main"}
    for text in texts:
        assert re.findall(r'(?:src|href)="(?!#|style\.css|app\.js|data:,)', text) == []
        assert not re.search(r"<script(?! src=\"app\.js\")|\sstyle=|<[^>]*\son\w+=", text)


def test_an_unknown_address_says_so(chromium: Any, index: Path) -> None:
    window = Window(chromium, index, "check/nobody/1")
    expect(window.page.locator("#view")).to_contain_text("There is no page at this address")
    # The browser reports the missing file.
    assert len(window.errors) == 1
    window.context.close()


def test_a_budget_and_an_order_are_in_the_address(chromium: Any, index: Path, window: Window) -> None:
    window.open(BOARD)
    rows = window.page.locator("#view tbody tr:visible")
    everyone = rows.count()
    window.choose("budget", "at most 10 MB")
    few = rows.count()
    assert 0 < few < everyone
    ranks = window.page.locator("#view tr:visible .rank").all_inner_texts()
    assert {int(part) for rank in ranks for part in rank.split("–")} <= {*range(1, few + 1)}
    window.page.get_by_role("button", name="MB a client").click()
    sent = [float(text.split("\t")[7]) for text in rows.all_inner_texts()]
    assert sent == sorted(sent, reverse=True)
    assert len(set(sent)) > 1
    shown = rows.all_inner_texts()
    afresh = Window(chromium, index, window.address)
    assert afresh.page.locator("#view tbody tr:visible").all_inner_texts() == shown
    afresh.close()


def test_a_table_is_sorted_by_the_keyboard_and_copied(window: Window) -> None:
    page = window.page
    window.open(BOARD)
    page.get_by_role("button", name="gain over Local").focus()
    page.keyboard.press("Enter")
    read = "cells => cells.map(cell => cell.dataset.v).filter(Boolean).map(Number)"
    gains = page.locator("#view tbody td:nth-child(4)").evaluate_all(read)
    assert len(gains) > 2
    assert gains == sorted(gains, reverse=True)
    page.get_by_role("button", name="Copy as CSV").click()
    expect(page.locator("#said")).to_have_text("Copied.")
    page.locator("#search").focus()
    page.keyboard.press("Control+V")
    assert page.locator("#search").input_value().startswith('"method')


def test_a_selector_keeps_its_focus(window: Window) -> None:
    window.open(BOARD)
    window.choose("graph", "PubMed")
    expect(window.page.locator("#view h1")).to_contain_text("PubMed")
    assert window.page.evaluate("document.activeElement.name") == "graph"


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_fits_a_telephone_and_a_page_and_everyone_can_use_it(
    chromium: Any, index: Path, view: str
) -> None:
    window = Window(chromium, index, view, 400)
    page = window.page
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    # The first column stays where a table is scrolled.
    scrolled = page.locator("main .scroll:visible").first
    if scrolled.count() and scrolled.evaluate("box => (box.scrollLeft = 200, box.scrollLeft)") > 0:
        left = "box => box.querySelector('tbody th').getBoundingClientRect().left"
        assert abs(scrolled.evaluate(left) - scrolled.bounding_box()["x"]) < 1
    page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    # axe itself asks for the style sheet anew, which the policy forbids.
    assert window.errors == []
    # A4 across, less its margins, is 1047 wide.
    page.set_viewport_size({"width": 1047, "height": 900})
    page.emulate_media(media="print", color_scheme="light")
    rights = "all => all.map(each => each.getBoundingClientRect().right)"
    assert max(page.locator("main *").evaluate_all(rights)) <= 1047
    # Chromium leaves buttons out of a heading that it repeats on the next page.
    shown = "all => all.filter(each => getComputedStyle(each).display !== 'contents')"
    assert page.locator("thead button").evaluate_all(shown) == []
    page.set_viewport_size({"width": 1280, "height": 900})
    page.emulate_media(media="screen")
    # Rows without a class are made alike, and axe takes milliseconds for each.
    alike = "'tbody tr:nth-child(n + 31):not([class])'"
    page.evaluate(f"document.querySelectorAll({alike}).forEach(each => each.remove())")
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    page.emulate_media(color_scheme="dark")
    found += Axe().run(page, options=CONTRAST).response["violations"]
    grave = [(item["impact"], item["id"], item["nodes"][0]["html"][:200]) for item in found]
    assert [item for item in grave if item[0] != "minor"] == []
    window.context.close()


def test_the_names_in_a_drawing_lie_within_it(window: Window) -> None:
    window.open("cost/cora/metis/20/topfgl-3")
    for drawing in window.page.locator("#view svg.chart").all():
        box = drawing.bounding_box()
        named = [text.bounding_box() for text in drawing.locator("text").all()]
        assert len(named) > 4
        assert min(text["x"] for text in named) >= box["x"]
        assert max(text["x"] + text["width"] for text in named) <= box["x"] + box["width"]
    assert "FedGTA (network=gamlp)" in window.page.locator("#view figure text.end.best").all_text_contents()


def test_dark_is_asked_for_or_chosen_and_kept(chromium: Any, index: Path) -> None:
    window = Window(chromium, index, color_scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = window.page.evaluate(ground)
    button = window.page.locator("#theme")
    assert button.get_attribute("aria-pressed") == "true"
    button.click()
    assert window.page.evaluate(ground) == "rgb(255, 255, 255)" != dark
    window.page.reload()
    assert window.page.evaluate(ground) == "rgb(255, 255, 255)"
    window.close()
