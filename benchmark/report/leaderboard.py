"""The Markdown page of a protocol: methods by blocks, measured and printed figures; and the notes that the
terminal shows too."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import MappingProxyType

from fedsub.benchmark.analysis.agreement import LEAST, MATCHES, VERDICTS
from fedsub.benchmark.analysis.judged import level_of
from fedsub.benchmark.analysis.metrics import with_spread
from fedsub.benchmark.analysis.public_code import Runs, on_same_clients
from fedsub.benchmark.analysis.published import answerable, grid_points
from fedsub.benchmark.analysis.scores import Leaderboard, Row, best_of, blocks_of, metrics_of
from fedsub.benchmark.records.record import OK
from fedsub.benchmark.report.wording import (
    SCHEMES,
    block_title,
    escape,
    graph_title,
    heading_of,
    markdown_table,
    network_title,
    scheme_title,
    sentence_list,
    span,
    title_of,
)
from fedsub.benchmark.report.writing import write_page
from fedsub.benchmark.spec.cell import Block
from fedsub.benchmark.spec.plan import outdated_parts
from fedsub.benchmark.spec.protocol import Protocol

PRIVACY = "†"
"""Mark of a method that breaks privacy."""
CHOSEN = "‡"
"""Mark of a method with settings chosen on the table itself."""


def remarks(leaderboard: Leaderboard) -> list[str]:
    """Return the footnotes and the counts of verdicts and of failures."""
    protocol, rows = leaderboard.protocol, leaderboard.rows
    said = ["No finished cell yet."]
    if rows:
        notes = [escape(note) for note in footnotes(rows, _without_links)]
        said = [*notes, verdicts_in_words(protocol, rows)]
    failures = sum(record.status != OK and not outdated_parts(record.cell) for record in leaderboard.records)
    if failures:
        said.append(f"Failed cells: {failures} (their records in `runs/` give the reason).")
    return said


def row_names(rows: Sequence[Row], whole: bool = True) -> list[str]:
    """Return the rows' names with marks and deviating settings; with the backbone if there are several, and
    with the digest of a user's files for a method whose rows nothing else tells apart on some block. Without
    `whole`, leave out what holds for one block only: whether settings were chosen, and how many runs did
    nothing beyond FedAvg."""
    several = len({row.backbone for row in rows}) > 1
    states: dict[tuple[str, Block, str, str], set[str]] = {}
    for row in rows:
        states.setdefault((row.method, row.block, row.backbone, row.deviations), set()).add(row.cell.files)
    edited = {method for (method, *_), found in states.items() if len(found) > 1}
    return [_row_name(row, several, row.method in edited, whole) for row in rows]


def _row_name(row: Row, with_backbone: bool, with_files: bool = False, whole: bool = True) -> str:
    files = f"files {row.cell.files[:8]}" if row.cell.files and with_files else ""
    marks = [mark for mark, holds in ((PRIVACY, row.privacy), (CHOSEN, whole and row.chosen)) if holds]
    network = network_title(row.backbone) if with_backbone else ""
    idle = f"did nothing beyond FedAvg in {row.same_as_fedavg} of {len(row.records)} runs"
    parts = (network, row.deviations, files, idle * bool(whole and row.same_as_fedavg))
    return " · ".join(filter(None, (" ".join((title_of(row.method), *marks)), *parts)))


def _without_links(text: str) -> str:
    """Escape the text so that it forms no link and no image in Markdown."""
    return text.replace("\\", "\\\\").replace("[", "\\[")


def footnotes(rows: Iterable[Row], quoted: Callable[[str], str] = str) -> list[str]:
    """Return the meaning of the rows' marks, and notes on their datasets. `quoted` escapes text from
    third-party archives for the place where the notes are shown."""
    breaking: dict[str, dict[str, None]] = {}
    choices: dict[str, dict[str, None]] = {}
    exposed: dict[str, tuple[dict[str, None], dict[str, list[int]]]] = {}
    notes: dict[str, None] = {}
    for row in rows:
        if row.privacy:
            breaking.setdefault(row.privacy, {})[title_of(row.method)] = None
        for choice in row.chosen:
            choices.setdefault(choice, {})[title_of(row.method)] = None
        fewest, most, what = row.exposed
        if most:
            leaving, places = exposed.setdefault(what, ({}, {}))
            leaving[title_of(row.method)] = None
            places.setdefault(block_title(row.block), []).extend((fewest, most))
        if (epsilon := _epsilon(row)) is not None:
            notes[epsilon] = None
        for record in row.records:
            if record.note:
                notes[f"Note on {graph_title(row.block[0])}: {quoted(record.note)}"] = None
    marked = [
        f"{PRIVACY} {sentence_list(list(methods))} break{'s' if len(methods) == 1 else ''} privacy: {why}."
        for why, methods in breaking.items()
    ]
    marked += [
        f"{CHOSEN} {sentence_list(list(methods))}: chosen on this table. {choice}"
        for choice, methods in choices.items()
    ]
    for what, (leaving, places) in exposed.items():
        counts = "; ".join(f"{place}: {span(nodes)}" for place, nodes in places.items())
        leave = f"leave{'s' * (len(leaving) == 1)}"
        marked.append(f"{sentence_list(list(leaving))} {leave} {what}. Nodes on {counts}.")
    return [*marked, *notes]


def _epsilon(row: Row) -> str | None:
    """Return the ε of the row's updates, from its least private run; None without noise."""
    # A plug-in method may report anything under that name.
    found = [record.extras["epsilon"] for record in row.records if "epsilon" in record.extras]
    if not (row.cell.schedule.privacy_noise and found):
        return None
    name, delta = _row_name(row, with_backbone=True), row.cell.schedule.privacy_delta
    return f"{name} on {block_title(row.block)}: ε = {max(found):.2f} for δ = {delta:g}."


