"""Append-only files in which the latest line of a key is valid. One of them, `results/verified.jsonl`, lists
who reproduced stored records without a difference (`verify --by`).
"""

import json
from collections.abc import Callable, Hashable, Iterable, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from fedsub.benchmark.records.jsonl import JsonLines
from fedsub.benchmark.records.record import Record
from fedsub.benchmark.records.store import explained_to_user

Kind = TypeVar("Kind")
FILE = "verified.jsonl"


class Latest(Generic[Kind]):
    """Lines of one type; other lines are skipped. Raises StoreError if the file cannot be read or written."""

    def __init__(self, path: Path, kind: type[Kind], key: Callable[[Kind], Hashable]) -> None:
        self.path = path
        self._kind, self._key = kind, key
        self._found: dict[Hashable, Kind] = {}
        self._lines = JsonLines(path, self._take, self._found.clear)

    def values(self) -> list[Kind]:
        """Return the valid values, the latest last, including those that other processes added."""
        with explained_to_user("read", self.path):
            self._lines.refresh()
        return [*self._found.values()]

    def append(self, *lines: str) -> None:
        """Append lines and sync them to disk."""
        with explained_to_user("write", self.path), self._lines.locked() as append:
            append(lines)

    def _take(self, line: bytes) -> bool:
        try:
            value = msgspec.json.decode(line, type=self._kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        # Removing the key first moves a repeated key to the end.
        self._found.pop(self._key(value), None)
        self._found[self._key(value)] = value
        return True


class _Verified(msgspec.Struct, frozen=True):
    key: str
    by: str


def _verified(results: Path) -> Latest[_Verified]:
    return Latest(results / FILE, _Verified, attrgetter("key", "by"))


def add_verified(results: Path, by: str, records: Iterable[Record]) -> None:
    """Append a line for each record. Raises StoreError if the file cannot be written."""
    lines = ({"key": each.key, "by": by, "cell": each.cell.title} for each in records)
    _verified(results).append(*(json.dumps(line, ensure_ascii=False) for line in lines))


def verified_by(results: Path) -> Mapping[str, frozenset[str]]:
    """Key of a record → names of those who reproduced it."""
    found: dict[str, frozenset[str]] = {}
    for each in _verified(results).values():
        found[each.key] = found.get(each.key, frozenset()) | {each.by}
    return found
