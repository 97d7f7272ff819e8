"""Papers' public code on our clients: the list of codes (codes.toml), their runs on disk
(`results/authors/NAME.jsonl`, one line per run), and the differences ours − theirs, paired by draw.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import msgspec

from fedsub.benchmark.analysis.agreement import Verdict, judge_draws
from fedsub.benchmark.analysis.scores import Leaderboard
from fedsub.benchmark.records.latest import Latest
from fedsub.benchmark.records.record import ALONE, Record
from fedsub.benchmark.spec.cell import Block
from fedsub.benchmark.spec.schema import read_as
from fedsub.datasets.errors import UserError


class PublicCode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The public code of a paper."""

    name: str
    """Name on the command line and in records."""
    title: str
    repository: str
    """Owner and name on GitHub."""
    entry: str
    """A file that every checkout has."""
    methods: tuple[str, ...]
    """Methods that the code can run, spelled as in the tables."""
    datasets: tuple[str, ...]
    tables: dict[str, tuple[int, ...]]
    """Table → numbers of clients to run; empty for all that the table lists."""
    lacks: str = ""
    """Parts of its paper's tables that it cannot run here, and why."""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    code: tuple[PublicCode, ...]


CODES = {code.name: code for code in read_as(Path(__file__).with_name("codes.toml"), _File).code}
"""Name → public code."""


class Run(msgspec.Struct, frozen=True):
    """One run of the authors' code on the clients of one of our cells."""

    code: str
    """Name of the code: fedpub, fedspray or fedstruct."""
    commit: str
    """Commit of the checkout."""
    key: str
    """Content key of our cell."""
    protocol: str
    dataset: str
    partition: str
    clients: int
    method: str
    """Method, spelled as in our table."""
    backbone: str
    seed: int
    data_seed: int
    metrics: dict[str, float]
    """Our name of a metric → value in percent, at the round that the code reports."""
    rounds: Annotated[int, msgspec.Meta(ge=1)]
    seconds: float
    """Seconds of training and evaluation, without loading and set-up."""
    core_share: float
    """Processor seconds over wall-clock seconds: well below 1 for a run that shared its core."""
    environment: dict[str, Any] = msgspec.field(default_factory=dict)
    """Package versions of the code's environment, processor and number of threads."""

    @property
    def seconds_per_round(self) -> float:
        """Seconds of training and evaluation per round."""
        return self.seconds / self.rounds


Runs = Mapping[str, Sequence[Run]]
"""Key of our cell → runs of the authors' code on its clients, latest last."""


class AuthorsRuns(Latest[Run]):
    """Runs of one public code; the latest run of a cell and commit counts."""

    def __init__(self, results: Path, code: str) -> None:
        super().__init__(results / "authors" / f"{code}.jsonl", Run, attrgetter("key", "commit"))

    def add(self, run: Run) -> None:
        """Append a run. Raises UserError for a non-finite number, StoreError if it cannot be written."""
        if not all(math.isfinite(value) for value in (*run.metrics.values(), run.seconds)):
            raise UserError(f"the authors' code returned {run.metrics}, not numbers")
        values = {**msgspec.structs.asdict(run), "seconds_per_round": round(run.seconds_per_round, 6)}
        self.append(json.dumps(values, ensure_ascii=False, allow_nan=False))


def load(results: Path) -> dict[str, list[Run]]:
    """Return key of our cell → runs of the authors' code on its clients, latest last; empty without records.

    Raises StoreError if a file cannot be read.
    """
    found: dict[str, list[Run]] = {}
    for path in sorted((results / "authors").glob("*.jsonl")):
        for run in AuthorsRuns(results, path.stem).values():
            found.setdefault(run.key, []).append(run)
    return found


TOLERANCE = 1.0
"""Points that the 90 % interval of ours − theirs must lie within."""


@dataclass(frozen=True)
class Pair:
    """The authors' run and our record on the same draw."""

    run: Run
    record: Record

    def has(self, metric: str) -> bool:
        """Whether both have a score of that metric."""
        return self.record.metrics.get(metric) is not None and metric in self.run.metrics


