"""Scores of named clients, and gains over Local by the share of edges between clients."""

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from fedsub.benchmark.analysis.paired import Comparison
from fedsub.benchmark.analysis.ranking import kendall
from fedsub.benchmark.analysis.scores import Row, clients_of
from fedsub.benchmark.analysis.standing import Contender, gains_of
from fedsub.benchmark.spec import catalog
from fedsub.benchmark.spec.cell import Block
from fedsub.datasets.options import Spec


def by_name(row: Row) -> dict[str, float]:
    """Return client → its test score in percent (`kept_score`), mean over its seeds; empty if the
    records name no clients."""
    found: dict[str, list[float]] = {}
    for record in row.records:
        names = record.extras.get("client_names", ())
        # Older records have names but no scores of clients.
        for name, score in zip(names, record.result.by_client.get("test", ()), strict=False):
            if score is not None:
                found.setdefault(name, []).append(score)
    return {name: statistics.fmean(scores) for name, scores in found.items()}


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
