"""Timings on disk: `results/performance/PART.jsonl`, appended to. On each machine the latest record of a key
counts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec

from fedsub.benchmark.machine import commit, environment
from fedsub.benchmark.records.jsonl import JsonLines
from fedsub.benchmark.records.record import json_ready
from fedsub.benchmark.records.store import explained_to_user

Seconds = Annotated[float, msgspec.Meta(ge=1e-9, le=1e9)]


class Phase(msgspec.Struct, frozen=True):
    """Mean seconds of a round in every block of either worker."""

    ours: list[Seconds] = []
    peer: list[Seconds] = []


class Machine(msgspec.Struct, frozen=True):
    """Where it was made."""

    cpu: str
    machine: str

    def __str__(self) -> str:
        return f"{self.cpu}; {self.machine}"


class Timing(msgspec.Struct, frozen=True):
    """A comparison, as far as anything reads it."""

    key: str
    made: Machine
    method: str = ""
    status: str = ""
    phases: dict[str, Phase] = {}


class Measurements:
    """The records of one kind."""

    def __init__(self, results: Path, part: str) -> None:
        self._found: dict[tuple[str, str], Timing] = {}
        self._lines = JsonLines(results / "performance" / f"{part}.jsonl", self._take, self._found.clear)

    def _take(self, line: bytes) -> bool:
        try:
            record = msgspec.json.decode(line, type=Timing)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        self._found[str(record.made), record.key] = record
        return True

    def records(self) -> list[Timing]:
        """The latest record of every key on every machine, in order of first appearance."""
        with explained_to_user("read", self._lines.path):
            self._lines.refresh()
        return list(self._found.values())

    def lacks(self, key: str) -> bool:
        """Whether this machine has no record of the key, or that of a failure on this side."""
        here = msgspec.convert(environment("auto", "cpu"), Machine)
        own = next((each for each in self.records() if (each.key, each.made) == (key, here)), None)
        return own is None or own.status == "ours failed"

    def add(self, key: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Append a record of `values` with the machine, the commit and the moment; returns it."""
        made = {
            **environment("auto", "cpu"),
            "commit": commit(),
            "load": round(os.getloadavg()[0], 2),
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        record = {"key": key, **json_ready(values), "made": made}
        with explained_to_user("write", self._lines.path), self._lines.locked() as append:
            append([json.dumps(record, allow_nan=False)])
        return record
