"""The public code of papers on our clients: which there are (codes.toml), their runs on disk
(`results/authors/NAME.jsonl`, one line a run), and ours − theirs, paired by draw.
"""

from __future__ import annotations

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
    """Its address on GitHub."""
    entry: str
    """A file that every checkout has."""
    methods: tuple[str, ...]
    """As the tables spell them."""
    datasets: tuple[str, ...]
    tables: dict[str, tuple[int, ...]]
    """Each with the numbers of clients that are run, all that it lists if empty."""
    lacks: str = ""
    """Parts of its paper's tables that it cannot run here, and why."""

    def __hash__(self) -> int:
        return hash(self.name)


class _File(msgspec.Struct, forbid_unknown_fields=True):
    code: tuple[PublicCode, ...]


CODES = {code.name: code for code in read_as(Path(__file__).with_name("codes.toml"), _File).code}
"""By name."""


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


class AuthorsRuns(Latest[Run]):
    """The runs of one public code; of several of one cell and commit the latest counts."""

    def __init__(self, results: Path, code: str) -> None:
        super().__init__(results / "authors" / f"{code}.jsonl", Run, attrgetter("key", "commit"))

    def done(self, key: str, commit: str) -> bool:
        """Whether our cell has been run by that commit of theirs."""
        return any((run.key, run.commit) == (key, commit) for run in self.values())

    def add(self, run: Run) -> None:
        """Append a run. Raises UserError for no result, StoreError if it cannot be written."""
        self.append(run.to_json())


def load(results: Path) -> dict[str, list[Run]]:
    """Key of our cell → the runs of the authors' code on its clients, the latest last; empty without records.

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
    """One draw run by both."""

    run: Run
    record: Record

    def has(self, metric: str) -> bool:
        """Whether both have a score of that metric."""
        return self.record.metrics.get(metric) is not None and metric in self.run.metrics


@dataclass(frozen=True)
class Comparison:
    """A method of one code by one metric: every pair of the same settings that has it, over all places or at
    one."""

    code: str
    method: str
    backbone: str
    metric: str
    place: Block | None = None
    """None: over all."""
    deviations: str = ""
    """Where our cells deviate from their table, as `rounds=100`; empty if they do not."""
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
    def samples(self) -> list[list[Pair]]:
        """The pairs of each place that has two draws or more; all as one sample where there are not two such
        places."""
        by_place: dict[Block, list[Pair]] = {}
        for pair in self.pairs:
            run = pair.run
            by_place.setdefault((run.dataset, run.partition, run.clients), []).append(pair)
        several = [pairs for pairs in by_place.values() if len(pairs) > 1]
        return several if len(several) > 1 else [self.pairs]

    @property
    def means(self) -> tuple[float, float]:
        """Ours and theirs, in percent, over the samples."""
        samples = [replace(self, pairs=pairs) for pairs in self.samples]
        return fmean(fmean(each.ours) for each in samples), fmean(fmean(each.theirs) for each in samples)

    @property
    def verdict(self) -> Verdict:
        """Whether the mean difference is 0 to within ± TOLERANCE: of one sample by Student's interval over
        its draws, of several by that of the mean of their means."""
        return judge_draws([replace(self, pairs=pairs).differences for pairs in self.samples], TOLERANCE)

    @property
    def seconds_per_round(self) -> float:
        """Theirs, the mean over the pairs."""
        return fmean(pair.run.seconds_per_round for pair in self.pairs)

    @property
    def speed(self) -> float | None:
        """Their seconds per round over ours, the mean over the pairs in which both had a core of their own;
        None if there is none such."""
        ratios = [
            pair.run.seconds_per_round / pair.record.seconds_per_round
            for pair in self.pairs
            if min(pair.run.core_share, pair.record.result.core_share or 0.0) >= ALONE
        ]
        return fmean(ratios) if ratios else None


def on_same_clients(
    records: Sequence[Record], metric: str, runs: Mapping[str, Sequence[Run]]
) -> Comparison | None:
    """The runs of the authors' code on the clients of these records, repetitions of one cell; None where it
    was not run on any, or does not give the metric. `runs` is by the key of our cell, of a code the latest
    last."""
    each = [(runs.get(record.key), record) for record in records]
    found = [Pair(same[-1], record) for same, record in each if same]
    pairs = [pair for pair in found if pair.has(metric)]
    if not pairs:
        return None
    run = pairs[0].run
    return Comparison(run.code, run.method, run.backbone, metric, pairs=pairs)


def compare(runs: Mapping[str, Sequence[Run]], boards: Iterable[Leaderboard]) -> list[Comparison]:
    """Every method and metric that both have on the same draws: over all places, then at each; what was run
    with a table's own settings before what deviates from them.

    `runs` are by the key of our cell; of its runs, the latest last, the latest of each code counts.
    """
    tables = {run.protocol for found in runs.values() for run in found}
    rows = (row for board in boards if board.protocol.name in tables for row in board.rows)
    by_key = {record.key: (record, row.deviations) for row in rows for record in row.records}
    found_all: dict[tuple[object, ...], Comparison] = {}
    for key in filter(by_key.__contains__, runs):
        record, changed = by_key[key]
        for run in {run.code: run for run in runs[key]}.values():
            place = (run.dataset, run.partition, run.clients)
            pair = Pair(run, record)
            for metric, where in product(filter(pair.has, run.metrics), (None, place)):
                name = (run.code, run.method, run.backbone, metric, where, changed)
                found_all.setdefault(name, Comparison(*name)).pairs.append(pair)
    order = list(CODES)
    return sorted(
        found_all.values(), key=lambda each: (order.index(each.code), each.deviations, each.place is not None)
    )
