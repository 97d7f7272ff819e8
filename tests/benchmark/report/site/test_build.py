"""The site of small results folders, without a browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.records.verified import add_verified
from fedsub.benchmark.report.pages import write_report
from fedsub.benchmark.report.site.charts import Line, Point, lines, scatter, strip
from fedsub.benchmark.report.site.data import slug
from tests.benchmark.fakes import make_cell, make_record

HOSTILE = "</script><img src=x onerror=\"document.title='taken'\">"
"""What a record's names may hold."""


def site_of(folder: Path, *labels: str) -> dict[str, str]:
    """Name → content of every file of a site of runs with these labels."""
    for label in labels:
        for seed in range(3):
            one = {"round": [1], "validation": [50.0], "test": [51.0]}
            cell = make_cell(protocol="quick", label=label, dataset=label, clients=3, seed=seed)
            Records(folder).append(make_record(cell, curve=one, privacy=label))
    index = write_report(folder)[-1]
    folder = index.parent
    return {str(path.relative_to(folder)): path.read_text("utf-8") for path in folder.rglob("*.*")}


def _data(results: Path, name: str) -> str:
    text = (results / "site" / "data" / f"{name}.js").read_text("utf-8")
    return text.partition("{},")[2].removesuffix(");\n")


def html_of(files: dict[str, str]) -> Iterator[str]:
    """All HTML of a site."""
    yield files["index.html"]
    for name, text in files.items():
        if name.startswith("data/") and name != "data/search.js":
            yield from (
                html for _, html in json.loads(text.partition("{},")[2].removesuffix(");\n")).values()
            )


def test_what_records_say_is_text(tmp_path: Path) -> None:
    files = site_of(tmp_path, HOSTILE)
    assert "&lt;img" in files["index.html"]
    assert not [html for html in html_of(files) if "<img" in html]


def test_records_without_any_printed_figure_make_a_site(tmp_path: Path) -> None:
    files = site_of(tmp_path, "mine")
    assert "leaderboard/mine/" in files["index.html"]
    assert '"decide"' in files["data/decide.js"]


def test_a_row_names_who_verified_it(tmp_path: Path) -> None:
    site_of(tmp_path, "mine")
    records = [*Records(tmp_path).every()]
    add_verified(tmp_path, "Ada <b>", records[:2])
    add_verified(tmp_path, "Ada <b>", records[:1])
    assert f"Ada &lt;b&gt; (2 of {len(records)})" in site_of(tmp_path)["index.html"]


def test_an_arena_is_shown_where_there_is_one(tmp_path: Path) -> None:
    assert "data/arena.js" not in site_of(tmp_path, "mine")
    row = {
        "method": "fedsgd",
        "rank": [1.5, 1.0, 2.25],
        "gain": [2.0, None, None],
        "places": [1, 3],
        "wins": 2,
    }
    row |= {"over_local": [0.9, 0.8, 1.0], "over_fedavg": None, "tuning": 1.0, "default_rank": None}
    row |= {"megabytes": 160.8, "seconds": 0.115, "privacy": ""}
    arena = {"ranking": [row], "graphs": 3, "trials": 20, "smaller": [], "unranked": {}}
    (tmp_path / "arena.json").write_text(json.dumps(arena))
    files = site_of(tmp_path)
    assert "has the best mean rank of 1 methods over 3 graphs: 1.50" in files["index.html"]
    assert "1.00 to 2.25" in files["data/arena.js"]
    assert "1–3" in files["data/arena.js"]
    assert "1.50 [1.00, 2.25]" in (tmp_path / "README.md").read_text(encoding="utf-8")
    # Ranks of few graphs have their page, but are no finding.
    (tmp_path / "arena.json").write_text(json.dumps({**arena, "smaller": ["2 of 24 blocks"]}))
    files = site_of(tmp_path)
    assert "data/arena.js" in files
    assert "best mean rank" not in files["index.html"] + (tmp_path / "README.md").read_text(encoding="utf-8")


def test_the_documentation_beside_it_is_kept_and_linked(tmp_path: Path) -> None:
    docs = tmp_path / "site" / "docs" / "index.html"
    docs.parent.mkdir(parents=True)
    docs.write_text("docs")
    docs.with_name("scope.html").write_text("scope")
    assert 'href="docs/index.html"' in site_of(tmp_path, "mine")["index.html"]
    assert docs.read_text() == "docs"
    # Who searches for what is out of scope finds the page that says so.
    guides = {
        page[3]: page[2] for page in json.loads(_data(tmp_path, "search"))["pages"] if page[0] == "guide"
    }
    assert set(guides) == {"docs/index.html", "docs/scope.html"}
    assert "regression" in guides["docs/scope.html"].split()


@pytest.mark.parametrize(
    ("text", "address"), [("FED-PUB", "fed-pub"), ("FedSage+", "fedsage-plus"), ("a[b=0.1]", "a-b-0-1")]
)
def test_an_address_is_letters_digits_and_dashes(text: str, address: str) -> None:
    assert slug(text) == address


def test_an_interval_that_leaves_its_line_ends_in_an_arrow() -> None:
    assert strip((-1.0, 2.0), 0.5, 3.0).count("tip") == 0
    assert strip((-1.0, 9.0), 0.5, 3.0).count("tip") == 1
    assert strip((-9.0, 9.0), 0.5, 3.0).count("tip") == 2


def test_at_most_six_names_stand_in_a_drawing() -> None:
    points = [Point(f"m{place}", float(place), float(place), "", True) for place in range(9)]
    drawn = scatter(points, "MB", "score", "said")
    assert drawn.count('class="best"') == 6
    assert drawn.count("<circle") == 9
    curves = lines([Line(f"m{place}", [(0, 1.0), (5, 2.0)]) for place in range(9)], "x", "y", "said")
    assert curves.count('class="line ') == 6


def test_names_in_a_drawing_do_not_overlap() -> None:
    drawn = lines([Line(name, [(0, 1.0), (5, 2.0)]) for name in "abc"], "x", "y", "said")
    places = [part.split('"')[1] for part in drawn.split("<text x=")[1:]]
    ends = [part.split('y="')[1].split('"')[0] for part in drawn.split("<text x=")[-3:]]
    assert len(set(places[-3:])) == 1
    assert min(abs(float(a) - float(b)) for a, b in pairwise(ends)) >= 12
