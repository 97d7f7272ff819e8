"""Markdown tables, and escaping of text in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tabulate import DataRow, TableFormat, tabulate


def _rule(widths: Sequence[int], alignments: object) -> str:
    return f"| {' | '.join(['---', *['---:'] * (len(widths) - 1)])} |"


# tabulate's own formats pad every column to its widest cell: one longer name would change every line.
_MARKDOWN = TableFormat(
    lineabove=None,
    linebelowheader=_rule,
    linebetweenrows=None,
    linebelow=None,
    headerrow=DataRow("| ", " | ", " |"),
    datarow=DataRow("| ", " | ", " |"),
    padding=0,
    with_header_hide=None,
)


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table, every cell escaped; every column but the first is aligned to the right."""
    lines = [[escape(cell) for cell in row] for row in rows]
    # Text that looks like a number stays as it was written.
    return str(
        tabulate(
            lines,
            [*map(escape, head)],
            tablefmt=_MARKDOWN,
            disable_numparse=True,
            stralign=None,
            numalign=None,
        )
    )


def escape(text: str) -> str:
    """The text on one line and with no meaning in Markdown's tables or HTML."""
    # tabulate draws a line where a cell holds a certain control character.
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    # A backslash before the bar would not do: the text may end in one of its own.
    return line.replace("&", "&amp;").replace("<", "&lt;").replace("|", "&#124;")
