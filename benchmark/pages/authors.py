"""What the authors' own programs gave on this project's clients: `results/authors/*.jsonl`.

A line is a run: protocol, dataset, partition, clients, method and backbone as our table spells them, seed,
data_seed (negative: the seed draws the data too), metrics (name → score) and seconds_per_round. A line may
also name the figure as it is printed: paper in place of protocol, and one metric with its value.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmark.contrast import interval_of
from benchmark.jsonl import JsonLines
from benchmark.store import StoreError
from benchmark.typed import fits
from datasets.files import explained

NAME = ("dataset", "partition", "clients", "method", "backbone")
Name = tuple[str, ...]
"""Protocol or paper, what `NAME` lists, and the metric, as text."""


@dataclass(frozen=True)
class Runs:
    """The runs of one cell by the authors' code."""

    values: Mapping[tuple[int, int], float] = field(default_factory=dict)
    """Seed and seed of the data → score."""
    seconds: tuple[float, ...] = ()
    """A round, of each run that says so."""

    def to_dict(self, ours: Mapping[tuple[int, int], float]) -> dict[str, Any]:
        """JSON-ready: their mean, and how far `ours` is from it where both ran the same seeds."""
        paired = [ours[seeds] - value for seeds, value in self.values.items() if seeds in ours]
        return {
            "mean": statistics.fmean(self.values.values()),
            "std": statistics.stdev(self.values.values()) if len(self.values) > 1 else None,
            "seeds": len(self.values),
            "seconds_per_round": statistics.fmean(self.seconds) if self.seconds else None,
            "paired": len(paired),
            "difference": statistics.fmean(paired) if paired else None,
            "interval": [*interval_of(paired)] if len(paired) > 1 else None,
        }


def read_authors(results: Path) -> dict[Name, Runs]:
    """Cell and metric → runs; of several with the same seeds the last counts. Other lines are passed over."""
    found: dict[Name, Runs] = {}

    def take(line: dict[str, Any]) -> bool:
        scores: Any = line["metrics"] if "metrics" in line else {line.get("metric"): line.get("value")}
        texts = [line.get("protocol", line.get("paper")), *(line.get(part, "") for part in NAME)]
        seeds = [line.get("seed"), line.get("data_seed", -1)]
        seconds = line.get("seconds_per_round")
        known = isinstance(scores, dict) and all(isinstance(text, (str, int)) for text in (*texts, *scores))
        if not (known and fits([*scores.values()], list[float]) and fits(seeds, list[int])):
            return False
        if not fits(seconds, float | None):
            return False
        seed, drawn = (int(item) for item in seeds)
        for metric, value in scores.items():
            name: Name = (*map(str, texts), str(metric))
            runs = found.get(name, Runs())
            values = {**runs.values, (seed, seed if drawn < 0 else drawn): float(value)}
            found[name] = Runs(values, (*runs.seconds, *([] if seconds is None else [float(seconds)])))
        return True

    for path in sorted((results / "authors").glob("*.jsonl")):
        with explained("read", path, "repair that or choose another folder with --results", StoreError):
            JsonLines(path, take).refresh()
    return found
