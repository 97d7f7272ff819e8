"""Measurements on disk: `results/performance/PART.jsonl`, appended to.

A figure belongs to the machine that it was measured on: the latest record of a key counts on each machine,
and what one machine has measured another one still lacks.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedsub.benchmark.machine import commit, environment
from fedsub.benchmark.records.jsonl import JsonLines
from fedsub.benchmark.records.record import json_ready
from fedsub.benchmark.records.store import explained_to_user

BUSY = 0.7
"""Load average, besides this process, above which a measurement is doubtful."""


class Measurements:
    """The records of one part of the performance page."""

    def __init__(self, results: Path, part: str) -> None:
        self.part = part
        self._found: dict[tuple[str, str], dict[str, Any]] = {}
        self._lines = JsonLines(results / "performance" / f"{part}.jsonl", self._take, self._found.clear)

    def _take(self, record: dict[str, Any]) -> bool:
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

    def own(self) -> dict[str, dict[str, Any]]:
        """What was measured on this machine: the latest record by key."""
        here = machine_of({"made": environment("auto", "cpu")})
        return {record["key"]: record for record in self.records() if machine_of(record) == here}

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

    def lacking(self, keys: Iterable[str], rerun: bool) -> list[str]:
        """Those of the keys that have no record on this machine yet, or a failure on this side; all with
        `rerun`."""
        own = self.own()
        return [key for key in keys if rerun or key not in own or is_failure(own[key])]

    def missing(
        self, keys: Mapping[str, Callable[[], Mapping[str, Any]]], rerun: bool
    ) -> Iterator[dict[str, Any]]:
        """Take what is `lacking`, asked anew before each: others may measure too. Yields new records."""
        for number, (key, measure) in enumerate(keys.items(), start=1):
            if not self.lacking([key], rerun):
                continue
            load = os.getloadavg()[0]
            # This process itself is one; more than the cores it leaves is company.
            if load > 1 + BUSY:
                print(f"warning: the machine is busy (load {load:.1f}): times will be long", file=sys.stderr)
            print(f"{self.part} {number}/{len(keys)}: {key}", file=sys.stderr)
            yield self.add(key, measure())


def is_failure(record: Mapping[str, Any]) -> bool:
    """Whether this suite failed, so that the record holds no measurement."""
    return record.get("status") == "ours failed"


def machine_of(record: Mapping[str, Any]) -> str:
    """The machine that a record names: processor; system, cores, memory."""
    return f"{record['made']['cpu']}; {record['made']['machine']}"
