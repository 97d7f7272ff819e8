"""What the authors' own programs gave on this project's clients, beside the figures that they answer."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmark.authors.records import load
from benchmark.contrast import interval_of

Name = tuple[str, ...]
"""Protocol, dataset, partition, clients, method, backbone and metric, as text."""


@dataclass(frozen=True)
class Runs:
    """The runs of one cell by the authors' code."""

    values: Mapping[tuple[int, int], float] = field(default_factory=dict)
    """Seed and seed of the data → score."""
    seconds: tuple[float, ...] = ()
    """A round, of each run."""

    def to_dict(self, ours: Mapping[tuple[int, int], float]) -> dict[str, Any]:
        """JSON-ready: their mean, and how far `ours` is from it where both ran the same seeds."""
        paired = [ours[seeds] - value for seeds, value in self.values.items() if seeds in ours]
        return {
            "mean": statistics.fmean(self.values.values()),
            "std": statistics.stdev(self.values.values()) if len(self.values) > 1 else None,
            "seeds": len(self.values),
            "seconds_per_round": statistics.fmean(self.seconds),
            "paired": len(paired),
            "difference": statistics.fmean(paired) if paired else None,
            "interval": [*interval_of(paired)] if len(paired) > 1 else None,
        }


def read_authors(results: Path) -> dict[Name, Runs]:
    """Cell and metric → runs; of several of one cell the latest counts. Raises StoreError as `load` does."""
    found: dict[Name, Runs] = {}
    for run in (runs[-1] for runs in load(results).values()):
        cell = (run.protocol, run.dataset, run.partition, str(run.clients), run.method, run.backbone)
        seeds = (run.seed, run.seed if run.data_seed < 0 else run.data_seed)
        for metric, value in run.metrics.items():
            before = found.get((*cell, metric), Runs())
            found[(*cell, metric)] = Runs(
                {**before.values, seeds: value}, (*before.seconds, run.seconds_per_round)
            )
    return found
