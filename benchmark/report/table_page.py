"""The page of a protocol: methods by places, each figure with the printed one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from fedsub.benchmark.analysis.judged import level_of
from fedsub.benchmark.analysis.metrics import heading_of, with_spread
from fedsub.benchmark.analysis.public_code import Run, on_same_clients
from fedsub.benchmark.analysis.scores import Block, Leaderboard, Row, best_of, blocks_of, metrics_of
from fedsub.benchmark.report.leaderboard import CHOSEN, remarks, row_name
from fedsub.benchmark.report.wording import block_title, escape, graph_title, markdown_table, scheme_title
from fedsub.benchmark.report.writing import write_page
from fedsub.benchmark.spec.protocol import Protocol

FEW = 3
"""Number of methods up to which one table holds all partition schemes."""
LEGEND = (
    "A cell: measured mean ± standard deviation over seeds (the best in bold), then the authors' code on the "
    "same clients and the printed figure, each with its verdict. = marks runs that did nothing beyond "
    "FedAvg, all or some of them. How it is judged: "
    "[reproduction.md](../reproduction.md). Costs, gains and what was run with other settings: `fedsub show` "
    "and [reproduction.json](../reproduction.json)."
)


def page_path(folder: Path, protocol: str) -> Path:
    """Where the page of `protocol` lies in the results folder."""
    return folder / "leaderboards" / f"{protocol}.md"


def notes_path(folder: Path, protocol: str) -> Path:
    """Where the notes on `protocol` lie in the results folder."""
    return folder / "notes" / f"{protocol}.md"


def write_table_page(folder: Path, leaderboard: Leaderboard, theirs: Mapping[str, Sequence[Run]]) -> Path:
    """Write the page of a protocol, with the runs of the authors' code by the work of our cell; returns its
    path."""
    name = leaderboard.protocol.name
    page = markdown(leaderboard, theirs, notes_path(folder, name).is_file())
    write_page(page_path(folder, name), page.encode())
    return page_path(folder, name)


def markdown(
    leaderboard: Leaderboard,
    theirs: Mapping[str, Sequence[Run]] = MappingProxyType({}),
    has_notes: bool = False,
) -> str:
    """The page; the same input gives the same bytes."""
    protocol = leaderboard.protocol
    rows = [row for row in leaderboard.rows if not (row.deviations and protocol.published)]
    parts = [f"# {protocol.title}", " ".join(protocol.description.split()), LEGEND]
    for metric, listed in _shown(protocol, rows).items():
        for title, shown in _tables(listed, metric):
            parts += [f"## {escape(title)}", _table(protocol, shown, metric, theirs)]
    said = remarks(leaderboard)
    if aside := len(leaderboard.rows) - len(rows):
        said.append(f"{aside} rows with other settings stand beside these.")
    if has_notes:
        said.append(f"[Notes](../notes/{protocol.name}.md)")
    return "\n\n".join([*filter(None, parts), "\n".join(f"- {each}" for each in said)]) + "\n"


def _shown(protocol: Protocol, rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Scores with their rows: those that are in print, or of each row the one that selects its round."""
    held = metrics_of(protocol, rows)
    printed = {name for row in rows for name, score in row.scores.items() if score.published is not None}
    if printed:
        return {metric: [*rows] for metric in held if metric in printed}
    found: dict[str, list[Row]] = {metric: [] for metric in held}
    for row in rows:
        named = row.cell.schedule.selection_metric
        found[named if named in row.scores else held[0]].append(row)
    return {metric: listed for metric, listed in found.items() if listed}


def _tables(rows: Sequence[Row], metric: str) -> Iterator[tuple[str, list[Row]]]:
    """Title and rows of a table for each partition scheme; of few methods all schemes are in one."""
    shown = [row for row in rows if metric in row.scores]
    schemes = dict.fromkeys(row.block[1] for row in shown)
    if len({row.method for row in shown}) <= FEW:
        schemes = dict.fromkeys(["+".join(schemes)])
    for scheme in schemes:
        own = [row for row in shown if row.block[1] == scheme] or shown
        name = scheme_title(scheme) if own is not shown else "by partition"
        yield f"{heading_of(metric)}, {name}", own


def _table(protocol: Protocol, rows: Sequence[Row], metric: str, theirs: Mapping[str, Sequence[Run]]) -> str:
    several = len({row.backbone for row in rows}) > 1
    several_schemes = len({row.block[1] for row in rows}) > 1
    titled = block_title if several_schemes else _short_title
    cells: dict[str, dict[str, str]] = {}
    blocks = blocks_of(rows)
    for block, listed in blocks:
        best = best_of(listed, metric)
        for row in listed:
            text = _cell(protocol, row, metric, theirs, "**" if row is best else "")
            cells.setdefault(row_name(row, several, whole=False), {})[titled(block)] = text
    places = [titled(block) for block, _ in blocks]
    lines = [[name, *(found.get(place, "–") for place in places)] for name, found in cells.items()]
    return markdown_table(["method", *places], lines)


def _short_title(block: Block) -> str:
    return f"{graph_title(block[0])}, {block[2]}"


def _cell(protocol: Protocol, row: Row, metric: str, theirs: Mapping[str, Sequence[Run]], bold: str) -> str:
    score = row.scores[metric]
    marks = f" {CHOSEN}" * bool(row.chosen) + " =" * bool(row.same_as_fedavg)
    parts = [f"{bold}{with_spread(score.mean, score.std)}{bold}{marks}"]
    authors = on_same_clients(row.records, metric, theirs)
    if authors is not None:
        parts.append(f"authors {authors.means[1]:.2f} {authors.verdict.word}")
    if score.published is not None:
        level = level_of(protocol, row, metric, score.published)
        verdict = f" {level.word}" if level.difference is not None else ""
        parts.append(f"print {score.published.mean:.2f}{verdict}")
    return "; ".join(parts)
