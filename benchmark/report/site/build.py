"""Write the folder `results/site`: `index.html`, its style and script, and the views' data files."""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from jinja2 import Environment
from markupsafe import Markup, escape

from fedsub.benchmark.analysis import agreement, sequential
from fedsub.benchmark.analysis.figures import Entry
from fedsub.benchmark.analysis.metrics import with_spread
from fedsub.benchmark.analysis.public_code import TOLERANCE
from fedsub.benchmark.analysis.summary import EVERY
from fedsub.benchmark.machine import ROOT, commit, git, version_of
from fedsub.benchmark.report.site import check, leaderboard, method, papers
from fedsub.benchmark.report.site.charts import Line, lines, ranks, strip
from fedsub.benchmark.report.site.data import TUNED, Facts, Page, block_address, method_address, slug
from fedsub.benchmark.report.wording import block_title, ends, heading_of, title_of
from fedsub.benchmark.report.writing import templates, write_page

SYMBOLS = {
    agreement.MATCHES: "✓",
    agreement.DIFFERS: "≠",
    agreement.NEEDS_RUNS: "…",
    agreement.UNSETTLED: "?",
    "holds": "✓",
    "fails": "✗",
    agreement.KEPT: "✓",
    agreement.VANISHED: "✗",
    agreement.OPEN: "…",
    agreement.SMALL: "–",
}
"""Verdict → the symbol beside it, so that colour is not its only mark."""


def write_site(results: Path, facts: Facts) -> Path:
    """Write the site of a results folder; returns the path of its `index.html`. The same records and commit
    give the same bytes."""
    folder = results / "site"
    environment = _environment()
    files: dict[str, dict[str, list[str]]] = {}
    for page in pages(facts):
        html = environment.get_template(page.template).render(page.values)
        files.setdefault(page.file, {})[page.address] = [page.title, html]
    for name, held in files.items():
        _write_data(folder, name, "PAGES", held)
    named = [*facts.named_pages(), *_guides(folder)]
    _write_data(folder, "search", "SEARCH", {"figures": check.search_lines(facts), "pages": named})
    for path in folder.glob("data/*.js"):
        if path.stem not in (*files, "search"):
            path.unlink()
    for name in ("style.css", "app.js"):
        write_page(folder / name, (Path(__file__).parent / "assets" / name).read_bytes())
    docs = "docs/index.html" if (folder / "docs" / "index.html").is_file() else ""
    home = environment.get_template("index.html").render(**_home(facts), docs=docs)
    return write_page(folder / "index.html", home.encode())


def pages(facts: Facts) -> Iterator[Page]:
    """Return every page except the first."""
    decided = [(entry, address) for entry, address in facts.figures if entry.answer[1]]
    # The clearest example: undecidable from print, and decided by the code of the method's own paper.
    worked = max(decided, key=lambda figure: _clarity(figure[0]), default=None)
    values = {"rule": agreement, "seeds": sequential, "near": TOLERANCE, "worked": worked}
    return chain(
        leaderboard.pages(facts),
        check.pages(facts),
        papers.pages(facts),
        method.pages(facts),
        method.graph_pages(facts),
        [Page("decide", "How we decide", "decide.html", values)],
        [Page("submit", "Submit your results", "submit.html", {})],
        [Page("arena", "The arena", "arena.html", _arena(facts, facts.arena))] if facts.arena else [],
    )


def _arena(facts: Facts, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values for the view of the arena."""
    places = (("printed", 1), ("reproduced", 2), ("tuned", 3))
    drawn = [
        Line(each["method"], [(place, each[name]) for name, place in places if each[name] is not None])
        # Those that rest on most figures come first: few fit.
        for each in sorted(found["gains"], key=lambda each: -each["figures"])
    ]
    titles = "1 printed, 2 paper's protocol, 3 all tuned", "gain in points"
    svg = lines(drawn, *titles, "Gains of papers' methods") if drawn else ""
    values = {"arena": found, "tuned": [*facts.tables.get(TUNED, ())], "table": TUNED, "svg": svg}
    return {**values, "diagram": _diagram(found)}


def _diagram(arena: Mapping[str, Any]) -> str:
    """Return the critical-difference diagram of the ranked methods; empty without Friedman's test."""
    if arena["friedman_p"] is None:
        return ""
    rows = [row for row in arena["ranking"] if not row["privacy"]]
    place = {row["method"]: number for number, row in enumerate(rows)}
    ranked = [(title_of(row["method"]), row["rank"][0]) for row in rows]
    (best, least), (worst, most) = ranked[0], ranked[-1]
    said = f"Mean ranks of {len(rows)} methods, from {best} ({least:.2f}) to {worst} ({most:.2f})."
    return ranks(ranked, [(place[first], place[last]) for first, last in arena["tied"]], said)


def _clarity(entry: Entry) -> tuple[bool, ...]:
    own = entry.authors is not None and entry.authors.method == entry.authors.code
    return entry.answer[0] == agreement.MATCHES, entry.level.word == agreement.UNSETTLED, own


def _home(facts: Facts) -> dict[str, Any]:
    """Return the values for the first screen."""
    board = leaderboard.block_values(facts, *facts.first, "h2") if facts.first else {"board": ""}
    return board | {
        "methods": len({row.cell.method for board in facts.boards for row in board.rows}),
        "every": EVERY,
        "found": facts.headline,
        "records": len({record.key for board in facts.boards for record in board.records}),
        "arena": facts.arena,
        "version": version_of("fedsub-bench", "0.1.0"),
        "commit": commit(),
        "date": git(ROOT, "log", "-1", "--format=%cs") or "",
    }


def _guides(folder: Path) -> Iterator[list[str]]:
    """Yield the search index of the guides that `make docs` built beside the site, each with its words."""
    for path in sorted((ROOT / "docs").glob("*.md")):
        built = f"docs/{path.stem}.html"
        if (folder / built).is_file():
            text = path.read_text("utf-8")
            words = " ".join(sorted({*re.findall(r"[a-z]{4,}", text.lower())}))
            yield ["guide", text.partition("\n")[0].removeprefix("# "), words, built]


def _environment() -> Environment:
    """Return the HTML templates, with autoescape."""
    environment = templates("site/assets", autoescape=True)
    environment.filters |= {
        "code": _code,
        "ends": ends,
        "heat": leaderboard.heat,
        "number": leaderboard.number,
        "ranks": leaderboard.ranks_of,
        "slug": slug,
        "spread": lambda score: with_spread(score.mean, score.std, by_spread=True),
        "without_sizes": lambda leaves: re.sub(" ?[0-9,]+ B", "", leaves).replace(" a round", " each round"),
        "wrapped": lambda name: Markup("=<wbr>").join(name.split("=")),
    }
    environment.globals |= {
        "answer_words": check.answer_words,
        "block_address": block_address,
        "block_title": block_title,
        "figure_title": check.figure_title,
        "heading_of": heading_of,
        "method_address": method_address,
        "source": check.source,
        "strip": strip,
        "symbol": lambda word: SYMBOLS.get(word, "·"),
    }
    environment.globals["parts"] = environment.get_template("parts.html").module
    return environment


def _code(text: str) -> Markup:
    """Return the text with the parts between backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _write_data(folder: Path, name: str, variable: str, held: Any) -> None:
    """Write the data as a script: a page opened from a file can load scripts but cannot fetch data."""
    text = json.dumps(held, ensure_ascii=False, separators=(",", ":"))
    write_page(folder / "data" / f"{name}.js", f"Object.assign(window.{variable}??={{}},{text});\n".encode())
