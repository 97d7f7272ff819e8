"""Bundles: a study's records, tables and user's files in one .zip, for others to verify.

    results/   a results folder with the records
    tables/    the .toml files of tables
    parts/     DIGEST/PART/…: files of methods, graphs, partitions and splits, by digest of their content
    bundle.json: versions, and the file of each part

A bundle's content is not trusted: names are checked, sizes are limited, and a part is used for a record only
if its content has the digest in the record.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZIP_DEFLATED, ZipFile

from fedsub.benchmark.machine import environment
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.records.record import Record
from fedsub.benchmark.records.store import explained_to_user
from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.custom import NamedFiles, metrics_of, paths_of, sources_of, with_metrics
from fedsub.benchmark.spec.protocol import bare
from fedsub.benchmark.spec.schema import checked, parse_line
from fedsub.datasets.errors import UserError
from fedsub.datasets.files import written_atomically
from fedsub.datasets.loaders.raw import DAMAGE

MANIFEST = "bundle.json"
METRIC = "metric"
"""Name of a metric's file among the parts of a bundle."""
LARGEST = 2**31
"""Maximum bytes of an unpacked bundle."""
_NAME = re.compile(rf"{re.escape(MANIFEST)}|(results|tables|parts)(/(?!\.)[\w.+-]+)+", re.ASCII)

Places = Mapping[str, Mapping[str, Path]]
"""`Cell.files`, or a metric's path with its digest → part → its path."""


def write(results: Path, path: Path, tables: Sequence[str] = ()) -> list[str]:
    """Write a bundle of the records of all tables or of the named `tables`; .toml files among them are added.

    Returns a sentence for each file with unreadable records and for each state of a user's files that was not
    found. Raises UserError if there are no records, and StoreError if a file cannot be read or written.
    """
    stored = Records(results)
    records = stored.of_tables(tables)
    contents = {f"tables/{Path(each).name}": Path(each) for each in tables if each.endswith(".toml")}
    parts: dict[str, dict[str, str]] = {}
    missing: dict[str, str] = {}
    files = NamedFiles()
    for cell, state in [(record.cell, state) for record in records for state in _states(record.cell)]:
        if state in parts or state in missing:
            continue
        found, now = {METRIC: Path(bare(state))}, files.measured(bare(state))
        if state == cell.files:
            found, now = paths_of(cell), files.digest(cell)
        if not found or not all(map(Path.exists, found.values())) or now != state:
            why = "they have changed since the run" if found else "an edited method, or objects from Python"
            missing[state] = f"left out the files of {cell.title}: {why}"
            continue
        parts[state] = {}
        for part, place in found.items():
            inside = [each.resolve() for each in sources_of(part, place)]
            root = Path(os.path.commonpath([place.resolve().parent, *(each.parent for each in inside)]))
            folder = f"parts/{state.rpartition('[')[2].rstrip(']')[:16]}/{part}"
            parts[state][part] = f"{folder}/{place.resolve().relative_to(root)}"
            contents |= {f"{folder}/{each.relative_to(root)}": each for each in inside}
    if wrong := [name for name in contents if not _NAME.fullmatch(name)]:
        raise UserError(f"a bundle cannot hold {contents[wrong[0]]}: use only letters and digits in its name")
    with explained_to_user("write", path), TemporaryDirectory() as folder, written_atomically(path) as stream:
        copies = Records(Path(folder))
        for record in records:
            copies.append(record)
        copies.pack()
        contents |= {
            f"results/{each.relative_to(folder)}": each
            for each in sorted(Path(folder).rglob("*"))
            if each.is_file() and each.suffix != ".lock"
        }
        with ZipFile(stream, "w", ZIP_DEFLATED) as archive:
            manifest = {"versions": environment("auto", "cpu"), "parts": parts}
            archive.writestr(MANIFEST, json.dumps(manifest, indent=1))
            for name, source in sorted(contents.items()):
                archive.write(source, name)
    return [*stored.warnings(), *missing.values()]


def _states(cell: Cell) -> list[str]:
    """Return the states of the user's files that a cell needs: `Cell.files`, and metrics with a digest."""
    return [*filter(None, (cell.files,)), *(name for name in metrics_of(cell) if "[" in name)]


def unpack(path: Path, folder: Path) -> Places:
    """Unpack a bundle into an empty folder; its records are then in the subfolder `results`.

    Raises UserError for a file that is no bundle, holds a name that could lead out of the folder, or holds
    more than LARGEST bytes.
    """
    try:
        with explained_to_user("read", path), ZipFile(path) as archive:
            left = LARGEST
            for entry in archive.infolist():
                if not _NAME.fullmatch(entry.filename):
                    raise UserError(f"{path} is not a bundle: it holds {entry.filename[:80]!r}")
                # The size that a header states may be wrong.
                with archive.open(entry) as stream:
                    content = stream.read(left + 1)
                left -= len(content)
                if left < 0:
                    raise UserError(f"{path} holds more than {LARGEST / 2**30:g} GiB: it is not unpacked")
                target = folder / entry.filename
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
        manifest = parse_line((folder / MANIFEST).read_bytes()) or {}
    except UserError:
        raise
    except DAMAGE as error:
        raise UserError(f"{path} is not a bundle: {error}") from error
    parts = checked(f"parts in {path}", manifest.get("parts"), dict[str, dict[str, str]])
    if wrong := [name for found in parts.values() for name in found.values() if not _NAME.fullmatch(name)]:
        raise UserError(f"{path} is not a bundle: it names {wrong[0][:80]!r}")
    return {digest: {part: folder / name for part, name in found.items()} for digest, found in parts.items()}


def relocated(record: Record, places: Places) -> Record:
    """Return the record with its parts' paths in a bundle; their digests are compared when it is run.

    The path of a metric that selects the round is part of the key, which then changes.
    """
    cell = record.cell
    if cell.files in places:
        found = places[cell.files]
        cell = replace(cell, paths=tuple(f"{part}={path}" for part, path in sorted(found.items())))

    def form(name: str) -> str:
        found = places.get(name, {})
        return f"{found[METRIC]}{name[name.find('[') :]}" if METRIC in found else name

    return replace(record, cell=with_metrics(cell, form))
