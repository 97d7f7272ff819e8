"""Comparison with the authors' code: ours − theirs, paired by draw."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from statistics import fmean

from fedsub.benchmark.analysis.agreement import Verdict, judge_draws
from fedsub.benchmark.analysis.codes import CODES
from fedsub.benchmark.analysis.public_records import Run
from fedsub.benchmark.analysis.scores import Leaderboard
from fedsub.benchmark.records.record import ALONE, Record

TOLERANCE = 1.0
"""Points that the 90 % interval of ours − theirs must lie within."""
Place = tuple[str, str, int]
"""Graph, partition, clients."""


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
    place: Place | None = None
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
        by_place: dict[Place, list[Pair]] = {}
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
