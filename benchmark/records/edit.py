"""Records taken out of a results folder, and parts of one's own called otherwise in them."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

from filelock import FileLock

from fedsub.benchmark.cli.arguments import Arguments
from fedsub.benchmark.execution.logs import log_path
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.records.jsonl import parse_line
from fedsub.benchmark.records.record import OK, Record
from fedsub.benchmark.records.store import Store, explained_to_user
from fedsub.benchmark.spec.cell import KEY_LENGTH, Cell
from fedsub.benchmark.spec.custom import NOUNS, known_names, names_of, renamed
from fedsub.datasets.errors import UserError
from fedsub.datasets.files import write_atomically

LEAST = 6
"""Letters of a key that name a record, if no other begins so."""


def print_asked(arguments: Arguments) -> None:
    """Do what `--forget`, `--rename` and `--export` ask for, in this order, and say it.

    Raises UserError as those functions do.
    """
    if arguments.forget:
        print(*forget(arguments.results, arguments.forget), sep="\n")
    if arguments.rename:
        print(*rename(arguments.results, *arguments.rename), sep="\n")
    if arguments.export is not None:
        # pandas and scipy.stats, which nothing else here needs.
        from fedsub.benchmark.report.export import export_records

        _paths(arguments.results)
        records = Records(arguments.results)
        path = export_records(records, arguments, arguments.export)
        for sentence in records.warnings():
            print(sentence, file=sys.stderr)
        print(path)


def forget(results: Path, keys: Collection[str]) -> list[str]:
    """Take every line of the records with these keys, and what their cells left beside them, out of the
    folder; returns a line on each record.

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
                f" {KEY_LENGTH} letters of one that --dry-run shows, or the first {LEAST} at least"
            )
        found[same[0]] = held[same[0]]
    for store in stores:
        _remove(store.path, found)
    for key in found:
        _take_along(results, key)
    return [f"forgotten: {key}  {record.cell.protocol}: {record.cell.title}" for key, record in found.items()]


def rename(results: Path, old: str, new: str) -> list[str]:
    """Call a method, graph, partition or split of one's own `new` where records call it `old`; returns a line
    on each record. What records say of their runs stays; their keys are those of the new name, and
    so are the names of what lies beside them.

    Raises UserError if no record has it, if both names are one, and if either is the benchmark's.
    """
    if old == new:
        raise UserError(f"{old} is its name already: give another one")
    for name in (old, new):
        if any(name in known_names(part) for part in NOUNS):
            raise UserError(f"{name} is a name of the benchmark: only parts of one's own can be renamed")
    lines = []
    for store in list(_stores(results)):
        replaced = []
        for record in store.records():
            cell = _with(record.cell, old, new)
            if cell is not record.cell:
                done = store.done(cell.key)
                store.append(replace(record, cell=cell), replace=True)
                replaced.append(record.key)
                # A failure leaves an earlier success of the new name in place, and so what lies beside that.
                kept = done and record.status != OK
                _take_along(results, record.key, None if kept else cell.key)
                lines.append(f"renamed: {record.key} → {cell.key}  {cell.title}")
        _remove(store.path, replaced)
    if not lines:
        raise UserError(f"no record in {results} has a part called {old!r}: --dry-run shows their names")
    return lines


def _paths(results: Path) -> list[Path]:
    paths = sorted((results / "runs").glob("*.jsonl"))
    if not paths:
        raise UserError(f"{results} holds no records: name another folder with --results")
    return paths


def _take_along(results: Path, old: str, new: str | None = None) -> None:
    """Call what lies beside a record as its new key says, or remove it; a checkpoint, which is of the old key
    alone, always."""
    # torch, which nothing else here needs.
    from fedsub.benchmark.execution.artifacts import folder_of
    from fedsub.benchmark.execution.checkpoints import forget as forget_checkpoint

    forget_checkpoint(results, old)
    saved, log = folder_of(results, old), log_path(results, old)
    with explained_to_user("write", saved):
        if new is None:
            if saved.exists():
                shutil.rmtree(saved)
            log.unlink(missing_ok=True)
            return
        _take_along(results, new)
        for path, target in ((saved, folder_of(results, new)), (log, log_path(results, new))):
            if path.exists():
                path.rename(target)


def _stores(results: Path) -> Iterator[Store]:
    yield from (Store(results, path.stem) for path in _paths(results))


def _with(cell: Cell, old: str, new: str) -> Cell:
    for part, name in names_of(cell).items():
        if name == old:
            cell = renamed(cell, part, new)
    return cell


def _remove(path: Path, keys: Collection[str]) -> None:
    """Write the file anew without the lines of these keys; all others stay as they are."""
    if not keys:
        return
    with explained_to_user("write", path), FileLock(f"{path}.lock"):
        lines = path.read_bytes().split(b"\n")
        kept = [line for line in lines if (parse_line(line) or {}).get("key") not in keys]
        if len(kept) < len(lines):
            write_atomically(path, b"\n".join(kept))
