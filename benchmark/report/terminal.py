"""Leaderboards in a terminal, with as many columns as fit."""

from collections.abc import Iterator, Sequence
from itertools import product
from statistics import fmean

from rich import box
from rich.console import Console
from rich.markup import escape as escape_markup
from rich.measure import Measurement
from rich.table import Table

from fedsub.benchmark.analysis.figures import measured_on
from fedsub.benchmark.analysis.judged import gain_of, level_of
from fedsub.benchmark.analysis.metrics import with_spread
from fedsub.benchmark.analysis.public_code import Runs, on_same_clients
from fedsub.benchmark.analysis.scores import Leaderboard, Row, blocks_of, metrics_of
from fedsub.benchmark.report.leaderboard import footnotes, row_names, verdicts_in_words
from fedsub.benchmark.report.wording import block_title, heading_of, title_of
from fedsub.benchmark.spec.cell import Block
from fedsub.benchmark.spec.protocol import Protocol

COSTS = ("s/round", "s total", "MB up/round", "MB down/round", "MB once", "seeds")
"""The last columns of every table."""
GAINS = "difference to baseline"
LONGEST_NAME = 24
"""Letters per line of a method's name in a terminal without room for all columns."""


def print_leaderboard(leaderboard: Leaderboard, console: Console, theirs: Runs) -> None:
    """Print the page's tables with as many columns as the terminal has room for; nothing without a result."""
    protocol, rows = leaderboard.protocol, leaderboard.rows
    if not rows:
        return
    console.print(protocol.title, style="bold", markup=False)
    missing: dict[str, None] = {}
    for block, listed in blocks_of(rows):
        head, lines = table_of(protocol, listed)
        kept = [*range(len(head))]
        table = _terminal_table(block, head, lines, kept)
        # Numbers are never cut: columns are dropped, and long names folded.
        for place in _dispensable(head):
            room = console.options.update(width=10_000)
            if Measurement.get(console, room, table).maximum <= console.width:
                break
            missing[head[place]] = None
            kept.remove(place)
            table = _terminal_table(block, head, lines, kept, LONGEST_NAME)
        console.print(table)
    if missing:
        console.print(f"Left out for lack of space: {', '.join(missing)}; --wide shows all.", markup=False)
    first = _by_authors(leaderboard, theirs)
    for line in (*first, *footnotes(rows), *_causes(leaderboard), verdicts_in_words(protocol, rows)):
        console.print(line, markup=False, highlight=False)


def table_of(protocol: Protocol, rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Return the heading and cells of a block's table as text."""
    columns = [["method", *row_names(rows)]]
    compared = {metric for row in rows for metric, score in row.scores.items() if score.published is not None}
    for metric in metrics_of(protocol, rows):
        found = [_cells(protocol, row, rows, metric) for row in rows]
        measured, published, levels, gains = zip(*found, strict=True)
        columns.append([heading_of(metric), *measured])
        # If several scores are printed, headings name the score.
        of = f", {heading_of(metric)}" if len(compared) > 1 else ""
        if metric in compared:
            columns += [[f"published{of}", *published], [f"difference{of}", *levels]]
            if any(gains):
                columns.append([f"{GAINS}{of}", *(gain or "–" for gain in gains)])
    head, *cells = (list(line) for line in zip(*columns, strict=True))
    return [*head, *COSTS], [[*line, *_costs(row)] for line, row in zip(cells, rows, strict=True)]


def _cells(protocol: Protocol, row: Row, rows: Sequence[Row], metric: str) -> tuple[str, str, str, str]:
    """Measured and printed score, the verdicts on level and gain; the last is empty if no gain is judged."""
    score = row.scores.get(metric)
    figure = None if score is None else score.published
    if score is None or figure is None:
        return "–" if score is None else with_spread(score.mean, score.std), "–", "–", ""
    level, gain = level_of(row, metric, figure), gain_of(protocol, row, rows, metric, figure)
    said = "" if gain is None else "–"
    if gain is not None and gain.shown_gain:
        # Number of pairs of seeds, if it is not the score's number of seeds.
        pairs = f" ({gain.count})" * (gain.count != len(score.by_seed))
        said = f"{gain.shown_gain} {gain.word}{pairs}"
    judged = "–" if level.difference is None else f"{level.shown} {level.word}"
    return with_spread(score.mean, score.std), with_spread(figure.mean, figure.std), judged, said


def _costs(row: Row) -> list[str]:
    """The columns `COSTS`: means over seeds, and the number of seeds."""
    records = row.records
    a_round = fmean(record.seconds_per_round for record in records)
    sent = [fmean(record.bytes.get(kind, 0.0) for record in records) for kind in ("up", "down", "once")]
    parts = ("setup", "train", "evaluate")
    whole = sum(fmean(record.seconds.get(part, 0.0) for record in records) for part in parts)
    return [f"{a_round:.4f}", f"{whole:.1f}", *(f"{size / 1e6:.3f}" for size in sent), str(len(records))]


def _by_authors(leaderboard: Leaderboard, theirs: Runs) -> Iterator[str]:
    """Yield the results of the authors' code on the same clients."""
    for row, metric in product(leaderboard.rows, leaderboard.protocol.metrics):
        if (found := on_same_clients(row.records, metric, theirs)) is not None:
            name = ", ".join(filter(None, (title_of(row.method), row.deviations)))
            ours, other = found.means
            yield (
                f"{name} on {block_title(row.block)}, {metric}: {ours:.2f} here, {other:.2f} by the authors' "
                f"code on the same clients, {len(found.pairs)} draws: {found.verdict.word}."
            )


def _causes(leaderboard: Leaderboard) -> Iterator[str]:
    """Yield the causes of figures that differ from the printed ones."""
    for entry in measured_on(leaderboard.protocol, leaderboard.rows):
        if entry.cause and entry.row is not None:
            name = f"{title_of(entry.row.method)} on {block_title(entry.row.block)}"
            yield f"{name} differs from print. {entry.cause}"


def _dispensable(head: Sequence[str]) -> list[int]:
    """Return the columns that a narrow terminal drops, in order: costs, gains, seeds, scores from the right.
    The method and its main score stay."""
    *costs, seeds = COSTS
    order = [*costs[::-1], GAINS, seeds]
    named = [place for name in order for place, each in enumerate(head) if each.partition(", ")[0] == name]
    return [*named, *(place for place in range(len(head) - 1, 1, -1) if place not in named)]


def _terminal_table(
    block: Block,
    head: Sequence[str],
    lines: Sequence[Sequence[str]],
    kept: Sequence[int],
    longest: int | None = None,
) -> Table:
    """Make a table of the columns `kept` of a block; names of more than `longest` letters are folded."""
    title = escape_markup(block_title(block))
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    table.add_column(head[0], overflow="fold", max_width=longest, no_wrap=longest is None)
    for place in kept[1:]:
        table.add_column(head[place], justify="right", no_wrap=True)
    for cells in lines:
        table.add_row(*(escape_markup(cells[place]) for place in kept))
    return table
