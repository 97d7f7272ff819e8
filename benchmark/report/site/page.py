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
from fedsub.benchmark.analysis.scores import Leaderboard
from fedsub.benchmark.analysis.summary import count, count_tables
from fedsub.benchmark.report.leaderboard import LEGEND, PLAIN_LEGEND, leaderboard_path, notes_on
from fedsub.benchmark.report.reproduction import RULE
from fedsub.benchmark.report.site.curves import HeatMap, Rounds, heat_map, plotted
from fedsub.benchmark.report.site.figures import columns_of, figure_line, forest
from fedsub.benchmark.report.site.prose import SCROLL, render
from fedsub.benchmark.report.site.vendored import LIBRARIES, packed
from fedsub.benchmark.report.writing import write_page

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
        notes = notes_on(results, leaderboard.protocol)
        if leaderboard.records or notes:
            sections.append(_section(results, leaderboard, notes, rounds))
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
    results: Path,
    leaderboard: Leaderboard,
    notes: str,
    rounds: Rounds,
) -> Section:
    """What the protocol's own page says, and what its plots are drawn from."""
    protocol, rows = leaderboard.protocol, leaderboard.rows
    path = leaderboard_path(results, protocol.name)
    has_run = leaderboard.records and path.is_file()
    text = path.read_text(encoding="utf-8") if has_run else "No cell of it has run yet.\n"
    text = text.removeprefix(f"# {protocol.title}\n").removesuffix(f"{notes.strip()}\n")
    # The legend is the same on every page: here it stands once.
    for legend in (LEGEND, PLAIN_LEGEND):
        text = text.replace(f"{legend}\n\n", "")
    introduction, heading, tables = text.partition("\n## ")
    differences = forest([*measured_on(protocol, rows)])
    return Section(
        protocol.name,
        protocol.title,
        render(introduction, folder=path.parent.name),
        render(heading + tables, top=3, identity=protocol.name, folder=path.parent.name),
        render(notes, top=4, folder=path.parent.name),
        heat_map(protocol, rows),
        {"blocks": plotted(protocol, rows, rounds), "forest": differences},
    )
