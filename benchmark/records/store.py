"""Records on disk: one append-only file of JSON lines per protocol.

What many records share, the machine with its versions and the commit, stands once in a line of its own,
`{"id": …, "environment": …, "commit": …}`, before the first record that names it; records then hold the
id as their `environment`. A curve without its rounds has one value for every round, from 1. Records of
before hold all of it in full.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from fedsub.benchmark.records.jsonl import JsonLines
from fedsub.benchmark.records.record import OK, Record, identity, to_json
from fedsub.benchmark.spec.cell import Work
from fedsub.datasets.errors import UserError
from fedsub.datasets.files import explained

ID_LENGTH = 12
_SHARED = ("environment", "commit")


class StoreError(UserError):
    """The results folder cannot be read or written."""


explained_to_user = partial(
    explained, fix="repair that or choose another folder with --results", error=StoreError
)
"""`explained` for whatever lies in the results folder."""


class Store:
    """The records of one protocol; of several with one key the latest success counts, else the latest."""

    def __init__(self, folder: Path, protocol: str) -> None:
        """Read the file of `protocol` in the results folder `folder`; makes nothing where there is none.

        Raises StoreError if it cannot be read.
        """
        self.path = folder / "runs" / f"{protocol}.jsonl"
        self._stored: dict[str, list[_Stored]] = {}
        self._spoiled: set[int] = set()
        self._shared: dict[str, dict[str, Any]] = {}
        self._file = JsonLines(self.path, self._take, self._forget)
        self.refresh()

    @property
    def unreadable(self) -> list[int]:
        """Numbers, from 1, of the complete lines that hold no record; they stay and are passed over."""
        self.records()
        return sorted({*self._file.unreadable, *self._spoiled})

    @property
    def warning(self) -> str:
        """A sentence on the lines that hold no record; empty if all do."""
        if not (numbers := ", ".join(map(str, self.unreadable))):
            return ""
        return (
            f"{self.path}: no record can be read in line {numbers}: passed over; get the file again from a "
            "backup, or delete the line and run its cell again"
        )

    def refresh(self) -> None:
        """Take in what other processes wrote since the file was last read or written here.

        Raises StoreError if it cannot be read.
        """
        with explained_to_user("read", self.path):
            self._file.refresh()

    def records(self) -> list[Record]:
        """The record that counts of every key, in order of first appearance."""
        return [record for key in [*self._stored] if (record := self.get(key)) is not None]

    def get(self, key: str) -> Record | None:
        """The record that counts of `key`, if there is one."""
        lines = self._stored.get(key, [])
        while lines:
            # A success that a later run of its cell failed to repeat is a result all the same.
            line = next((line for line in reversed(lines) if line.status == OK), lines[-1])
            try:
                return line.record
            except (UserError, RecursionError):
                lines.remove(line)
                self._spoiled.add(line.number)
        return None

    def done(self, key: str) -> bool:
        """Whether there is a success of `key` that can be read."""
        found = self.get(key)
        return found is not None and found.status == OK

    def runs(self, key: str) -> int:
        """How many records there are of `key`, failures too."""
        return len({line.number for line in self._stored.get(key, ())})

    def successes(self) -> Iterator[tuple[Work, str]]:
        """The work and the key of every success."""
        for key, lines in self._stored.items():
            for line in lines:
                if line.status == OK:
                    yield line.work, key
                    break

    def peaks(self) -> Iterator[tuple[str, str, float]]:
        """Graph, method and peak memory in MiB of every success that states them."""
        for lines in self._stored.values():
            for values in (line.values for line in lines if line.status == OK):
                dataset, method, peak = map(values.get, ("dataset", "method", "peak_memory_mb"))
                if isinstance(dataset, str) and isinstance(method, str) and isinstance(peak, float):
                    yield dataset, method, peak

    def check_writable(self) -> None:
        """Make the file where there is none, so that a run does not find out after its first cell.

        Raises StoreError if it cannot be written.
        """
        with explained_to_user("write", self.path), self._file.locked():
            pass

    def append(self, record: Record, replace: bool = False) -> bool:
        """Write one record and sync it to disk; True if it was written.

        Unless `replace`, a key that another process finished meanwhile is left as it is.
        Raises UserError for a record that could not be read again, and StoreError if the file cannot be
        written; it then is as it was.
        """
        values = record.reread().to_dict()
        shared = {name: values.pop(name) for name in _SHARED}
        if _is_every_round(values.get("curve", {})):
            del values["curve"]["round"]
        place = hashlib.sha256(to_json(shared).encode()).hexdigest()[:ID_LENGTH]
        lines = [to_json({**values, "environment": place})]
        with explained_to_user("write", self.path), self._file.locked() as write:
            kept = None if replace else self.get(record.key)
            if kept is not None and kept.status == OK:
                return False
            if place not in self._shared:
                lines.insert(0, to_json({"id": place, **shared}))
            write(lines)
        return True

    def _take(self, values: dict[str, Any]) -> bool:
        if "id" in values:
            self._shared[str(values["id"])] = {name: values.get(name) for name in _SHARED}
            return True
        if isinstance(place := values.get("environment"), str):
            values |= self._shared.get(place, {})
        try:
            key, status, work = identity(values)
        except (UserError, RecursionError):
            return False
        self._stored.setdefault(key, []).append(_Stored(values, status, work, self._file.line))
        return True

    def _forget(self) -> None:
        self._stored, self._shared, self._spoiled = {}, {}, set()


@dataclass(frozen=True, eq=False)
class _Stored:
    """A line that holds a record, which is made of it when it is first asked for."""

    values: Mapping[str, Any]
    status: str
    work: Work
    number: int
    """Of the line in its file, from 1."""

    @cached_property
    def record(self) -> Record:
        """Raises UserError if it cannot be read."""
        return Record.from_dict(_with_rounds(self.values))


def _is_every_round(curve: Mapping[str, Any]) -> bool:
    rounds = curve.get("round")
    # A curve of rounds alone could not be told from none.
    return rounds == list(range(1, len(rounds or ()) + 1)) and "test" in curve


def _with_rounds(values: Mapping[str, Any]) -> Mapping[str, Any]:
    curve = values.get("curve")
    if not isinstance(curve, dict) or "round" in curve or not isinstance(test := curve.get("test"), list):
        return values
    return {**values, "curve": {"round": list(range(1, len(test) + 1)), **curve}}


def keep_elsewhere(folder: Path, record: Record) -> Path:
    """Write a record that its store did not take to a new file in `folder`, else in the temporary folder.

    Raises OSError if neither takes it.
    """
    content = record.to_json().encode() + b"\n"
    prefix = f"unsaved-{Path(record.cell.protocol).stem}-"
    for place in (folder, Path(tempfile.gettempdir())):
        name = None
        try:
            descriptor, name = tempfile.mkstemp(".jsonl", prefix, place)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            refused = error
            if name is not None:
                Path(name).unlink(missing_ok=True)
        else:
            return Path(name)
    raise refused
