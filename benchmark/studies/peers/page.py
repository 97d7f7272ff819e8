"""`results/performance.md`: speed by method and machine, made of `results/performance/peers.jsonl`."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median, stdev

from scipy import stats

from fedsub.benchmark.report.tables import markdown_table
from fedsub.benchmark.report.writing import write_page as write
from fedsub.benchmark.studies.measurements import Measurements, Phase, Timing
from fedsub.benchmark.studies.peers.grid import PAIRINGS
from fedsub.methods.core import registry

FEW = 4
"""Number of values below which the minimum is shown instead of an interval."""
HOW = (
    "Times as fast as openfgl-lib: seconds of its round over ours, timed in alternating blocks on the same "
    "clients, one thread each. Geometric mean over graphs and numbers of clients, its 95 % interval "
    "(Student's t of the logarithms), and the least. Every timing: `results/performance/peers.jsonl`. What "
    "is compared with what: [docs/performance.md](../docs/performance.md). `python -m benchmark study peers` "
    "measures what this machine lacks."
)


def write_page(results: Path) -> Path:
    """Write the page from the records in the results folder; returns its path."""
    # Timings beside another suite than openfgl-lib begin their keys with its name.
    found = [
        each
        for each in Measurements(results, "peers").records()
        if each.key.partition(" ")[0] == each.method in PAIRINGS
    ]
    machines = list(dict.fromkeys(str(each.made) for each in found))
    speeds: dict[tuple[str, str], list[float]] = defaultdict(list)
    for each in found:
        if pairs := ratios(each):
            speeds[each.method, str(each.made)].append(median(pairs))
            speeds["", str(each.made)].append(median(pairs))
    names = {"": "all methods", **{name: registry.describe(name).title for name in PAIRINGS}}
    rows = [
        [title, *(_speed(speeds[name, machine]) for machine in machines)] for name, title in names.items()
    ]
    parts = ["# Performance", HOW, markdown_table(["method", *machines], rows)]
    path = results / "performance.md"
    write(path, ("\n\n".join(parts) + "\n").encode())
    return path


def ratios(record: Timing) -> list[float]:
    """The peer's seconds over ours in every pair of blocks; empty if there is none."""
    timed = record.phases.get("round", Phase())
    return [peer / ours for ours, peer in zip(timed.ours, timed.peer, strict=False)]


def geometric_mean(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean between the ends of its 95 % interval."""
    logs = [math.log(value) for value in values]
    mean, half = fmean(logs), 0.0
    if len(logs) > 1:
        half = float(stats.t.ppf(0.975, len(logs) - 1)) * stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean - half), math.exp(mean), math.exp(mean + half)


def _speed(values: Sequence[float]) -> str:
    if len(values) < FEW:
        return f"least {min(values):.1f}×" if values else ""
    low, mean, high = geometric_mean(values)
    return f"{mean:.1f}× ({low:.1f}–{high:.1f}), least {min(values):.1f}×"
