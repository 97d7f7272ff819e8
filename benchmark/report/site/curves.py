"""What the plots of a protocol are drawn from: curves, costs and a map of method by graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsub.benchmark.analysis.metrics import heading_of, more_is_better
from fedsub.benchmark.analysis.scores import Row, blocks_of, metrics_of
from fedsub.benchmark.report.leaderboard import block_title
from fedsub.benchmark.report.site.prose import joined
from fedsub.benchmark.spec.protocol import Protocol

POINTS = 17
"""Of a curve, at most; all curves together are most of the page, which is to stay below 8 MB."""
DECIMALS = 2
"""Of a score in percent."""
SPENT = {"bytes": ("megabytes", 1e6), "seconds": ("seconds", 1.0)}
"""Curves of what was spent until each evaluation, which older records lack → name and unit on the page."""


class Rounds:
    """Lists of rounds, each kept once: most curves of a page share theirs."""

    def __init__(self) -> None:
        """None yet."""
        self.lists: list[list[int]] = []
        self._places: dict[tuple[int, ...], int] = {}

    def place(self, rounds: Sequence[int]) -> int:
        """Where the list stands in `lists`."""
        key = tuple(rounds)
        if key not in self._places:
            self._places[key] = len(self.lists)
            self.lists.append([*key])
        return self._places[key]


def plotted(protocol: Protocol, rows: Sequence[Row], rounds: Rounds) -> list[dict[str, Any]]:
    """A block's curves and costs, block after block, JSON-ready; blocks without any are left out."""
    found = []
    for block, listed in blocks_of(rows):
        metric = _main(protocol, listed)
        several = len({row.backbone for row in listed}) > 1
        lines = [_line(row, metric, several, rounds) for row in listed]
        found.append(
            {"title": block_title(block), "score": heading_of(metric) if metric else "", "rows": lines}
        )
    return found


def _main(protocol: Protocol, rows: Sequence[Row]) -> str:
    """The score that is plotted: the first that is a contest, else the first; empty where there is none."""
    held = metrics_of(protocol, rows)
    return next(filter(more_is_better, held), next(iter(held), ""))


def label_of(row: Row, several_backbones: bool) -> str:
    """A row's name in a plot."""
    return joined((row.method, row.backbone if several_backbones else "", row.deviations))


def _line(row: Row, metric: str, several: bool, rounds: Rounds) -> dict[str, Any]:
    score = row.scores.get(metric)
    sent = (row.mean("bytes", "up") + row.mean("bytes", "down")) / 1e6
    once = row.mean("bytes", "once") / 1e6
    return {
        "name": label_of(row, several),
        "rival": row.is_rival and more_is_better(metric),
        "value": None if score is None else round(score.mean, DECIMALS),
        # A start, so much a round, and both over the whole run.
        "megabytes": _brief([once, sent, once + sent * row.records[0].rounds]),
        "seconds": _brief([row.mean("seconds", "setup"), row.seconds_per_round, row.seconds]),
        **_curve(row, rounds),
    }


def _brief(values: Iterable[float]) -> list[float]:
    return [float(f"{value:.4g}") for value in values]


def _curve(row: Row, rounds: Rounds) -> dict[str, Any]:
    """The test curve averaged over seeds, thinned, with what was spent until each of its points where all its
    records say so; nothing where no record holds a curve."""
    curves = [record.curve for record in row.records if record.curve.get("test")]
    length = min((len(curve["test"]) for curve in curves), default=0)
    if not length:
        return {}
    kept = np.unique(np.linspace(0, length - 1, min(length, POINTS)).round().astype(int))
    test = np.array([curve["test"][:length] for curve in curves], dtype=float)[:, kept]
    spread = test.std(axis=0, ddof=1) if len(curves) > 1 else np.zeros(len(kept))
    shown = np.array(curves[0]["round"][:length])[kept]
    found: dict[str, Any] = {
        "rounds": rounds.place([int(number) for number in shown]),
        "mean": _rounded(test.mean(axis=0)),
        "spread": _rounded(spread),
    }
    if all({*SPENT} <= {*curve} for curve in curves):
        totals = {name: np.array([curve[name][:length] for curve in curves])[:, kept] for name in SPENT}
        found["spent"] = {
            SPENT[name][0]: _brief(total.mean(axis=0) / SPENT[name][1]) for name, total in totals.items()
        }
    return found


def _rounded(values: np.ndarray[Any, Any]) -> list[float | None]:
    return [round(float(value), DECIMALS) if np.isfinite(value) else None for value in values]


@dataclass(frozen=True)
class HeatMap:
    """The main score, method by block; `cells` hold the text and a share in [0, 1] of the block's span."""

    score: str
    columns: tuple[str, ...]
    lines: tuple[tuple[str, tuple[tuple[str, float | None], ...]], ...]


def heat_map(protocol: Protocol, rows: Sequence[Row]) -> HeatMap | None:
    """None where there are not several methods on several blocks to compare, or the score is no contest."""
    kept = [row for row in rows if not row.deviations]
    metric = _main(protocol, kept)
    kept = [row for row in kept if metric in row.scores]
    blocks = blocks_of(kept)
    several = len({row.backbone for row in kept}) > 1
    names = list(dict.fromkeys(label_of(row, several) for row in kept))
    if len(blocks) < 2 or len(names) < 2 or not more_is_better(metric):
        return None
    lines: dict[str, list[tuple[str, float | None]]] = {name: [] for name in names}
    for _, listed in blocks:
        means = {label_of(row, several): row.scores[metric].mean for row in listed}
        low, span = min(means.values()), max(means.values()) - min(means.values())
        for name, line in lines.items():
            if name in means:
                line.append((f"{means[name]:.1f}", round((means[name] - low) / span, 3) if span else 0.5))
            else:
                line.append(("–", None))
    return HeatMap(
        heading_of(metric),
        tuple(block_title(block) for block, _ in blocks),
        tuple((name, tuple(line)) for name, line in lines.items()),
    )
