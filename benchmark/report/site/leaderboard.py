"""Leaderboards, costs and maps of the difference from Local: the views on a block and on a table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from fedsub.benchmark.analysis.metrics import heading_of, with_spread
from fedsub.benchmark.analysis.paired import HOLDS
from fedsub.benchmark.analysis.scores import Block
from fedsub.benchmark.analysis.standing import BUDGETS, Contender, front, gains_of
from fedsub.benchmark.report.site.charts import Point, scatter, strip
from fedsub.benchmark.report.site.data import (
    Facts,
    Page,
    block_address,
    block_name,
    choices,
    method_address,
    method_name,
    several_networks,
    slug,
)

BUDGET_TITLES = dict(
    zip(
        BUDGETS,
        ("any", "only models leave a client", "at most 10 MB", "at most 100 MB", "at most 1,000 MB"),
        strict=True,
    )
)
STEPS = (1, 3, 6, 12)
"""Points of gain or loss at which the colour of a map changes."""


def pages(facts: Facts) -> Iterator[Page]:
    """The leaderboard and the costs of every block, and the map of every table with several."""
    for block, table in facts.blocks:
        listed = facts.tables[table][block]
        title = block_name(block)
        values = leaderboard_values(facts, block, table)
        yield Page(
            block_address("leaderboard", block, table), f"Leaderboard: {title}", "leaderboard.html", values
        )
        values = {"selectors": choices(facts, "cost", block, table), **_costs(listed), "title": title}
        values |= {"about": facts.titles[table], "board": block_address("leaderboard", block, table)}
        yield Page(block_address("cost", block, table), f"Cost: {title}", "cost.html", values)
    for table, blocks in facts.tables.items():
        if len(blocks) > 1 and (rows := _map(blocks)):
            values = {
                "rows": rows,
                "columns": [
                    (block_name(block), block_address("leaderboard", block, table)) for block in blocks
                ],
            }
            yield Page(
                f"map/{slug(table)}", f"Difference from Local: {facts.titles[table]}", "map.html", values
            )


def leaderboard_values(facts: Facts, block: Block, table: str, heading: str = "h1") -> dict[str, Any]:
    """What `leaderboard.html` shows of a block, below a heading of this level."""
    listed = facts.tables[table][block]
    metric = next(name for name, score in listed[0].row.scores.items() if score is listed[0].score)
    gains = [abs(each.gain.difference) for each in listed if each.gain is not None]
    reach = min(max(gains, default=1.0), 15.0)
    few = sum(len(each.score.by_seed) <= 3 for each in listed)
    return {
        "heading": heading,
        "title": block_name(block),
        "about": facts.titles[table],
        "table": table,
        "address": block_address("leaderboard", block, table),
        "cost": block_address("cost", block, table),
        "map": f"map/{slug(table)}" if len(facts.tables[table]) > 1 and _map(facts.tables[table]) else "",
        "selectors": choices(facts, "leaderboard", block, table),
        "budgets": BUDGET_TITLES,
        "score": heading_of(metric),
        "few": few,
        "count": len(listed),
        "rows": [_row(facts, each, listed, reach) for each in listed],
        "unranked": any(not each.is_ranked for each in listed),
    }


def _row(facts: Facts, each: Contender, listed: Sequence[Contender], reach: float) -> dict[str, Any]:
    row, gain = each.row, each.gain
    name = method_name(row.method, row.backbone, several_networks(listed))
    printed = facts.entry_of(each.score.published)
    interval = gain.interval if gain is not None else None
    low, high = interval or (None, None)
    return {
        "name": f"{name} ({row.deviations})" if row.deviations else name,
        "address": method_address(row.cell.method),
        "ranks": json.dumps({name: span(*ranks) for name, ranks in each.ranks.items()}, ensure_ascii=False),
        "rank": span(*each.ranks["any"]) if each.ranks else "–",
        "first": each.ranks["any"][0] if each.ranks else 999,
        "why": row.privacy or row.exposed[2] if not each.ranks else "",
        "idle": row.same_as_fedavg,
        "mean": each.score.mean,
        "score": with_spread(each.score.mean, each.score.std),
        "gain": None if gain is None else gain.difference,
        "gain_shown": "" if gain is None else f"{gain.difference:+.2f}",
        "interval": "" if interval is None else f"{interval[0]:+.2f} to {interval[1]:+.2f}",
        "strip": "" if gain is None else strip(low, gain.difference, high, reach),
        "beats": each.beats if each.ranks else None,
        "megabytes": each.megabytes,
        "seconds": each.seconds,
        "leaves": each.leaves,
        "authors": "" if each.authors is None else each.authors.verdict.word,
        "printed": None
        if printed is None
        else (*printed[0].answer, printed[1], f"{each.score.published.mean:.2f}"),  # type: ignore[union-attr]
        "seeds": len(each.score.by_seed),
    }


def span(low: int, high: int) -> str:
    """`3` or `1–4`."""
    return str(low) if low == high else f"{low}–{high}"


def _costs(listed: Sequence[Contender]) -> dict[str, Any]:
    """The table and the two drawings of costs."""
    several = several_networks(listed)
    names = {id(each): method_name(each.row.method, each.row.backbone, several) for each in listed}
    drawn = {}
    for cost, unit in (("megabytes", "MB"), ("seconds", "s")):
        best = {id(each) for each in front(listed, cost)}
        shown = [each for each in listed if each.is_ranked and getattr(each, cost) is not None]
        points = [
            Point(
                names[id(each)],
                getattr(each, cost),
                each.score.mean,
                f"{names[id(each)]}: {number(getattr(each, cost))} {unit} a client, {each.score.mean:.2f}",
                id(each) in best,
            )
            for each in shown
        ]
        told = "; ".join(point.told for point in points if point.is_front)
        said = f"Score over {cost} a client, {len(points)} methods. Not beaten on both: {told}."
        drawn[cost] = scatter(points, f"{unit} a client, whole run", "score, %", said) if points else ""
    rows = [
        {
            "name": names[id(each)],
            "address": method_address(each.row.cell.method),
            "score": with_spread(each.score.mean, each.score.std),
            "mean": each.score.mean,
            "megabytes": each.megabytes,
            "total": each.megabytes * each.row.cell.clients,
            "seconds": each.seconds,
            "whole": None if each.seconds is None else each.seconds * each.row.cell.clients,
            "leaves": each.leaves,
            "ranked": each.is_ranked,
        }
        for each in sorted(listed, key=lambda each: each.megabytes)
    ]
    return {"drawn": drawn, "rows": rows}


def number(value: float | None) -> str:
    """A cost to three significant digits."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _map(blocks: dict[Block, list[Contender]]) -> list[dict[str, Any]]:
    """Method → its difference from Local in each block."""
    ranked = {each.row.method for listed in blocks.values() for each in listed if each.is_ranked}
    rows = []
    for method, cells in gains_of([*blocks.values()]).items():
        shown = [
            None if cell is None else (f"{cell.difference:+.1f}", _step(cell.difference), cell.word == HOLDS)
            for cell in cells
        ]
        address = method_address(method.partition("[")[0])
        rows.append(
            {"name": method_name(method), "address": address, "cells": shown, "aside": method not in ranked}
        )
    return rows


def _step(difference: float) -> str:
    size = sum(abs(difference) >= step for step in STEPS)
    return f"{'up' if difference > 0 else 'down'}-{size}" if size else "even"
