from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.benchmark.report.site.conftest import Window

VERDICT, DIFFERENCE = 10, 8
VERDICTS = {"matches", "differs", "needs more runs", "cannot be settled from print"}


def shown(window: Window) -> int:
    return int(window.page.locator("#shown").inner_text().split()[0])


def test_it_opens_on_what_is_measured(window: Window) -> None:
    assert window.page.title().startswith("FedSub Bench")
    assert "differs" in window.page.locator("#summary p").first.inner_text()
    line = window.page.locator("#summary tr", has_text="FED-PUB, Table 2").first.inner_text().split("\t")
    printed, measurable, measured, *judged = (int(cell) for cell in line[1:8])
    assert printed >= measurable >= measured == sum(judged) > 0
    assert shown(window) >= measured
    assert {row[VERDICT] for row in window.rows()} <= VERDICTS


def test_figures_are_filtered_searched_and_sorted(window: Window) -> None:
    page, all_measured = window.page, shown(window)
    window.filter("verdict").select_option("differs")
    assert 0 < shown(window) < all_measured
    assert {row[VERDICT] for row in window.rows()} == {"differs"}
    text = page.locator("#shown").inner_text()
    page.get_by_role("button", name="Show all").click()
    expect(page.locator("#shown")).not_to_have_text(text)
    window.filter("verdict").select_option("all that are measured")
    page.locator("#search").fill("fedprox citeseer")
    assert 0 < shown(window) < all_measured
    assert {(row[1], row[3].split(" ·")[0]) for row in window.rows()} == {("CiteSeer", "FedProx")}
    heading = page.locator("#all-figures thead th", has_text="difference").get_by_role("button")
    heading.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#all-figures thead th[aria-sort=ascending]")
    differences = [float(row[DIFFERENCE].replace("−", "-")) for row in window.rows()]
    assert len(differences) > 1
    assert differences == sorted(differences)


def test_the_summary_leads_to_the_figures_of_a_table(window: Window) -> None:
    window.page.get_by_role("link", name="FED-PUB, Table 2", exact=True).click()
    assert {row[0] for row in window.rows()} == {"FED-PUB, Table 2"}
    assert window.filter("table").input_value() == "FED-PUB, Table 2"


def test_a_command_is_copied_and_records_are_named(window: Window) -> None:
    page = window.page
    page.locator("button.copy").first.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#said")).to_contain_text("copied")
    page.locator("#search").focus()
    page.keyboard.press("Control+V")
    assert page.locator("#search").input_value().startswith("python -m benchmark --table fedpub-2 ")
    page.locator("#search").fill("")
    more = page.locator("button.more").first
    more.click()
    assert more.get_attribute("aria-expanded") == "true"
    told = page.locator("#all-figures dl").inner_text()
    assert "runs/fedpub-2.jsonl" in told
    assert "--results mine" in told


def test_at_most_eight_curves_are_picked(window: Window) -> None:
    figure = window.plot("fedpub-2", "curves")
    pressed = figure.locator('.legend button[aria-pressed="true"]')
    left = figure.locator('.legend button[aria-pressed="false"]')
    assert pressed.count() == 8
    assert left.count() >= 1
    name = left.first.inner_text()
    left.first.focus()
    window.page.keyboard.press("Enter")
    figure.get_by_role("button", name=name, pressed=True).wait_for()
    assert pressed.count() == 8
    bright = "g => g.querySelectorAll('.scatterlayer .trace .js-line[style*=\"stroke-width: 2px\"]').length"
    assert figure.locator(".main-svg").first.evaluate(bright) == 8
    pressed.first.click()
    expect(figure.locator('[aria-pressed="true"]')).to_have_count(7)


def test_a_point_is_picked_in_the_plot_itself(window: Window) -> None:
    figure = window.plot("fedpub-2", "costs")
    pressed = figure.locator('[aria-pressed="true"]')
    before = pressed.all_inner_texts()
    point = figure.locator(".scatterlayer .trace .point").last.bounding_box()
    assert point is not None
    window.page.mouse.click(point["x"] + point["width"] / 2, point["y"] + point["height"] / 2)
    expect(pressed).not_to_have_text(before)
    assert 1 <= pressed.count() <= 8


@pytest.mark.parametrize("axis", ["rounds", "megabytes sent", "seconds"])
def test_curves_stand_on_any_axis_and_say_what_they_show(window: Window, axis: str) -> None:
    figure = window.plot("fedpub-2", "curves")
    figure.locator(".block").select_option(index=1)
    figure.locator(".axis").select_option(axis)
    figure.locator(".xtitle", has_text=axis).wait_for()
    said = figure.locator(".picture").get_attribute("aria-label")
    assert f"against {axis}" in said
    assert "on cora, metis, 10 clients" in said
    assert "Highest accuracy %: " in said


def test_a_single_point_has_a_marker(window: Window) -> None:
    figure = window.plot("quick", "curves")
    assert figure.locator(".scatterlayer .trace .point").count() >= 1


def test_differences_heat_map_and_notes_are_in_place(window: Window) -> None:
    forest = window.plot("fedpub-2", "forest")
    assert "cannot be settled from print" in forest.locator(".picture").get_attribute("aria-label")
    section = window.page.locator("#fedpub-2")
    assert section.locator(".heat td[style]").count() > 20
    assert "chaotic" in section.locator(".notes").inner_text()
    assert window.page.locator("#fedpub-fig7 .notes").count() == 1


def test_every_link_leads_somewhere(window: Window) -> None:
    lost = window.page.evaluate(
        "[...document.querySelectorAll('a[href^=\"#\"]')].map(a => a.getAttribute('href').slice(1))"
        ".filter(id => !document.getElementById(id))"
    )
    assert lost == []


def test_what_records_say_is_text(window: Window) -> None:
    window.plot("quick", "curves")
    window.plot("quick", "costs")
    window.page.get_by_role("button", name="Show all").click()
    assert window.page.title() != "taken"
    assert window.page.locator("img").count() == 0
    assert window.page.locator('a[href^="javascript"]').count() == 0


def test_a_narrow_window_is_not_wider_than_it_is(chromium: Any, page_path: Path) -> None:
    window = Window(chromium, page_path, width=400)
    for kind in ("forest", "curves", "costs"):
        window.plot("fedpub-2", kind)
    window.page.locator("button.more").first.click()
    widen = "options => options.map(option => option.text = 'x'.repeat(80)).length"
    assert window.page.locator("select.block option").evaluate_all(widen) > 0
    assert window.page.evaluate("document.documentElement.scrollWidth") <= 400
    assert window.errors == []
    window.context.close()


def test_dark_is_asked_for_or_chosen_and_kept(chromium: Any, page_path: Path) -> None:
    window = Window(chromium, page_path, color_scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = window.page.evaluate(ground)
    button = window.page.locator("#theme")
    assert button.get_attribute("aria-pressed") == "true"
    button.click()
    assert window.page.evaluate(ground) == "rgb(255, 255, 255)" != dark
    window.page.reload()
    assert window.page.evaluate(ground) == "rgb(255, 255, 255)"
    window.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(chromium: Any, page_path: Path, scheme: str) -> None:
    window = Window(chromium, page_path, color_scheme=scheme)
    for kind in ("forest", "curves", "costs"):
        window.plot("fedpub-2", kind)
    window.page.locator("button.more").first.click()
    found = Axe().run(window.page).response["violations"]
    grave = [(item["impact"], item["id"], item["nodes"][0]["html"][:200]) for item in found]
    assert [item for item in grave if item[0] != "minor"] == []
    window.context.close()