def verdicts_in_words(protocol: Protocol, rows: Sequence[Row]) -> str:
    """Return one sentence with the verdicts on the published figures measured here, and how many matches have
    settings chosen on the table or come from runs equal to FedAvg."""
    judged = [
        (row, score.published, verdict.word)
        for row in rows
        for metric, score in row.scores.items()
        if score.published is not None
        if (verdict := level_of(row, metric, score.published)).difference is not None
    ]
    if not judged:
        if any(score.published is not None for row in rows for score in row.scores.values()):
            return "None of the published figures is judged: reproduction.json says why."
        return "No published figure answers these cells."
    words = [word for *_, word in judged]
    agreeing = [row for row, _, word in judged if word == MATCHES]
    counts = {
        f"with settings chosen on this table, {CHOSEN}": sum(bool(row.chosen) for row in agreeing),
        "by runs that did nothing beyond FedAvg": sum(
            row.same_as_fedavg == len(row.records) for row in agreeing
        ),
    }
    notes = "; ".join(f"{count} {what}" for what, count in counts.items() if count)
    own = [word for _, figure, word in judged if figure.source == protocol.own_table]
    theirs = f"; {len(own)} are the table's own: {_counted(own)}" if 0 < len(own) < len(judged) else ""
    counted = f"Against print only, of the {len(judged)} figure{'s' * (len(judged) > 1)} measured here "
    grid = {*grid_points(protocol)}
    if outside := sum(tuple(row.point.values()) not in grid for row, *_ in judged):
        theirs += f"; {outside} {'is' if outside == 1 else 'are'} of rows outside the table's grid"
    counted += f"{_counted(words, notes)}{theirs}"
    return f"{counted}; the table's grid answers {answerable(protocol)}."


def _counted(words: Sequence[str], notes: str = "") -> str:
    """Return counts of verdicts in words, with `notes` on those that match."""
    found = [f"{words.count(word)} {word}" for word in VERDICTS]
    return ", ".join([f"{found[0]}{f' ({notes})' if notes else ''}", *found[1:]])


FEW = 3
"""Number of methods up to which one table holds all partition schemes."""
LEGEND = (
    "An entry: measured mean ± standard deviation over {seeds}, then the authors' code on the same clients "
    "and the printed figure, each with its verdict; where the authors' code decides, its verdict counts. "
    f"{CHOSEN} marks a setting that was chosen by looking at this table's figures, = runs that did nothing "
    "beyond FedAvg, all or some of them. In bold, which is no test: the method that no other beats, each two "
    f"compared over the seeds that both have, at least {LEAST}, to two decimals; if each is beaten, the "
    "least beaten. Methods that break privacy or expose nodes, entries with = and rows with other settings "
    "do not compete. How it is judged: "
    "[reproduction.md](../reproduction.md). Costs, gains and runs with other settings: `fedsub show` "
    "and [reproduction.json](../reproduction.json)."
)


def write_table_page(folder: Path, leaderboard: Leaderboard, theirs: Runs) -> Path:
    """Write the page of a protocol into the results folder; returns its path."""
    name = f"{leaderboard.protocol.name}.md"
    page = markdown(leaderboard, theirs, (folder / "notes" / name).is_file())
    return write_page(folder / "leaderboards" / name, page.encode())


