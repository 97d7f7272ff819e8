"""Markdown tables, and escaping of text in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table, every cell escaped; every column but the first is aligned to the right."""
    lines = [map(escape, head), ["---", *["---:"] * (len(head) - 1)], *(map(escape, row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def escape(text: str) -> str:
    """The text on one line and with no meaning in Markdown's tables, links, images or HTML."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    # A backslash before the bar would not do: the text may end in one of its own.
    return line.replace("&", "&amp;").replace("<", "&lt;").replace("|", "&#124;").replace("](", "]&#40;")
