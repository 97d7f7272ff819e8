"""What the authors' own programs gave on this project's clients: `results/authors/*.jsonl`.

A line is an object with paper, dataset, partition, clients, method, backbone and metric (as the paper prints
them or as its protocol spells them), seed, data_seed (negative: the seed draws the data too), value, and
seconds_per_round.
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

NAME = ("paper", "dataset", "partition", "clients", "method", "backbone", "metric")
_NUMBERS: Mapping[str, Any] = {
    "seed": int,
    "data_seed": int,
    "value": float,
    "seconds_per_round": float | None,
}
Name = tuple[str, ...]
"""What `NAME` lists, as text."""


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
        numbers = {"seconds_per_round": None, "data_seed": -1, **line}
        if not all(fits(line.get(part, ""), str | int) for part in NAME):
            return False
        if not all(name in numbers and fits(numbers[name], hint) for name, hint in _NUMBERS.items()):
            return False
        name = tuple(str(line.get(part, "")) for part in NAME)
        known, seed, drawn = found.get(name, Runs()), numbers["seed"], numbers["data_seed"]
        seconds = () if numbers["seconds_per_round"] is None else (float(numbers["seconds_per_round"]),)
        values = {**known.values, (seed, seed if drawn < 0 else drawn): float(numbers["value"])}
        found[name] = Runs(values, (*known.seconds, *seconds))
        return True

    for path in sorted((results / "authors").glob("*.jsonl")):
        with explained("read", path, "repair that or choose another folder with --results", StoreError):
            JsonLines(path, take).refresh()
    return found
