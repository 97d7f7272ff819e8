"""Runs of the authors' code on disk: `results/authors/NAME.jsonl`, one line a run."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any

import msgspec

from fedsub.benchmark.records.jsonl import JsonLines
from fedsub.benchmark.records.store import explained_to_user
from fedsub.datasets.errors import UserError


class Run(msgspec.Struct, frozen=True):
    """One run of the authors' code on the clients of one of our cells."""

    code: str
    """Name of the code: fedpub, fedspray or fedstruct."""
    commit: str
    """Of the checkout."""
    key: str
    """Content key of our cell."""
    protocol: str
    dataset: str
    partition: str
    clients: int
    method: str
    """As our table spells it."""
    backbone: str
    seed: int
    data_seed: int
    metrics: dict[str, float]
    """In percent, by our names, at the round that the code reports."""
    rounds: Annotated[int, msgspec.Meta(ge=1)]
    seconds: float
    """Training and evaluation, without loading and set-up."""
    core_share: float
    """Processor seconds over wall-clock seconds: well below 1 for a run that shared its core."""
    environment: dict[str, Any] = msgspec.field(default_factory=dict)
    """Versions there, processor, threads."""

    @property
    def seconds_per_round(self) -> float:
        """`seconds` over `rounds`."""
        return self.seconds / self.rounds

    def to_json(self) -> str:
        """One line. Raises UserError for a score that is no finite number."""
        if not all(math.isfinite(value) for value in (*self.metrics.values(), self.seconds)):
            raise UserError(f"the authors' code returned {self.metrics}, not numbers")
        values = {**msgspec.structs.asdict(self), "seconds_per_round": round(self.seconds_per_round, 6)}
        return json.dumps(values, ensure_ascii=False, allow_nan=False)


class AuthorsRuns:
    """The runs of one public code; of several of one cell and commit the latest counts."""

    def __init__(self, results: Path, code: str) -> None:
        """Read what is there. Raises StoreError if it cannot be read."""
        self.path = results / "authors" / f"{code}.jsonl"
        self._found: dict[tuple[str, str], Run] = {}
        self._lines = JsonLines(self.path, self._take, self._found.clear)
        self.refresh()

    def refresh(self) -> None:
        """Read what other processes have added. Raises StoreError if it cannot be read."""
        with explained_to_user("read", self.path):
            self._lines.refresh()

    def runs(self) -> list[Run]:
        """Every run that counts, the latest last."""
        return list(self._found.values())

    def done(self, key: str, commit: str) -> bool:
        """Whether our cell has been run by that commit of theirs."""
        return (key, commit) in self._found

    def add(self, run: Run) -> None:
        """Append a run and sync it to disk.

        Raises UserError for no result, StoreError if it cannot be written.
        """
        line = run.to_json()
        with explained_to_user("write", self.path), self._lines.locked() as append:
            append([line])

    def _take(self, line: bytes) -> bool:
        try:
            run = msgspec.json.decode(line, type=Run)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        # The latest stands last, also where an earlier commit was run again.
        self._found.pop((run.key, run.commit), None)
        self._found[run.key, run.commit] = run
        return True


def load(results: Path) -> dict[str, list[Run]]:
    """Key of our cell → the runs of the authors' code on its clients, the latest last; empty without records.

    Raises StoreError if a file cannot be read.
    """
    found: dict[str, list[Run]] = {}
    for path in sorted((results / "authors").glob("*.jsonl")):
        for run in AuthorsRuns(results, path.stem).runs():
            found.setdefault(run.key, []).append(run)
    return found
