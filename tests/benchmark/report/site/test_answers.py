"""Five readers' questions, each answered in at most three clicks, and by a link opened afresh."""

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.benchmark.report.site.conftest import Window


def which_method(window: Window) -> str:
    """Which method for CiteSeer with 20 clients?"""
    window.choose("graph", "CiteSeer")
    expect(window.page.locator("#view h1")).to_contain_text("CiteSeer")
    window.choose("clients", "20")
    expect(window.page.locator("#view h1")).to_have_text("CiteSeer, METIS, 20 clients")
    first = window.page.locator("#view tbody tr").first
    assert first.locator(".rank").inner_text().startswith("1")
    leaders = [
        rank for rank in window.page.locator("#view .rank").all_inner_texts() if rank[:2] in ("1", "1–")
    ]
    said = str(window.page.locator("#view .tied").inner_text())
    assert said.startswith(f"{len(leaders)} methods are tied for the first rank")
    assert first.locator("th a").inner_text() in said
    return said


def is_it_true(window: Window) -> str:
    """Is 81.54 true?"""
    window.click("Check a number")
    card = window.page.locator("#view section", has=window.page.get_by_role("heading", name="FED-PUB"))
    card.get_by_role("link", name="Table 2", exact=True).click()
    window.page.get_by_role("link", name="81.54").click()
    window.clicks += 2
    return str(window.page.locator("#view .answer").inner_text())


def do_claims_hold(window: Window) -> str:
    """Do FED-PUB's claims hold?"""
    window.click("Papers")
    window.page.locator("#view").get_by_role("link", name="FED-PUB", exact=True).click()
    window.clicks += 1
    return str(window.page.locator(".claims h3").first.inner_text())


def what_is_the_headline(window: Window) -> str:
    """What was found?"""
    assert window.page.locator(".findings > li").count() == 4
    return str(window.page.locator(".findings li").first.inner_text())


def what_does_it_cost(window: Window) -> str:
    """How many bytes does FedStruct send beside FED-PUB?"""
    window.click("Cost")
    rows = window.page.locator("#view tbody tr")
    sent = [rows.filter(has_text=name).first.inner_text().split("\t") for name in ("FED-PUB", "FedStruct")]
    own, other = (float(cells[1].replace(",", "")) for cells in sent)
    assert other > 100 * own > 0
    return sent[1][1]


QUESTIONS = (which_method, is_it_true, do_claims_hold, what_is_the_headline, what_does_it_cost)


@pytest.mark.parametrize("ask", QUESTIONS, ids=lambda ask: ask.__name__)
def test_a_question_is_answered_in_three_clicks_and_by_a_link(
    chromium: Any, index: Path, window: Window, ask: Any
) -> None:
    answer = ask(window)
    assert answer
    assert window.clicks <= 3
    afresh = Window(chromium, index, window.address)
    expect(afresh.page.locator("main")).to_contain_text(answer)
    afresh.close()


def test_the_answer_to_a_number_is_that_of_the_records(window: Window) -> None:
    entries = json.loads((window.index.parents[1] / "reproduction.json").read_text(encoding="utf-8"))
    (entry,) = (
        each
        for each in entries
        if (each["paper"], each["table"], each["method"]) == ("FED-PUB", "2", "FED-PUB")
        and each["printed"]["mean"] == 81.54
    )
    said = is_it_true(window)
    assert f"here {entry['measured']['mean']:.2f} ± {entry['measured']['std']:.2f}" in said
    assert f"on our clients {entry['authors']['mean']:.2f}" in said
    own, theirs = entry["level"]["verdict"], entry["authors"]["verdict"]
    assert said.strip().endswith(theirs if theirs in ("matches", "differs") else own)
    assert entry["command"] in window.page.locator("main").inner_text()


def test_the_claims_are_those_of_the_records(window: Window) -> None:
    claims = json.loads((window.index.parents[1] / "claims.json").read_text(encoding="utf-8"))
    do_claims_hold(window)
    words = window.page.locator(".claims .card > p:first-child").all_inner_texts()
    own = [claim["verdict"] for claim in claims if claim["paper"] == "FED-PUB"]
    assert sorted(word.split(" ", 1)[1] for word in words) == sorted(own)


@pytest.mark.parametrize("query", ["10 cora fedpub metis", "FED-PUB on Cora, METIS, 10 clients", "81.54 2"])
def test_the_figure_that_is_searched_for_comes_first(window: Window, query: str) -> None:
    window.page.locator("#search").fill(query)
    window.page.keyboard.press("Enter")
    first = window.page.locator(".hits li").first
    expect(first).to_contain_text("FED-PUB on Cora, METIS, 10 clients")
    expect(first).to_contain_text("FED-PUB, Table 2")
    first.get_by_role("link").click()
    expect(window.page.locator("#view .answer")).to_contain_text("Printed 81.54")


def test_a_search_finds_methods_and_says_when_it_finds_nothing(window: Window) -> None:
    window.open("find?q=fedstruct")
    expect(
        window.page.locator("#view").get_by_role("link", name="FedStruct", exact=True).first
    ).to_be_visible()
    window.open("find?q=zzz")
    expect(window.page.locator("#view")).to_contain_text("No printed figure has all of these words.")
