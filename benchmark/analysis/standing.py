"""Compare methods on one block (ranks with intervals, gains over Local, costs), and their gains over blocks.

A rank has an interval: a method ranks below every method that is surely better and above every one that is
surely worse. Surely means that the difference, paired by seed, holds at 5 % (`paired`). Each pair is judged
by itself, without correction for the number of pairs. Settings are those of the block's table, which tuned
some methods more than others; the arena ranks methods under equal tuning.
"""

import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from types import MappingProxyType

import numpy as np

from fedsub.benchmark.analysis.agreement import LEAST
from fedsub.benchmark.analysis.metrics import more_is_better
from fedsub.benchmark.analysis.paired import HIGHER, HOLDS, Comparison, compare, differences_of
from fedsub.benchmark.analysis.public_code import Runs, WithAuthors, on_same_clients
from fedsub.benchmark.analysis.ranking import kendall
from fedsub.benchmark.analysis.scores import Row, Score, blocks_of, clients_of, metrics_of, same_data
from fedsub.benchmark.records.record import ALONE, Record
from fedsub.benchmark.spec import catalog
from fedsub.benchmark.spec.catalog import LOCAL, OptionItems
from fedsub.benchmark.spec.cell import Block
from fedsub.benchmark.spec.protocol import Protocol
from fedsub.datasets.options import Spec
from fedsub.methods.stacked.architecture import NETWORKS

MEGABYTES = (10, 100, 1000)
"""Limits on the MB that a client sends and receives in a run; the reader chooses one."""


@dataclass(frozen=True)
class Contender:
    """A method in its block."""

    row: Row
    metric: str
    score: Score
    leaves: str
    """What leaves a client, by name and size on a small graph."""
    ranks: Mapping[str, tuple[int, int]]
    """Budget that the method keeps → best and worst rank that the seeds allow. Empty for a method that breaks
    privacy or exposes nodes: it has no rank."""
    beats: int
    """Number of ranked methods that are surely worse."""
    gain: Comparison | None
    """Gain over Local, paired by seed; None for Local itself and if Local was not run."""
    is_above_local: bool
    """Whether it is surely above Local over the seeds that all ranked methods have, but for methods with too
    few to decide."""
    megabytes: float
    """MB that a client sends and receives in a run, mean over clients and seeds."""
    seconds: float | None
    """Core-seconds per client in a run, mean over the runs with a core to themselves; None without any."""
    authors: WithAuthors | None
    """The authors' own code on the same clients."""

    @property
    def is_ranked(self) -> bool:
        """Whether it competes."""
        return bool(self.ranks)


def megabytes_of(records: Sequence[Record], clients: int) -> float:
    """Return the MB (10⁶ bytes) that a client sends and receives in a run, mean over clients and records."""
    sent = (
        (record.bytes.get("up", 0.0) + record.bytes.get("down", 0.0)) * record.rounds
        + record.bytes.get("once", 0.0)
        for record in records
    )
    return statistics.fmean(sent) / clients / 1e6


def standings(
    protocol: Protocol, rows: Sequence[Row], theirs: Runs = MappingProxyType({})
) -> dict[Block, list[Contender]]:
    """Return block → its methods, best mean first, methods without a rank last.

    A block is ranked by the score that selects its rounds, if the table names one (ROC-AUC for two unbalanced
    classes), else by the table's first score of which more is better; blocks without one are left out, and
    rows without it. Rows that deviate from the protocol are left out, unless all do.
    """
    contests = [metric for metric in metrics_of(protocol, rows) if more_is_better(metric)]
    found = {}
    # In a folder of trials every row may deviate: then all are shown.
    for block, listed in blocks_of([row for row in rows if not row.deviations] or rows):
        metric = next((each for each in (listed[0].cell.selects_by, *contests) if each in contests), "")
        if held := [row for row in listed if metric in row.scores]:
            found[block] = _ordered(held, metric, theirs)
    return found


def _ordered(rows: Sequence[Row], metric: str, theirs: Runs) -> list[Contender]:
    spent = [megabytes_of(row.records, row.cell.clients) for row in rows]
    ranked = np.array([not (row.privacy or row.exposed[1]) for row in rows])
    surely = np.zeros((len(rows), len(rows)), dtype=bool)
    kinds = [(row.method, row.backbone) for row in rows]
    rivals = [[row for row, kind in zip(rows, kinds, strict=True) if kind == own] for own in kinds]
    for one, other in permutations(np.flatnonzero(ranked).tolist(), 2):
        if not any(each is rows[other] for each in same_data(rows[one], rivals[other])):
            continue
        paired = _paired(rows[one], rows[other], metric)
        surely[one, other] = paired is not None and paired.word == HOLDS
    keeps = {
        "any": ranked,
        "models": ranked & [catalog.models_only(row.cell.method, _sending(row)) for row in rows],
    }
    keeps |= {f"mb-{limit}": ranked & (np.array(spent) <= limit) for limit in MEGABYTES}
    ranks: list[dict[str, tuple[int, int]]] = [{} for _ in rows]
    for budget, kept in keeps.items():
        best = 1 + surely[kept].sum(axis=0)
        worst = kept.sum() - surely[:, kept].sum(axis=1)
        for place in np.flatnonzero(kept).tolist():
            ranks[place][budget] = int(best[place]), int(worst[place])
    bases = [row for row in rows if row.method == LOCAL]
    seeds = [{*row.scores[metric].by_seed} for row, competes in zip(rows, ranked, strict=True) if competes]
    seeds = [each for each in seeds if len(each) >= LEAST] or [set()]
    shared = set.intersection(*seeds)
    found = []
    for row, megabytes, own, beats in zip(rows, spent, ranks, surely.sum(axis=1).tolist(), strict=True):
        fitting = same_data(row, [each for each in bases if each.backbone == row.backbone] or bases)
        alike = [each for each in fitting if each.deviations == row.deviations]
        local = next(iter(alike or fitting), None)
        gain, above = None, None
        if local is not None and row.method != LOCAL:
            gain, above = _paired(row, local, metric), _paired(row, local, metric, shared)
        alone = [each for each in row.records if (each.result.core_share or 0.0) >= ALONE]
        whole = [sum(each.seconds.values()) for each in alone]
        seconds = statistics.fmean(whole) / row.cell.clients if whole else None
        authors = on_same_clients(row.records, metric, theirs)
        score = row.scores[metric]
        leaves = catalog.leaves(row.cell.method, _sending(row))
        surely_above = above is not None and above.word == HOLDS
        found.append(
            Contender(row, metric, score, leaves, own, beats, gain, surely_above, megabytes, seconds, authors)
        )
    return sorted(found, key=lambda each: (not each.is_ranked, -each.score.mean))


