"""What the sources say of a method in words: its module's text and the text below each option."""

from __future__ import annotations

import ast
import inspect
import textwrap
from dataclasses import fields
from itertools import pairwise
from typing import Any

from fedsub.datasets.options import format_value

DEPARTURES = "Departures"
"""Begins the paragraph on what a method does otherwise than its paper."""


def field_docs(options: type) -> dict[str, str]:
    """The docstring below each field of a dataclass and its bases."""
    found: dict[str, str] = {}
    for kind in reversed(options.__mro__[:-1]):
        body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0].body  # type: ignore[attr-defined]
        for item, after in pairwise(body):
            if isinstance(item, ast.AnnAssign) and isinstance(after, ast.Expr):
                found[ast.unparse(item.target)] = str(getattr(after.value, "value", ""))
    return found


def explain(method: str) -> dict[str, Any]:
    """JSON-ready: `summary`, one sentence; `text`, all paragraphs of its module; `departures`, that on what
    differs from the paper; `options`, name, default and meaning of each. Raises UserError for an unknown
    method."""
    from fedsub.methods.core import registry

    text = inspect.getdoc(inspect.getmodule(registry.find(method))) or ""
    head, *paragraphs = text.split("\n\n")
    options = registry.describe(method).options
    docs = field_docs(options)
    return {
        "summary": " ".join(head.split()),
        "text": paragraphs,
        "departures": " ".join(
            " ".join(each.removeprefix(DEPARTURES).lstrip(".:").split())
            for each in paragraphs
            if each.startswith(DEPARTURES)
        ),
        "options": [
            [item.name, format_value(getattr(item, "default", "")), " ".join(docs.get(item.name, "").split())]
            for item in fields(options)
        ],
    }
