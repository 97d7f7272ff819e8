"""Pages of blocks and tables: leaderboards, costs, tuned scores, and maps of the difference from Local."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from fedsub.benchmark.analysis.ranking import front
from fedsub.benchmark.analysis.standing import BUDGETS, Contender, gains_of
from fedsub.benchmark.report.site.charts import Point, scatter
from fedsub.benchmark.report.site.data import TUNED, Facts, Page, block_address, choices, named, slug
from fedsub.benchmark.report.wording import block_title, graph_title, heading_of, scheme_title
from fedsub.benchmark.spec.cell import Block

_TITLES = ("any", "only models leave a client", "at most 10 MB", "at most 100 MB", "at most 1,000 MB")
BUDGET_TITLES = dict(zip(BUDGETS, _TITLES, strict=True))
STEPS = (1, 3, 6, 12)
"""Points of gain or loss at which the colour of a map changes."""


def pages(facts: Facts) -> Iterator[Page]:
    """Yield the leaderboard and the costs of every block, and the map of every table with several blocks."""
    for block, table in facts.blocks:
        values = block_values(facts, block, table)
        title = values["title"]
        yield Page(values["board"], f"Leaderboard: {title}", "leaderboard.html", values)
        values |= {"selectors": choices(facts, "cost", block, table), "drawn": _drawn(values["rows"])}
        yield Page(values["cost"], f"Cost: {title}", "cost.html", values)
    for table, blocks in facts.tables.items():
        if address := _map_address(facts, table):
            columns = [
                (graph_title(graph), f"{scheme_title(scheme)}, {clients}")
                for graph, scheme, clients in blocks
            ]
            ranked = {each.row.method for listed in blocks.values() for each in listed if each.is_ranked}
            values = {
                "about": facts.titles[table],
                "first": block_address("leaderboard", next(iter(blocks)), table),
                "gains": gains_of([*blocks.values()]),
                "columns": columns,
                "ranked": ranked,
                "step": _step,
            }
            yield Page(address, f"Difference from Local: {facts.titles[table]}", "map.html", values)


def block_values(facts: Facts, block: Block, table: str, heading: str = "h1") -> dict[str, Any]:
    """Return the values for the views of a block; `heading` is the HTML tag of its title."""
    listed = facts.tables[table][block]
    gains = [abs(each.gain.difference) for each in listed if each.gain is not None]
    return {
        "heading": heading,
        "title": block_title(block),
        "about": facts.titles[table],
        "board": block_address("leaderboard", block, table),
        "cost": block_address("cost", block, table),
        "map": _map_address(facts, table),
        "tuned": facts.tuned[block] if table == TUNED else [],
        "arena": facts.arena,
        "selectors": choices(facts, "leaderboard", block, table),
        "budgets": BUDGET_TITLES,
        "score": heading_of(listed[0].metric),
        "few": sum(len(each.score.by_seed) <= 3 for each in listed),
        "rows": named(listed),
        "reach": min(max(gains, default=1.0), 15.0),
        "entry_of": facts.entry_of,
        "verifiers_of": facts.verifiers_of,
    }


def _map_address(facts: Facts, table: str) -> str:
    """Return the address of a table's map; empty for a single block or without gains over Local."""
    blocks = facts.tables[table].values()
    return f"map/{slug(table)}" if len(blocks) > 1 and gains_of([*blocks]) else ""


def span(ranks: tuple[int, int]) -> str:
    """Return a span of ranks, as `3` or `1–4`."""
    return "–".join(map(str, dict.fromkeys(ranks)))


def ranks_of(each: Contender) -> str:
    """Return the method's rank for every budget that it keeps, as JSON."""
    return json.dumps({name: span(ranks) for name, ranks in each.ranks.items()}, ensure_ascii=False)


def _drawn(rows: Sequence[tuple[str, Contender]]) -> dict[str, Any]:
    """Return a drawing of the score over each cost."""
    drawn = {}
    for cost, unit in (("megabytes", "MB"), ("seconds", "s")):
        known = [
            (name, spent, each.score.mean)
            for name, each in rows
            if each.is_ranked and (spent := getattr(each, cost)) is not None
        ]
        best = front({str(place): (x, y) for place, (_, x, y) in enumerate(known)})
        points = [
            Point(name, x, y, f"{name}: {number(x)} {unit}, {y:.2f}", str(place) in best)
            for place, (name, x, y) in enumerate(known)
        ]
        told = "; ".join(point.told for point in points if point.is_front)
        said = f"Score over {cost} a client, {len(points)} methods. Not beaten on both: {told}."
        drawn[cost] = scatter(points, f"{unit} a client, whole run", "score, %", said) if points else ""
    return drawn


def number(value: float | None) -> str:
    """Return a cost with at least three significant digits; a dash for None."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _step(difference: float) -> str:
    size = sum(abs(difference) >= step for step in STEPS)
    return f"{'up' if difference > 0 else 'down'}-{size}" if size else "even"