def markdown(leaderboard: Leaderboard, theirs: Runs = MappingProxyType({}), has_notes: bool = False) -> str:
    """Return the text of the page; the same input gives the same bytes."""
    protocol = leaderboard.protocol
    rows = [row for row in leaderboard.rows if not (row.deviations and protocol.published)]
    seeds = f"{protocol.seeds} seed{'s' * (protocol.seeds > 1)}, or as many as brackets say"
    parts = [f"# {protocol.title}", " ".join(protocol.description.split()), LEGEND.format(seeds=seeds)]
    for metric, listed in _shown(protocol, rows).items():
        for title, shown in _tables(listed, metric):
            parts += [f"## {escape(title)}", _table(protocol, shown, metric, theirs)]
    said = remarks(leaderboard)
    if aside := len(leaderboard.rows) - len(rows):
        said.append(f"{aside} further rows with other settings are not on this page.")
    if has_notes:
        said.append(f"[Notes](../notes/{protocol.name}.md)")
    return "\n\n".join([*filter(None, parts), "\n".join(f"- {each}" for each in said)]) + "\n"


def _shown(protocol: Protocol, rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return score → rows to show: the table's printed scores. In a table without any, and in a block without
    any whose rounds another score selects: that score, and the further ones that the protocol lists."""
    held = metrics_of(protocol, rows)
    scores = [(row.block, name, score.published) for row in rows for name, score in row.scores.items()]
    printed = {name for _, name, figure in scores if figure is not None}
    blocks = {block for block, _, figure in scores if figure is not None}
    found: dict[str, list[Row]] = {metric: [] for metric in held}
    for row in rows:
        own = [metric for metric in held if metric in row.scores]
        by = row.cell.selects_by
        listed = {by if by in own else next(iter(own), ""), *protocol.metrics[1:]}
        if printed and (row.block in blocks or not by or by in printed):
            listed = printed
        for metric in own:
            if metric in listed:
                found[metric].append(row)
    return {metric: listed for metric, listed in found.items() if listed}


def _tables(rows: Sequence[Row], metric: str) -> Iterator[tuple[str, list[Row]]]:
    """Yield title and rows of one table per partition scheme, whatever its options. With up to `FEW` methods
    all schemes share one table."""
    by_scheme: dict[str, list[Row]] = {}
    for row in rows:
        by_scheme.setdefault(row.block[1].partition("[")[0], []).append(row)
    if len({row.method for row in rows}) <= FEW:
        by_scheme = {"": [*rows]}
    for base, own in by_scheme.items():
        schemes = {row.block[1] for row in own}
        name = scheme_title(*schemes) if len(schemes) == 1 else SCHEMES.get(base, "by partition")
        yield f"{heading_of(metric)}, {name}", own


def _table(protocol: Protocol, rows: Sequence[Row], metric: str, theirs: Runs) -> str:
    several = len({row.block[1] for row in rows}) > 1
    places = {
        row.block: block_title(row.block) if several else f"{graph_title(row.block[0])}, {row.block[2]}"
        for row in rows
    }
    best = {id(row) for _, listed in blocks_of(rows) for row in best_of(listed, metric)}
    cells: dict[str, dict[Block, str]] = {}
    for row, name in zip(rows, row_names(rows, whole=False), strict=True):
        bold = "**" * (id(row) in best)
        cells.setdefault(name, {})[row.block] = _cell(protocol, row, metric, theirs, bold)
    lines = [[name, *(found.get(block, "–") for block in places)] for name, found in cells.items()]
    return markdown_table(["method", *places.values()], lines)


def _cell(protocol: Protocol, row: Row, metric: str, theirs: Runs, bold: str) -> str:
    score = row.scores[metric]
    marks = f" {CHOSEN}" * bool(row.chosen) + " =" * bool(row.same_as_fedavg)
    seeds = f" ({len(score.by_seed)})" * (len(score.by_seed) != protocol.seeds)
    parts = [f"{bold}{with_spread(score.mean, score.std)}{bold}{seeds}{marks}"]
    authors = on_same_clients(row.records, metric, theirs)
    if authors is not None:
        parts.append(f"authors {authors.means[1]:.2f} {authors.verdict.word}")
    if score.published is not None:
        level = level_of(row, metric, score.published)
        verdict = f" {level.word}" if level.difference is not None else ""
        parts.append(f"print {score.published.mean:.2f}{verdict}")
    return "; ".join(parts)
