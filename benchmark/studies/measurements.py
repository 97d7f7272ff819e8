"""Timings on disk: `results/performance/PART.jsonl`, appended to. On each machine the latest record of a key
counts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedsub.benchmark.machine import commit, environment
from fedsub.benchmark.records.jsonl import JsonLines
from fedsub.benchmark.records.record import json_ready
from fedsub.benchmark.records.store import explained_to_user
from fedsub.benchmark.spec.schema import parse_line


class Measurements:
    """The records of one kind."""

    def __init__(self, results: Path, part: str) -> None:
        self._found: dict[tuple[str, str], dict[str, Any]] = {}
        self._lines = JsonLines(results / "performance" / f"{part}.jsonl", self._take, self._found.clear)

    def _take(self, line: bytes) -> bool:
        record = parse_line(line) or {}
        made = record.get("made")
        if not (
            isinstance(record.get("key"), str) and isinstance(made, dict) and isinstance(made.get("cpu"), str)
        ):
            return False
        self._found[machine_of(record), record["key"]] = record
        return True

    def records(self) -> list[dict[str, Any]]:
        """The latest record of every key on every machine, in order of first appearance."""
        with explained_to_user("read", self._lines.path):
            self._lines.refresh()
        return list(self._found.values())

    def lacks(self, key: str) -> bool:
        """Whether this machine has no record of the key, or that of a failure on this side."""
        here = machine_of({"made": environment("auto", "cpu")})
        own = next((each for each in self.records() if each["key"] == key and machine_of(each) == here), None)
        return own is None or own.get("status") == "ours failed"

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


def machine_of(record: Mapping[str, Any]) -> str:
    """The machine that a record names: processor; system, cores, memory."""
    return f"{record['made']['cpu']}; {record['made']['machine']}"
