"""Who ran stored records again without a difference: `results/verified.jsonl`, written by `verify --by`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from fedsub.benchmark.records.jsonl import JsonLines
from fedsub.benchmark.records.record import Record
from fedsub.benchmark.spec.schema import parse_line

FILE = "verified.jsonl"


def add_verified(results: Path, by: str, records: Iterable[Record]) -> None:
    """Append a line for each record. Raises OSError if the file cannot be written."""
    lines = [
        json.dumps({"key": record.key, "by": by, "cell": record.cell.title}, ensure_ascii=False)
        for record in records
    ]
    with JsonLines(results / FILE, lambda line: True).locked() as append:
        append(lines)


def verified_by(results: Path) -> Mapping[str, frozenset[str]]:
    """Key of a record → names of those who ran it again."""
    found: dict[str, frozenset[str]] = {}

    def take(content: bytes) -> bool:
        line = parse_line(content) or {}
        key, by = line.get("key"), line.get("by")
        if not (isinstance(key, str) and isinstance(by, str)):
            return False
        found[key] = found.get(key, frozenset()) | {by}
        return True

    JsonLines(results / FILE, take).refresh()
    return found
