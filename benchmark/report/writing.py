"""Pages of templates, written atomically."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from fedsub.benchmark.records.store import StoreError
from fedsub.benchmark.report.wording import escape, markdown_table, sentence_list, title_of
from fedsub.datasets.files import explained, write_atomically


def write_page(path: Path, content: bytes) -> None:
    """Write a page, unless it says the same already, so that a reader sees the old or the new one, never a
    part.

    Raises StoreError if it cannot be written.
    """
    with explained("write", path, "free space there or choose another folder with --results", StoreError):
        if not (path.is_file() and path.read_bytes() == content):
            write_atomically(path, content)


def write_template(path: Path, template: str, /, **values: Any) -> Path:
    """Write a Markdown page made of a template of `report/templates`; returns its path. Raises as
    `write_page`."""
    write_page(path, _environment().get_template(template).render(values).encode())
    return path


def templates(folder: str, **settings: Any) -> Environment:
    """The templates in a folder of `report`; what is undefined in them is a fault."""
    loader = PackageLoader("fedsub.benchmark.report", folder)
    return Environment(
        loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, **settings
    )


@cache
def _environment() -> Environment:
    """Of Markdown: nothing is escaped unless by `line`."""
    environment = templates("templates", keep_trailing_newline=True)
    environment.filters |= {
        "line": escape,
        "listed": sentence_list,
        "percent": "{:.0%}".format,
        "title_of": title_of,
    }
    environment.globals["table"] = markdown_table
    return environment


def write_list(path: Path, items: Iterable[Mapping[str, Any]]) -> None:
    """Write a list as JSON, an item a line, without empty values. Raises as `write_page`."""
    lines = (json.dumps(_filled(item), ensure_ascii=False, separators=(",", ":")) for item in items)
    write_page(path, "[\n{}\n]\n".format(",\n".join(lines)).encode())


def _filled(value: Any) -> Any:
    """The value without null, false, empty texts and lists in it; a zero has no sign."""
    if isinstance(value, Mapping):
        return {
            name: _filled(each)
            for name, each in value.items()
            if each is not None and each is not False and each not in ("", [])
        }
    if isinstance(value, list):
        return [_filled(each) for each in value]
    return value + 0.0 if isinstance(value, float) else value