def _sending(row: Row) -> OptionItems:
    """What the messages of a row's clients depend on: the method's options and the backbone."""
    return (*row.cell.options, ("backbone", row.cell.architecture.backbone))


def _paired(one: Row, other: Row, metric: str, seeds: Collection[int] | None = None) -> Comparison | None:
    found = differences_of(one.scores[metric].by_seed, other.scores[metric].by_seed)
    return compare([found[seed] for seed in found if seeds is None or seed in seeds], HIGHER)


def by_method(listed: Iterable[Contender]) -> dict[str, Contender]:
    """Method → its row of a block; of several backbones the first of `NETWORKS` counts, not the best."""
    found: dict[str, Contender] = {}
    order = {name: place for place, name in enumerate(NETWORKS)}
    for each in sorted(listed, key=lambda each: order.get(each.row.backbone, len(order))):
        found.setdefault(each.row.method, each)
    return found


def above_local(blocks: Iterable[Sequence[Contender]]) -> dict[str, tuple[int, int]]:
    """Ranked method → number of blocks on which it is surely above Local (`Contender.is_above_local`), and
    number on which both were run. Methods on the most blocks come first, then those above on the most."""
    found: dict[str, tuple[int, int]] = {}
    for listed in blocks:
        for name, each in by_method(each for each in listed if each.is_ranked and each.gain).items():
            above, of = found.get(name, (0, 0))
            found[name] = (above + each.is_above_local, of + 1)
    return dict(sorted(found.items(), key=lambda item: (-item[1][1], -item[1][0], item[0])))


def gains_of(blocks: Sequence[Sequence[Contender]]) -> dict[str, list[Comparison | None]]:
    """Method → its gain over Local in each block, None if it was not run. Methods that lack the fewest blocks
    come first, then the best mean."""
    found: dict[str, list[Comparison | None]] = {}
    for place, listed in enumerate(blocks):
        for name, each in by_method(each for each in listed if each.gain).items():
            found.setdefault(name, [None] * len(blocks))[place] = each.gain

    def rank(method: str) -> tuple[int, float]:
        known = [cell.difference for cell in found[method] if cell is not None]
        return len(blocks) - len(known), -statistics.fmean(known)

    return {method: found[method] for method in sorted(found, key=rank)}


@dataclass(frozen=True)
class AlongEdges:
    """Gains over Local on blocks with different shares of edges between clients."""

    shares: Mapping[Block, float]
    """Shown block → share of the graph's edges that no client holds, smallest first."""
    gains: Mapping[str, Sequence[Comparison | None]]
    """Method → its gain on each of these, None if it was not run; the largest tau first."""
    taus: Mapping[str, tuple[float | None, int]]
    """Method → Kendall's tau-b of share and gain over all blocks with both, and their number; None with fewer
    than three blocks or without variation."""


def along_edges(blocks: Mapping[Block, Sequence[Contender]], shown: Collection[Block]) -> AlongEdges:
    """Order the gains of the methods that exchange more than models by the share of edges between clients.
    Blocks whose records lack the share are left out."""
    known = clients_of(each.row for listed in blocks.values() for each in listed)
    shares = {block: 1 - found["intra_share"] for block, found in known.items() if "intra_share" in found}
    shares = dict(sorted(shares.items(), key=lambda item: item[1]))
    places = [place for place, block in enumerate(shares) if block in shown]
    gains = {
        method: found
        for method, found in gains_of([blocks[block] for block in shares]).items()
        if (spec := Spec(method)).name in catalog.methods()
        and not catalog.models_only(spec.name, spec.options.items())
        and any(found[place] for place in places)
    }
    taus = {method: _tau([*shares.values()], found) for method, found in gains.items()}
    order = sorted(gains, key=lambda method: math.inf if (tau := taus[method][0]) is None else -tau)
    columns = {block: share for block, share in shares.items() if block in shown}
    return AlongEdges(columns, {method: [gains[method][place] for place in places] for method in order}, taus)


def _tau(shares: Sequence[float], gains: Sequence[Comparison | None]) -> tuple[float | None, int]:
    pairs = [(share, gain.difference) for share, gain in zip(shares, gains, strict=True) if gain is not None]
    tau = kendall(pairs)
    return None if math.isnan(tau) else tau, len(pairs)
