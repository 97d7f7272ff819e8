"""The Markdown page of a protocol: methods by blocks, measured and printed figures; and the notes that the
terminal shows too."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from fedsub.benchmark.analysis.agreement import LEAST, MATCHES, VERDICTS
from fedsub.benchmark.analysis.judged import level_of
from fedsub.benchmark.analysis.metrics import with_spread
from fedsub.benchmark.analysis.public_code import Run, on_same_clients
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
NONE_PUBLISHED = "No published figure answers these cells."
NONE_JUDGED = "None of the published figures is judged: reproduction.json says why."


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


def row_name(row: Row, several_backbones: bool, edited: Collection[str] = (), whole: bool = True) -> str:
    """Return a row's name with its marks and deviating settings; of `edited` methods also the digest of the
    files. Without `whole`, leave out what holds for one block only: whether settings were chosen, and how
    many runs did nothing beyond FedAvg."""
    files = f"files {row.cell.files[:8]}" if row.cell.files and row.method in edited else ""
    marks = [mark for mark, holds in ((PRIVACY, row.privacy), (CHOSEN, whole and row.chosen)) if holds]
    network = network_title(row.backbone) if several_backbones else ""
    idle = f"did nothing beyond FedAvg in {row.same_as_fedavg} of {len(row.records)} runs"
    parts = (network, row.deviations, files, idle * bool(whole and row.same_as_fedavg))
    return " · ".join(filter(None, (" ".join((title_of(row.method), *marks)), *parts)))


def edited_methods(rows: Iterable[Row]) -> set[str]:
    """Return the methods whose rows only the digest of a user's files tells apart, on some block."""
    states: dict[tuple[str, Block, str, str], set[str]] = {}
    for row in rows:
        states.setdefault((row.method, row.block, row.backbone, row.deviations), set()).add(row.cell.files)
    return {method for (method, *_), found in states.items() if len(found) > 1}


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
    delta = row.cell.schedule.privacy_delta
    return f"{row_name(row, True)} on {block_title(row.block)}: ε = {max(found):.2f} for δ = {delta:g}."


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
        printed = any(score.published is not None for row in rows for score in row.scores.values())
        return NONE_JUDGED if printed else NONE_PUBLISHED
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


def write_table_page(folder: Path, leaderboard: Leaderboard, theirs: Mapping[str, Sequence[Run]]) -> Path:
    """Write the page of a protocol into the results folder; returns its path. `theirs`: key of our cell →
    runs of the authors' code."""
    name = f"{leaderboard.protocol.name}.md"
    path = folder / "leaderboards" / name
    write_page(path, markdown(leaderboard, theirs, (folder / "notes" / name).is_file()).encode())
    return path


def markdown(
    leaderboard: Leaderboard,
    theirs: Mapping[str, Sequence[Run]] = MappingProxyType({}),
    has_notes: bool = False,
) -> str:
    """Return the text of the page; the same input gives the same bytes."""
    protocol = leaderboard.protocol
    rows = [row for row in leaderboard.rows if not (row.deviations and protocol.published)]
    parts = [f"# {protocol.title}", " ".join(protocol.description.split())]
    count = f"{protocol.seeds} seed{'s' * (protocol.seeds > 1)}, or as many as brackets say"
    parts.append(LEGEND.format(seeds=count))
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
    shown = [row for row in rows if metric in row.scores]
    by_scheme: dict[str, list[Row]] = {}
    for row in shown:
        by_scheme.setdefault(row.block[1].partition("[")[0], []).append(row)
    if len({row.method for row in shown}) <= FEW:
        by_scheme = {"": shown}
    for base, own in by_scheme.items():
        schemes = {row.block[1] for row in own}
        name = scheme_title(*schemes) if len(schemes) == 1 else SCHEMES.get(base, "by partition")
        yield f"{heading_of(metric)}, {name}", own


def _table(protocol: Protocol, rows: Sequence[Row], metric: str, theirs: Mapping[str, Sequence[Run]]) -> str:
    several = len({row.backbone for row in rows}) > 1
    several_schemes = len({row.block[1] for row in rows}) > 1
    titled = block_title if several_schemes else _short_title
    cells: dict[str, dict[str, str]] = {}
    blocks, edited = blocks_of(rows), edited_methods(rows)
    for block, listed in blocks:
        best = best_of(listed, metric)
        for row in listed:
            text = _cell(protocol, row, metric, theirs, "**" * any(row is each for each in best))
            cells.setdefault(row_name(row, several, edited, whole=False), {})[titled(block)] = text
    places = [titled(block) for block, _ in blocks]
    lines = [[name, *(found.get(place, "–") for place in places)] for name, found in cells.items()]
    return markdown_table(["method", *places], lines)


def _short_title(block: Block) -> str:
    return f"{graph_title(block[0])}, {block[2]}"


def _cell(protocol: Protocol, row: Row, metric: str, theirs: Mapping[str, Sequence[Run]], bold: str) -> str:
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
