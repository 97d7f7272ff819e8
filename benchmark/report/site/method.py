"""Pages of methods (function, cost, gains) and of graphs (statistics of their clients, leading methods)."""

from collections.abc import Iterator
from typing import Any

from fedsub.benchmark.analysis.scores import clients_of, mean_curve
from fedsub.benchmark.analysis.standing import by_method
from fedsub.benchmark.analysis.summary import EVERY
from fedsub.benchmark.report.site.charts import Line, lines
from fedsub.benchmark.report.site.data import TUNED, Facts, Page, block_address, graph_slug, slug
from fedsub.benchmark.report.wording import GENERATED, block_title, graph_title, scheme_title, title_of
from fedsub.benchmark.spec import catalog
from fedsub.benchmark.spec.catalog import FEDAVG, LOCAL
from fedsub.datasets.catalogue import REGISTRY


def pages(facts: Facts) -> Iterator[Page]:
    """Yield the list of methods and a page for each."""
    listed, papers = [], {entry.figure.paper for entry in facts.entries}
    for name in catalog.methods():
        known = catalog.describe(name)
        places = [
            (block, table, each)
            for block, table in facts.blocks
            for each in facts.tables[table][block]
            if each.row.cell.method == name
        ]
        every = [(block, each) for block, table, each in places if table == EVERY and each.row.method == name]
        address, summary = f"method/{slug(name)}", _summary(known.summary)
        listed.append((known, summary, address, facts.headline.above.get(name)))
        values = {
            "known": known,
            "above": facts.headline.above.get(name),
            "arena": facts.arena,
            "drawn": [_curves(facts, block, name) for block, _ in every[:2]],
            "summary": summary,
            "rows": [each for each in places if each[1] in (EVERY, TUNED)],
            "others": [each for each in places if each[1] not in (EVERY, TUNED)],
            "introduced": known.title if known.title in papers else "",
        }
        yield Page(address, known.title, "method.html", values)
    yield Page("method", "Methods", "methods.html", {"listed": listed})


def _summary(text: str) -> str:
    """Return the sentence without the method's name before it."""
    _, colon, said = text.partition(": ")
    return f"{said[:1].upper()}{said[1:]}" if colon else text


def _curves(facts: Facts, block: Any, name: str) -> dict[str, Any]:
    rows = {name: each.row for name, each in by_method(facts.tables[EVERY][block]).items()}
    shown = [method for method in dict.fromkeys((name, LOCAL, FEDAVG)) if method in rows]
    drawn = [Line(title_of(method), mean_curve(rows[method].records)) for method in shown]
    ends = ", ".join(f"{line.name} {line.points[-1][1]:.1f}" for line in drawn if line.points)
    title = block_title(block)
    told = f"Test score over rounds on {title}. At the end: {ends}."
    return {"title": title, "svg": lines(drawn, "round", "test score, %", told)}


def graph_pages(facts: Facts) -> Iterator[Page]:
    """Yield the list of graphs with records and a page for each."""
    tuned = (each.row for listed in facts.tables.get(TUNED, {}).values() for each in listed)
    clients = clients_of([*(row for board in facts.boards for row in board.rows), *tuned])
    listed = []
    for name in sorted({block[0] for block in (*clients, *(block for block, _ in facts.blocks))}):
        blocks = [(block, table) for block, table in facts.blocks if block[0] == name]
        address, info = f"graph/{graph_slug(name)}", REGISTRY.get(name)
        nodes = "generated" if name.partition("[")[0] in GENERATED else "–"
        listed.append((graph_title(name), address, info, nodes, len(blocks)))
        schemes = [
            (scheme_title(block[1]), block[2], found)
            for block, found in sorted(clients.items(), key=lambda item: (item[0][1], item[0][2]))
            if block[0] == name
        ]
        leaders = []
        for block, table in blocks:
            ranked = [each for each in facts.tables[table][block] if each.is_ranked]
            if len(ranked) > 1:
                place = f"{scheme_title(block[1])}, {block[2]} clients"
                board = block_address("leaderboard", block, table)
                tied = sum(each.ranks["any"][0] == 1 for each in ranked)
                leaders.append((place, board, facts.titles[table], ranked, tied))
        values = {"title": graph_title(name), "info": info, "schemes": schemes, "leaders": leaders}
        yield Page(address, graph_title(name), "graph.html", values)
    yield Page("graph", "Graphs", "graphs.html", {"listed": listed})
