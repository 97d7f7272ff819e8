"""Taking records out of a results folder."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from fedsub.benchmark.records.lock import locked
from fedsub.benchmark.records.record import Record
from fedsub.benchmark.records.store import Store, explained_to_user
from fedsub.benchmark.spec.cell import KEY_LENGTH
from fedsub.benchmark.spec.schema import parse_line
from fedsub.datasets.errors import UserError
from fedsub.datasets.files import write_atomically

LEAST = 6
"""Letters of a key that name a record, if no other begins so."""


def forget(results: Path, keys: Collection[str]) -> list[Record]:
    """Take every line of the records with these keys out of the folder; returns the records.

    A key may be cut short to its first six letters or more. Raises UserError if no record or several have it,
    and StoreError if a file cannot be read or written; nothing is taken out then.
    """
    stores = list(_stores(results))
    held = {record.key: record for store in stores for record in store.records()}
    found: dict[str, Record] = {}
    for key in keys:
        same = [each for each in held if each.startswith(key)] if len(key) >= LEAST else []
        if len(same) != 1:
            raise UserError(
                f"{len(same) or 'no'} records in {results} have a key that begins with {key!r}: give all"
                f" {KEY_LENGTH} letters of one that a dry run shows, or the first {LEAST} at least"
            )
        found[same[0]] = held[same[0]]
    for store in stores:
        _remove(store.path, found)
    return [*found.values()]


def _paths(results: Path) -> list[Path]:
    paths = sorted((results / "runs").glob("*.jsonl"))
    if not paths:
        raise UserError(f"{results} holds no records: name another folder with --results")
    return paths


def _stores(results: Path) -> Iterator[Store]:
    yield from (Store(results, path.stem) for path in _paths(results))


def _remove(path: Path, keys: Collection[str]) -> None:
    """Write the file anew without the lines of these keys; all others stay as they are."""
    if not keys:
        return
    with explained_to_user("write", path), locked(Path(f"{path}.lock")):
        lines = path.read_bytes().split(b"\n")
        kept = [line for line in lines if (parse_line(line) or {}).get("key") not in keys]
        if len(kept) < len(lines):
            write_atomically(path, b"\n".join(kept))
