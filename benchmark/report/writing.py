"""Pages, made from templates and written atomically."""

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from fedsub.benchmark.records.store import StoreError
from fedsub.benchmark.report.wording import escape, markdown_table, sentence_list, span, title_of
from fedsub.datasets.files import explained, write_atomically


def write_page(path: Path, content: bytes) -> Path:
    """Write a page atomically, unless the file has this content already; returns its path.

    Raises StoreError if it cannot be written.
    """
    with explained("write", path, "free space there or choose another folder with --results", StoreError):
        if not (path.is_file() and path.read_bytes() == content):
            write_atomically(path, content)
    return path


def write_template(folder: Path, name: str, /, **values: Any) -> Path:
    """Write a Markdown page into the folder from the template of its name in `report/templates`; returns its
    path. Raises as `write_page`."""
    return write_page(folder / name, _environment().get_template(name).render(values).encode())


def templates(folder: str, **settings: Any) -> Environment:
    """Return the templates in a folder of `report`; an undefined name in them is an error."""
    loader = PackageLoader("fedsub.benchmark.report", folder)
    environment = Environment(
        loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, **settings
    )
    environment.filters |= {"listed": sentence_list, "title_of": title_of}
    environment.globals |= {"span": span, "title_of": title_of}
    return environment


@cache
def _environment() -> Environment:
    """Return the Markdown templates; only the filter `line` escapes."""
    environment = templates("templates", keep_trailing_newline=True)
    environment.filters |= {"line": escape, "percent": "{:.0%}".format}
    environment.globals["table"] = markdown_table
    return environment


def write_list(path: Path, items: Iterable[Mapping[str, Any]]) -> Path:
    """Write a list as JSON, one item per line, without empty values, numbers with four decimals; returns its
    path. Raises as `write_page`."""
    lines = (json.dumps(_filled(item), ensure_ascii=False, separators=(",", ":")) for item in items)
    return write_page(path, "[\n{}\n]\n".format(",\n".join(lines)).encode())


def _filled(value: Any) -> Any:
    """Return the value without null, false, empty texts and lists in it; −0.0 becomes 0.0."""
    if isinstance(value, Mapping):
        return {
            name: _filled(each)
            for name, each in value.items()
            if each is not None and each is not False and each not in ("", [])
        }
    if isinstance(value, list):
        return [_filled(each) for each in value]
    return round(value, 4) + 0.0 if isinstance(value, float) else value
