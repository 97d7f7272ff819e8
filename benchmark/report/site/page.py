"""The page: what its parts give, put into the template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fedsub.benchmark.analysis.agreement import GAINS, VERDICTS
from fedsub.benchmark.analysis.figures import Entry, measured_on
from fedsub.benchmark.analysis.public_records import Run
from fedsub.benchmark.analysis.scores import Leaderboard
from fedsub.benchmark.analysis.summary import count, count_tables
from fedsub.benchmark.report.leaderboard import LEGEND, full_tables
from fedsub.benchmark.report.reproduction import RULE
from fedsub.benchmark.report.site.curves import HeatMap, Rounds, heat_map, plotted
from fedsub.benchmark.report.site.figures import columns_of, figure_line, forest
from fedsub.benchmark.report.site.prose import SCROLL, render
from fedsub.benchmark.report.site.vendored import LIBRARIES, packed
from fedsub.benchmark.report.table_page import notes_path
from fedsub.benchmark.report.writing import write_page

FOLDER = "leaderboards"
"""Where the links of a protocol's tables and notes begin."""
FURTHER = {"claims": "Claims", "performance": "Speed"}
"""Pages of the results folder that are sections here, if they are there."""


@dataclass(frozen=True)
class Section:
    """One protocol on the page."""

    name: str
    title: str
    introduction: Markup
    tables: Markup
    notes: Markup
    heat: HeatMap | None
    plots: dict[str, Any]


def write_site(
    results: Path,
    leaderboards: Sequence[Leaderboard],
    theirs: Mapping[str, Sequence[Run]],
    entries: Sequence[Entry],
    said: Sequence[Mapping[str, Any]],
) -> Path:
    """Write `index.html` from the records of every protocol, the verdicts on every printed figure (`said`:
    as `reproduction.json` has them), and the pages that the results folder holds; returns its path.

    The same input gives the same bytes.
    """
    rounds = Rounds()
    sections = []
    for leaderboard in leaderboards:
        path = notes_path(results, leaderboard.protocol.name)
        notes = path.read_text(encoding="utf-8") if path.is_file() else ""
        if leaderboard.records or notes:
            sections.append(_section(leaderboard, theirs, notes, rounds))
    counts = count_tables(entries)
    further = {
        name: (title, render(path.read_text(encoding="utf-8"), identity=name))
        for name, title in FURTHER.items()
        if (path := results / f"{name}.md").is_file()
    }
    data = {
        "figures": columns_of([figure_line(*pair) for pair in zip(entries, said, strict=True)]),
        "rounds": rounds.lists,
        "plots": {section.name: section.plots for section in sections},
    }
    # What is inserted is escaped, but for Markup; what is undefined is a fault.
    environment = Environment(
        loader=PackageLoader("fedsub.benchmark.report.site", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False}
    loader = environment.loader
    assert loader is not None
    page = environment.get_template("page.html").render(
        style=Markup(loader.get_source(environment, "page.css")[0]),
        script=Markup(loader.get_source(environment, "page.js")[0]),
        libraries={name: Markup(packed(name)) for name in LIBRARIES},
        sections=sections,
        counts=counts,
        all=count("all", entries),
        judged=VERDICTS,
        gains=GAINS,
        # Equal work answers several tables with one record.
        records=len({record.stored_key for each in leaderboards for record in each.records}),
        further=further,
        rule=render(RULE),
        legend=render(LEGEND),
        scroll=lambda label: Markup(SCROLL).format(label),
        data=data,
    )
    path = results / "index.html"
    write_page(path, page.encode())
    return path


def _section(
    leaderboard: Leaderboard, theirs: Mapping[str, Sequence[Run]], notes: str, rounds: Rounds
) -> Section:
    """The tables of a protocol, and what its plots are drawn from."""
    protocol, rows = leaderboard.protocol, leaderboard.rows
    differences = forest([*measured_on(protocol, rows)])
    return Section(
        protocol.name,
        protocol.title,
        render(protocol.description),
        render(full_tables(leaderboard, theirs), top=3, identity=protocol.name, folder=FOLDER),
        render(notes, top=4, folder=FOLDER),
        heat_map(protocol, rows),
        {"blocks": plotted(protocol, rows, rounds), "forest": differences},
    )