@dataclass(frozen=True)
class WithAuthors:
    """Comparison of one method of one code by one metric, over all pairs with the same settings that have the
    metric, on all blocks or on one."""

    code: str
    method: str
    backbone: str
    metric: str
    place: Block | None = None
    """Block of the pairs; None for all blocks."""
    deviations: str = ""
    """Settings in which our cells deviate from their table, as `rounds=100`; empty if none."""
    pairs: list[Pair] = field(default_factory=list)

    @property
    def ours(self) -> list[float]:
        """Our score of every pair, in percent."""
        return [pair.record.metrics[self.metric] for pair in self.pairs]

    @property
    def theirs(self) -> list[float]:
        """The authors' score of every pair, in percent."""
        return [pair.run.metrics[self.metric] for pair in self.pairs]

    @property
    def differences(self) -> list[float]:
        """Ours − theirs of every pair, in points."""
        return [ours - theirs for ours, theirs in zip(self.ours, self.theirs, strict=True)]

    @property
    def samples(self) -> "list[WithAuthors]":
        """The comparison on each block with at least two draws; the whole one if none has as many."""
        by_place: dict[Block, list[Pair]] = {}
        for pair in self.pairs:
            run = pair.run
            by_place.setdefault((run.dataset, run.partition, run.clients), []).append(pair)
        return [replace(self, pairs=pairs) for pairs in by_place.values() if len(pairs) > 1] or [self]

    @property
    def means(self) -> tuple[float, float]:
        """Ours and theirs, in percent, over the samples."""
        samples = self.samples
        return fmean(fmean(each.ours) for each in samples), fmean(fmean(each.theirs) for each in samples)

    @property
    def verdict(self) -> Verdict:
        """Verdict on whether the mean difference is within ± TOLERANCE of 0, by Student's interval over the
        draws of one sample, or by the interval of the mean of several samples' means."""
        return judge_draws([sample.differences for sample in self.samples], TOLERANCE)

    @property
    def seconds_per_round(self) -> float:
        """Their seconds per round, mean over the pairs."""
        return fmean(pair.run.seconds_per_round for pair in self.pairs)

    @property
    def speed(self) -> float | None:
        """Ratio of their seconds per round to ours, mean over the pairs in which both runs had a core to
        themselves; None without such a pair."""
        ratios = [
            pair.run.seconds_per_round / pair.record.seconds_per_round
            for pair in self.pairs
            if min(pair.run.core_share, pair.record.result.core_share or 0.0) >= ALONE
        ]
        return fmean(ratios) if ratios else None


def on_same_clients(records: Sequence[Record], metric: str, runs: Runs) -> WithAuthors | None:
    """Compare the authors' code with these records, repetitions of one cell, on the same clients. Return None
    if it was not run on any of them or lacks the metric."""
    found = [Pair(runs[record.key][-1], record) for record in records if record.key in runs]
    pairs = [pair for pair in found if pair.has(metric)]
    if not pairs:
        return None
    run = pairs[0].run
    return WithAuthors(run.code, run.method, run.backbone, metric, pairs=pairs)


def compare(runs: Runs, boards: Iterable[Leaderboard]) -> list[WithAuthors]:
    """Compare every method and metric that both have on the same draws, over all blocks and on each one.

    Cells with a table's own settings come before deviating ones, all blocks together before single blocks.
    The latest run of each code counts.
    """
    tables = {run.protocol for found in runs.values() for run in found}
    rows = (row for board in boards if board.protocol.name in tables for row in board.rows)
    by_key = {record.key: (record, row.deviations) for row in rows for record in row.records}
    found_all: dict[tuple[object, ...], WithAuthors] = {}
    for key in filter(by_key.__contains__, runs):
        record, changed = by_key[key]
        for run in {run.code: run for run in runs[key]}.values():
            place = (run.dataset, run.partition, run.clients)
            pair = Pair(run, record)
            for metric, where in product(filter(pair.has, run.metrics), (None, place)):
                name = (run.code, run.method, run.backbone, metric, where, changed)
                found_all.setdefault(name, WithAuthors(*name)).pairs.append(pair)
    order = list(CODES)
    return sorted(
        found_all.values(), key=lambda each: (order.index(each.code), each.deviations, each.place is not None)
    )
