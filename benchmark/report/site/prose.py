"""Markdown as HTML that may stand inside the page: no HTML of its own, headings below the section's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from posixpath import join, normpath

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup

from fedsub.benchmark.analysis.agreement import GAINS, VERDICTS

SCROLL = '<div class="scroll" role="group" tabindex="0" aria-label="{}">'
"""A box in which what is wider than the window is scrolled, also with the keyboard."""
LONGEST = 40
"""Letters of a cell of a table that stay on one line."""
LOWEST = 6
"""Level of the smallest heading in HTML."""
_CLASSES = {f" {word}": f"verdict {word.split()[0]}" for word in (*VERDICTS, *GAINS)}


def render(text: str, *, top: int = 2, identity: str = "", folder: str = "") -> Markup:
    """The HTML of `text`, its highest heading at level `top`; with `identity` the headings are numbered
    anchors `identity-1`, `identity-2`, … for links. `folder`, relative to the page, is where the text's own
    links begin."""
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
    tokens = markdown.parse(text)
    levels = [int(token.tag[1]) for token in tokens if token.type == "heading_open"]
    deeper = top - min(levels, default=top)
    count, heading = 0, "table"
    for place, token in enumerate(tokens):
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(LOWEST, int(token.tag[1]) + deeper)}"
        if token.type == "heading_open":
            count += 1
            heading = tokens[place + 1].content
            if identity:
                token.attrSet("id", f"{identity}-{count}")
        elif token.type == "table_open":
            token.meta["label"] = heading
        elif token.type == "td_open":
            token.attrJoin("class", _class(tokens[place + 1].content))
        for part in token.children or ():
            if folder and part.type == "link_open":
                part.attrSet("href", _seen_from_the_page(str(part.attrGet("href")), folder))
    markdown.add_render_rule("table_open", _open_table)
    markdown.add_render_rule("table_close", _close_table)
    # Escaped by the renderer: its `html` is off, and links are checked for their scheme.
    return Markup(markdown.renderer.render(tokens, markdown.options, {}))


def _seen_from_the_page(link: str, folder: str) -> str:
    """A link of a text in `folder`; one to elsewhere, or within the text, stays."""
    return link if ":" in link or link.startswith("#") else normpath(join(folder, link))


def _class(cell: str) -> str:
    usual = "long" if len(cell) > LONGEST else ""
    return next((name for ending, name in _CLASSES.items() if cell.endswith(ending)), usual)


def _open_table(self: RendererHTML, tokens: Sequence[Token], place: int, *_: object) -> str:
    return SCROLL.format(escape(tokens[place].meta["label"])) + "<table>"


def _close_table(self: RendererHTML, tokens: Sequence[Token], place: int, *_: object) -> str:
    return "</table></div>"


def joined(parts: Iterable[str | None]) -> str:
    """What is there of `parts`, with a dot between."""
    return " · ".join(filter(None, parts))
