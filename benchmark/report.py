"""Everything in the results folder that is made from records: pages, figures, one HTML index."""

from __future__ import annotations

from pathlib import Path

from markdown_it import MarkdownIt

from benchmark.authors.records import load
from benchmark.pages.authors import write_authors_page
from benchmark.pages.claims import write_claims
from benchmark.pages.leaderboard import markdown, notes_on, write_leaderboard
from benchmark.pages.plots import draw_curves
from benchmark.pages.reproduction import write_reproduction
from benchmark.pages.scores import make_rows
from benchmark.pages.writing import write_page
from benchmark.performance.page import write_performance_page
from benchmark.plan import grid_cells
from benchmark.protocol import load_protocol, names
from benchmark.records import Records
from datasets.errors import UserError

HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>FedSub Bench</title>
<style>
body { font: 15px/1.45 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 0.5rem 0 1rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.2rem 0.7rem; border-bottom: 1px solid #ddd; }
img { max-width: 100%; }
</style>
</head>
<body>
"""


def write_report(results: Path) -> list[Path]:
    """Remake every page of a results folder and its figures; returns their paths.

    A page for every protocol with records, its own or those of equal work, `reproduction.md` and `.json` and
    `claims.md` over all of them, `performance.md` where speed has been measured, and `index.html`, the
    protocols' pages with their figures. Raises UserError if the folder holds no records.
    """
    found = {path.stem for path in (results / "runs").glob("*.jsonl")}
    measured = any((results / "performance").glob("*.jsonl"))
    if not found and not measured:
        raise UserError(f"{results} holds no records: run python -m benchmark first")
    paths: list[Path] = []
    renderer = MarkdownIt("commonmark", {"html": False}).enable("table")
    sections: list[str] = []
    theirs = load(results)
    stored = Records(results)
    protocols = [load_protocol(name) for name in names()]
    tables = [(protocol, stored.of_table(protocol.name, grid_cells(protocol))) for protocol in protocols]
    for protocol, records in tables:
        name = protocol.name
        if name not in found and not records:
            continue
        figures = draw_curves(results, name, make_rows(protocol, records))
        paths += [write_leaderboard(results, protocol, records), *figures.values()]
        page = markdown(protocol, records, notes_on(results, protocol), figures, theirs)
        sections.append(f'<section id="{name}">\n{renderer.render(page)}</section>\n')
    if found:
        paths += [*write_reproduction(results, tables), write_claims(results, tables)]
    if (page_of_authors := write_authors_page(results)) is not None:
        paths.append(page_of_authors)
    if measured:
        paths.append(write_performance_page(results))
    index = results / "index.html"
    write_page(index, f"{HEAD}{''.join(sections)}</body>\n</html>\n".encode())
    return [*paths, index]
