"""Pages of blocks and tables: leaderboards, costs, tuned scores, and maps of the difference from Local."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedsub.benchmark.analysis.metrics import kept_score
from fedsub.benchmark.analysis.paired import Comparison
from fedsub.benchmark.analysis.ranking import front
from fedsub.benchmark.analysis.standing import MEGABYTES, Contender, gains_of
from fedsub.benchmark.analysis.summary import EVERY
from fedsub.benchmark.report.site.charts import LABELS, Line, Point, lines, scatter, small
from fedsub.benchmark.report.site.data import NATURAL, TUNED, Facts, Page, block_address, choices, named, slug
from fedsub.benchmark.report.wording import block_title, graph_title, heading_of, scheme_title, span, title_of
from fedsub.benchmark.spec.catalog import FEDAVG, LOCAL
from fedsub.benchmark.spec.cell import Block
from fedsub.datasets.options import Spec

BUDGET_TITLES = {"any": "any", "models": "only models leave a client"}
BUDGET_TITLES |= {f"mb-{limit}": f"at most {limit:,} MB" for limit in MEGABYTES}
STEPS = (1, 3, 6, 12)
"""Points of gain or loss at which the colour of a map changes."""
CLIENTS = 12
"""Largest number of named clients in a table."""


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
            gains, ranked = gains_of([*blocks.values()]), _ranked(blocks)
            option, places = _option([*blocks])
            values = {
                "about": facts.titles[table],
                "first": block_address("leaderboard", next(iter(blocks)), table),
                "gains": gains,
                "along": _along(option, places, gains, ranked) if option else {},
                "columns": [(option, f"{place:g}") for place in places] or [*map(_column, blocks)],
                "ranked": ranked,
                "taus": {},
                "edges": table in (EVERY, NATURAL) and bool(facts.edges.gains),
            }
            yield Page(address, f"Difference from Local: {facts.titles[table]}", "map.html", values)
    if facts.edges.gains:
        values = {
            "gains": facts.edges.gains,
            "taus": facts.edges.taus,
            "along": {},
            "columns": [
                (graph, f"{clients} · {100 * share:.1f} % across")
                for block, share in facts.edges.shares.items()
                for graph, clients in [_column(block)]
            ],
            "ranked": _ranked(facts.tables.get(EVERY, {})) | _ranked(facts.tables.get(NATURAL, {})),
        }
        yield Page("edges", "Gain and edges between clients", "map.html", values)


def _column(block: Block) -> tuple[str, str]:
    """Return the two lines over a block's column."""
    graph, scheme, clients = block
    return graph_title(graph), f"{scheme_title(scheme)}, {clients}"


def _ranked(blocks: Mapping[Block, Sequence[Contender]]) -> set[str]:
    """Return the methods that have a rank on some block."""
    return {each.row.method for listed in blocks.values() for each in listed if each.is_ranked}


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
        "rows": (rows := named(listed)),
        "clients": _clients(rows),
        "reach": min(max(gains, default=1.0), 15.0),
        "verdict_of": facts.verdict_of,
        "verifiers_of": facts.verifiers_of,
    }


def _clients(rows: Sequence[tuple[str, Contender]]) -> dict[str, Any]:
    """Return the scores by client of the best ranked method, FedAvg and Local; empty without names of
    clients."""
    best = next((each for _, each in rows if each.is_ranked), None)
    shown = [(name, each) for name, each in rows if each is best or each.row.method in (FEDAVG, LOCAL)]
    scores = {name: found for name, each in shown if (found := each.row.by_client)}
    names = [*dict.fromkeys(client for found in scores.values() for client in found)]
    if not names:
        return {}
    # It may be another score than the leaderboard's.
    heading = heading_of(kept_score(rows[0][1].row.records[0]))
    return {"score": heading, "scores": scores, "names": names[:CLIENTS], "left_out": len(names[CLIENTS:])}


def _map_address(facts: Facts, table: str) -> str:
    """Return the address of a table's map; empty for a single block or without gains over Local."""
    blocks = facts.tables[table].values()
    return f"map/{slug(table)}" if len(blocks) > 1 and gains_of([*blocks]) else ""


def _along(
    option: str, values: Sequence[float], gains: Mapping[str, Sequence[Comparison | None]], ranked: set[str]
) -> dict[str, Any]:
    """Return drawings of the gains along the option in which the graphs differ: of the first ranked methods
    together, and of each method alone."""
    drawn = {}
    for method, cells in gains.items():
        known = zip(values, cells, strict=True)
        points = sorted((value, cell.difference) for value, cell in known if cell is not None)
        drawn[method] = Line(title_of(method), points)
    first = [line for method, line in drawn.items() if method in ranked][:LABELS]
    ends = {line.name: f"{line.name} {line.points[-1][1]:+.1f}" for line in drawn.values()}
    told = f"Gain over Local along {option}. At the end: {', '.join(ends[line.name] for line in first)}."
    every = [0.0, *(value for line in drawn.values() for _, value in line.points)]
    return {
        "option": option,
        "svg": lines(first, option.replace("_", " "), "gain over Local, points", told),
        "methods": len(first),
        "curves": {
            method: small(line.points, max(values), min(every), max(every), f"{ends[line.name]} at the end")
            for method, line in drawn.items()
        },
    }


def _option(blocks: Sequence[Block]) -> tuple[str, list[float]]:
    """Return the option of the graph in which alone the blocks differ, and its numbers; empty without one."""
    graphs = [Spec(block[0]) for block in blocks]
    names = {name for graph in graphs for name in graph.written}
    varied = [name for name in sorted(names) if len({graph.written.get(name) for graph in graphs}) > 1]
    alike = len({(graph.name, *block[1:]) for graph, block in zip(graphs, blocks, strict=True)}) == 1
    if not alike or len(varied) != 1:
        return "", []
    values = [graph.options.get(varied[0]) for graph in graphs]
    numbers = [float(value) for value in values if isinstance(value, (int, float))]
    # The axis of a drawing begins at 0.
    fits = len(numbers) == len(values) and min(numbers) >= 0
    return (varied[0], numbers) if fits else ("", [])


def ranks_of(each: Contender) -> str:
    """Return the method's rank for every budget that it keeps, as JSON."""
    return json.dumps({name: span(ranks, word="–") for name, ranks in each.ranks.items()}, ensure_ascii=False)


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


def heat(difference: float) -> str:
    """Return the class of a cell of a map: the direction, and the number of `STEPS` that it reaches."""
    size = sum(abs(difference) >= step for step in STEPS)
    return f"{'up' if difference > 0 else 'down'}-{size}" if size else "even"
