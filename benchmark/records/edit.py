"""Taking records out of a results folder."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.records.lock import locked
from fedsub.benchmark.records.record import Record
from fedsub.benchmark.records.store import explained_to_user, graph_of
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
    held = {record.key: record for record in Records(results).every()}
    if not held:
        raise UserError(f"{results} holds no records: name another folder with --results")
    found: dict[str, Record] = {}
    for key in keys:
        same = [each for each in held if each.startswith(key)] if len(key) >= LEAST else []
        same = [key] if key in same else same
        if len(same) != 1:
            raise UserError(
                f"{len(same) or 'no'} records in {results} have a key that begins with {key!r}: give the"
                f" whole of one that a dry run shows, or the first {LEAST} letters at least"
            )
        found[same[0]] = held[same[0]]
    for graph in {graph_of(record.cell) for record in found.values()}:
        _remove(results / "runs" / f"{graph}.jsonl", found)
    return [*found.values()]


def _remove(path: Path, keys: Collection[str]) -> None:
    """Write the file anew without the lines of these keys; all others stay as they are."""
    if not keys:
        return
    with explained_to_user("write", path), locked(Path(f"{path}.lock")):
        lines = path.read_bytes().split(b"\n")
        kept = [line for line in lines if (parse_line(line) or {}).get("key") not in keys]
        if len(kept) < len(lines):
            write_atomically(path, b"\n".join(kept))
