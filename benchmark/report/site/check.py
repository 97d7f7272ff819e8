"""Pages `check`: paper → table → printed figure, each with its verdict in words."""

from collections.abc import Iterator
from operator import attrgetter
from typing import Any

from fedsub.benchmark.analysis.causes import Stated, stated
from fedsub.benchmark.analysis.figures import Entry
from fedsub.benchmark.analysis.metrics import unit_of, with_spread
from fedsub.benchmark.analysis.published import Figure
from fedsub.benchmark.analysis.scores import DEFAULTS, Row
from fedsub.benchmark.analysis.summary import Count, count_tables, table_name
from fedsub.benchmark.records.store import file_of
from fedsub.benchmark.report.site.data import Facts, Page, slug
from fedsub.benchmark.report.wording import heading_of, network_title, scheme_title, title_of
from fedsub.benchmark.spec.settings import SETTINGS

_SUBJECT = attrgetter("code", "method", "backbone", "metric")
BASIC = ("split", "hidden", "rounds", "local_epochs", "learning_rate", "weight_decay", "dropout", "optimiser")
"""Settings that are shown even at their default."""


def pages(facts: Facts) -> Iterator[Page]:
    """Yield the list of tables, every table and every figure."""
    counts = count_tables(facts.entries)
    papers = [
        (paper, [(table_address(paper, each.table), each, _subject(facts, paper, each)) for each in listed])
        for paper, listed in counts.items()
    ]
    yield Page("check", "Check a number", "check.html", {"papers": papers})
    tables: dict[str, list[tuple[Entry, str]]] = {}
    for entry, address in facts.figures:
        tables.setdefault(address.rpartition("/")[0], []).append((entry, address))
    for above, listed in tables.items():
        name = source(listed[0][0])
        values = {"name": name, "grids": _grids(listed), "paper": f"papers/{slug(listed[0][0].figure.paper)}"}
        yield Page(above, name, "printed.html", values)
        for entry, address in listed:
            yield Page(address, figure_title(entry), "figure.html", {**_figure(facts, entry), "above": above})


def _subject(facts: Facts, paper: str, count: Count) -> str:
    """Return the subject of a table, if the title of exactly one protocol names it; else empty."""
    table = count.table.replace("main", "main table")
    titles = [facts.titles[name].partition(f"{paper}, {table}: ") for name in count.protocols]
    found = [subject for _, said, subject in titles if said]
    return found[0] if len(found) == 1 else ""


def table_address(paper: str, table: str) -> str:
    """Return the address of a printed table, from its name by `summary.table_name`."""
    return f"check/{slug(paper)}/{slug(table.removeprefix('Table ').replace('Figure ', 'Fig'))}"


def source(entry: Entry) -> str:
    """Return paper and table, as `FED-PUB, Table 2`."""
    return f"{entry.figure.paper}, {table_name(str(entry.figure.place[1])).replace('main', 'main table')}"


def figure_title(entry: Entry) -> str:
    """Return the title of a figure: method, graph, partition, clients, backbone."""
    _, _, dataset, partition, clients, method, backbone, _ = map(str, entry.figure.place)
    scheme = "" if partition == "none" else scheme_title(partition)
    parts = (dataset, scheme, f"{clients} clients" if clients else "", backbone)
    return f"{method} on {', '.join(filter(None, parts))}"


def score_name(entry: Entry) -> str:
    """Return the heading of the figure's score."""
    return heading_of(entry.metric or str(entry.figure.place[7]))


def printed(figure: Figure) -> str:
    """Return a printed mean in its paper's unit and with its decimals, at least two."""
    value = round(figure.mean / figure.scale, 6)
    return f"{value:.2f}" if round(value, 2) == value else f"{value:g}"


def answer_words(entry: Entry) -> str:
    """Return the printed value, ours and that of the authors' code in words, without the verdict."""
    figure = entry.figure
    said = [f"Printed {with_spread(figure.mean, figure.std)}"]
    if figure.scale != 1:
        said[0] += f" (in print {printed(figure)})"
    if entry.row is not None:
        score = entry.row.scores[entry.metric]
        said.append(f"here {with_spread(score.mean, score.std)} ({_count(len(score.by_seed), 'seed')})")
    if entry.authors is not None:
        theirs, draws = entry.authors.means[1], _count(len(entry.authors.pairs), "draw")
        said.append(f"the authors' code on our clients {theirs:.2f} ({draws})")
    return ", ".join(said)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _grids(listed: list[tuple[Entry, str]]) -> dict[str, dict[str, Any]]:
    """Return score → its grid: methods by graph and clients."""
    found: dict[str, dict[str, Any]] = {}
    for entry, address in listed:
        _, _, dataset, partition, clients, method, backbone, _ = map(str, entry.figure.place)
        grid = found.setdefault(score_name(entry), {"columns": {}, "rows": {}})
        column = (dataset, scheme_title(partition), clients)
        grid["columns"].setdefault(column, None)
        row = grid["rows"].setdefault((method, backbone), {})
        row.setdefault(column, []).append((f"{entry.figure.mean:.2f}", entry.answer[0], address))
    return found


def _figure(facts: Facts, entry: Entry) -> dict[str, Any]:
    """Return the values of the template `figure.html`."""
    row, level = entry.row, entry.level
    unit = unit_of(entry.metric).replace("%", "points") if entry.metric else ""
    compared = [("here − print", level)]
    overall = None
    if (own := entry.authors) is not None:
        compared.append(("here − authors' code", own.verdict))
        alike = (each for each in facts.comparisons if each.place is None and not each.deviations)
        overall = {_SUBJECT(each): each for each in alike}.get(_SUBJECT(own))
    return {
        "score": score_name(entry),
        "entry": entry,
        "unit": unit,
        "compared": [(name, found) for name, found in compared if found.interval],
        "overall": overall,
        "baseline": title_of(entry.figure.baseline),
        "settings": [] if row is None else _settings(entry.figure.paper, row),
        "files": sorted({file_of(record.cell.dataset) for record in (row.records if row else ())}),
        "title_of_table": facts.titles.get(entry.protocol, ""),
    }


def _settings(paper: str, row: Row) -> list[tuple[str, str, Stated]]:
    """Return name, value here, and the statements of paper and code, for options of the method, then for
    basic settings, settings that either source states, and settings that differ from the default."""
    said, unsaid = stated().get(paper, {}), Stated()
    actual, record = row.cell.to_dict(), row.records[0]
    method = row.cell.method
    rows = [
        (f"{title_of(method)}: {name}", _plain(value), said.get(f"{method}: {name}", unsaid))
        for name, value in record.options.items()
    ]
    rows.append(("network", network_title(record.backbone), unsaid))
    for name in SETTINGS:
        if name in said or name in BASIC or actual[name] != DEFAULTS[name]:
            rows.append((name.replace("_", " "), _plain(actual[name]), said.get(name, unsaid)))
    return rows


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value) or "none"


def search_lines(facts: Facts) -> list[list[Any]]:
    """Return the search index of figures: address, title, table and score, method, graph, partition, clients,
    printed value, verdict, and whether it is a measured accuracy."""
    found = []
    for entry, address in facts.figures:
        _, _, dataset, partition, clients, method, backbone, _ = map(str, entry.figure.place)
        about = ", ".join(filter(None, (source(entry), score_name(entry), backbone)))
        usual = int(entry.metric == "accuracy" and entry.row is not None)
        where = [method, dataset, partition, clients, printed(entry.figure)]
        found.append([address, figure_title(entry), about, *where, entry.answer[0], usual])
    return found
