"""Plots of records: curves, cost and ranks, as matplotlib axes that a caller may change and save."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsub.benchmark.analysis import ranking
from fedsub.benchmark.analysis.standing import megabytes_of
from fedsub.benchmark.analysis.trials import BLOCK
from fedsub.datasets.errors import UserError, check_choice

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

    from fedsub.benchmark.analysis.frame import Results

KINDS = ("curves", "cost", "ranks")
_METHOD = ["method", "backbone"]
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Palette of Okabe and Ito, safe for colour-blind readers; with the line styles it gives 28 lines."""
_STYLES = ("-", "--", ":", "-.")
NAMED = 6
"""Largest number of points that are named in a plot."""


def plot(results: Results, kind: str, axes: Axes | None = None) -> Axes:
    """Draw the results on `axes`, else on axes of a new figure, and return them.

    `curves`: test score over rounds, the mean over seeds ± one standard deviation. `cost`: score over the
    megabytes that a client sends and receives, with the Pareto front. `ranks`: each method's rank on every
    block (graph with its clients), and its mean rank; at least two methods with scores on most blocks.

    Raises UserError for another kind, if there is nothing to draw, and for too many curves to tell apart.
    """
    check_choice("plot", kind, KINDS)
    if axes is None:
        # Not through pyplot, which would keep the figure and choose a backend.
        from matplotlib.figure import Figure

        axes = Figure(figsize=(6.4, 4.2), layout="constrained").subplots()
    {"curves": _curves, "cost": _cost, "ranks": _ranks}[kind](results, axes)
    return axes


def _groups(frame: pandas.DataFrame) -> Iterator[tuple[str, pandas.DataFrame]]:
    """Yield each method on each block, named by the settings that differ among them."""
    names = [*_METHOD, *BLOCK]
    shown = [name for name in names if name == "method" or frame[name].nunique() > 1]
    for key, rows in frame.groupby(names, sort=False):
        place: dict[Hashable, Any] = dict(zip(names, key, strict=True))
        yield ", ".join(str(place[name]) for name in shown), rows


def _curves(results: Results, axes: Axes) -> None:
    curves = results.curves()
    if curves.empty:
        raise UserError("no curve to draw: no result has a curve")
    groups, most = [*_groups(curves)], len(_COLOURS) * len(_STYLES)
    if len(groups) > most:
        raise UserError(
            f"{len(groups)} curves cannot be told apart, at most {most}: choose a graph, a number of clients "
            "or methods, such as --dataset cora --clients 10"
        )
    for number, (name, rows) in enumerate(groups):
        colour = _COLOURS[number % len(_COLOURS)]
        style = _STYLES[number // len(_COLOURS) % len(_STYLES)]
        by_round = rows.groupby("round")["test"].agg(["mean", "std"]).fillna({"std": 0.0})
        axes.plot(by_round.index, by_round["mean"], style, color=colour, label=name)
        low, high = by_round["mean"] - by_round["std"], by_round["mean"] + by_round["std"]
        axes.fill_between(by_round.index, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set(xlabel="round", ylabel="test score, %")
    beside = {"loc": "upper left", "bbox_to_anchor": (1, 1), "fontsize": "x-small"}
    axes.legend(**beside if len(groups) > NAMED else {})


def _cost(results: Results, axes: Axes) -> None:
    frame = results.frame().assign(record=list(results))
    frame = frame[frame["status"] == "ok"].dropna(subset=["score"])
    if frame.empty:
        raise UserError("no result to draw: every run failed or none was selected")
    points = {
        name: (megabytes_of([*rows["record"]], int(rows["clients"].iloc[0])), float(rows["score"].mean()))
        for name, rows in _groups(frame)
    }
    best = ranking.front(points)
    axes.plot(*zip(*(points[name] for name in best), strict=True), drawstyle="steps-post", color="0.6")
    # Points of the front come first, then the best scores.
    named = sorted(points, key=lambda name: (name not in best, -points[name][1]))[:NAMED]
    for name, (spent, score) in points.items():
        axes.plot(spent, score, "o", color=_COLOURS[0] if name in best else "0.6")
        if name in named:
            axes.annotate(name, (spent, score), xytext=(4, 4), textcoords="offset points", fontsize="small")
    # Linear near 0, for methods that send nothing.
    least = min((spent for spent, _ in points.values() if spent > 0), default=1.0)
    axes.set_xscale("symlog", linthresh=least)
    axes.set(xlabel="MB per client, whole run", ylabel="score, %")


def _ranks(results: Results, axes: Axes) -> None:
    frame = results.frame()
    means = frame.dropna(subset=["score"]).groupby([*BLOCK, "method"], sort=False)["score"].mean().unstack()
    means = means.loc[:, means.notna().mean() > 0.5].dropna()
    if means.empty or means.shape[1] < 2:
        raise UserError("ranks need at least two methods with results on the same clients")
    ranks = means.round(ranking.DIGITS).rank(axis=1, ascending=False)
    order = ranks.mean().sort_values(ascending=False)
    for place, name in enumerate(order.index):
        axes.plot(ranks[name], np.full(len(ranks), place), "|", color=_COLOURS[0], markersize=10)
        axes.plot(order[name], place, "o", color=_COLOURS[1])
    axes.set_yticks(range(len(order)), [str(name) for name in order.index])
    axes.set(xlabel=f"rank by graph and clients ({len(ranks)}), and the mean; 1 is best")
