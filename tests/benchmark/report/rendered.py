"""A leaderboard as text, with everything that the terminal shows."""

from collections.abc import Sequence

from fedsub.benchmark.analysis.scores import Leaderboard, blocks_of
from fedsub.benchmark.records.record import Record
from fedsub.benchmark.report.leaderboard import remarks
from fedsub.benchmark.report.terminal import table_of
from fedsub.benchmark.report.wording import block_title, escape, markdown_table
from fedsub.benchmark.spec.protocol import Protocol


def tables_of(leaderboard: Leaderboard) -> str:
    """Tables of all blocks in Markdown, and the remarks."""
    parts = []
    for block, rows in blocks_of(leaderboard.rows):
        parts.append(f"## {escape(block_title(block))}")
        parts.append(markdown_table(*table_of(leaderboard.protocol, rows)))
    return "\n\n".join([*parts, *remarks(leaderboard)]) + "\n"


def page_of(protocol: Protocol, records: Sequence[Record]) -> str:
    """The tables of these records."""
    return tables_of(Leaderboard(protocol, records))


def line_of(page: str, start: str) -> str:
    """Return the row whose first cell is `start`."""
    return next(line for line in page.splitlines() if line.startswith(f"| {start} "))
