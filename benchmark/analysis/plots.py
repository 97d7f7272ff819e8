"""Plots of records: curves, cost and ranks, as matplotlib axes that a caller may change and save."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
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
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Palette of Okabe and Ito, safe for colour-blind readers; with the line styles it gives 28 lines."""
_STYLES = ("-", "--", ":", "-.")
NAMED = 6
"""Largest number of points that are named in a plot."""


def plot(
    results: Results, kind: str, axes: Axes | None, frame: pandas.DataFrame, blocks: list[str], own: list[str]
) -> Axes:
    """Draw the results on `axes`, else on axes of a new figure, and return them. `frame` holds those that
    succeeded; its columns `blocks` and `own` (of methods) tell runs apart, besides the seed.

    `curves`: test score over rounds, the mean over seeds ± one standard deviation. `cost`: score over the
    megabytes that a client sends and receives, with the Pareto front. `ranks`: each method's rank on every
    block (graph with its clients), and its mean rank; at least two methods with scores on most blocks.
    Different settings are never averaged. Methods that break privacy have no rank and no place on the front.

    Raises UserError for another kind, if there is nothing to draw, and for too many curves to tell apart.
    """
    check_choice("plot", kind, KINDS)
    if axes is None:
        # Not through pyplot, which would keep the figure and choose a backend.
        from matplotlib.figure import Figure

        axes = Figure(figsize=(6.4, 4.2), layout="constrained").subplots()
    if kind == "ranks":
        _ranks(frame, blocks, own, axes)
    else:
        {"curves": _curves, "cost": _cost}[kind](results, frame, [*own, *blocks], axes)
    return axes


def _name(values: Mapping[str, Any]) -> str:
    """Return the name of a method on a block: settings of its own with theirs, without empty ones."""
    bare = ("method", "backbone", *BLOCK)
    parts = (
        str(value) if name in bare else f"{name}={value}" for name, value in values.items() if value != ""
    )
    return ", ".join(parts)


def _groups(frame: pandas.DataFrame, names: Sequence[str]) -> Iterator[tuple[str, pandas.DataFrame]]:
    """Yield each method on each block, named by the settings that differ among them."""
    shown = [name for name in names if name == "method" or frame[name].nunique(dropna=False) > 1]
    for key, rows in frame.groupby([*names], sort=False, dropna=False):
        place = dict(zip(names, key, strict=True))
        yield _name({name: place[name] for name in shown}), rows


def _curves(results: Results, frame: pandas.DataFrame, names: Sequence[str], axes: Axes) -> None:
    curves = results.curves()
    if curves.empty:
        raise UserError("no curve to draw: no result has a curve")
    curves = curves[["key", "round", "test"]].join(frame.set_index("key")[[*names]], on="key")
    groups, most = [*_groups(curves, names)], len(_COLOURS) * len(_STYLES)
    if len(groups) > most:
        raise UserError(
            f"{len(groups)} curves cannot be told apart, at most {most}: choose a graph, a number of clients "
            "or methods, such as --dataset cora --clients 10"
        )
    for (name, rows), (style, colour) in zip(groups, product(_STYLES, _COLOURS), strict=False):
        by_round = rows.groupby("round")["test"].agg(["mean", "std"]).fillna({"std": 0.0})
        axes.plot(by_round.index, by_round["mean"], style, color=colour, label=name)
        low, high = by_round["mean"] - by_round["std"], by_round["mean"] + by_round["std"]
        axes.fill_between(by_round.index, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set(xlabel="round", ylabel="test score, %")
    beside = {"loc": "upper left", "bbox_to_anchor": (1, 1), "fontsize": "x-small"}
    axes.legend(**beside if len(groups) > NAMED else {})


def _cost(results: Results, frame: pandas.DataFrame, names: Sequence[str], axes: Axes) -> None:
    frame = frame.assign(record=results.successes).dropna(subset=["score"])
    if frame.empty:
        raise UserError("no result to draw: no run has a score")
    groups = dict(_groups(frame, names))
    points = {
        name: (megabytes_of([*rows["record"]], int(rows["clients"].iloc[0])), float(rows["score"].mean()))
        for name, rows in groups.items()
    }
    best = ranking.front({name: points[name] for name, rows in groups.items() if not any(rows["privacy"])})
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


def _ranks(frame: pandas.DataFrame, blocks: list[str], own: list[str], axes: Axes) -> None:
    frame = frame[frame["privacy"] == ""].dropna(subset=["score"])
    counts = frame.groupby([*blocks, "method"], dropna=False)[own].nunique(dropna=False).max()
    own = [name for name in own if name == "method" or counts[name] > 1]
    frame["name"] = [_name(dict(zip(own, values, strict=True))) for values in frame[own].to_numpy()]
    means = frame.groupby([*blocks, "name"], sort=False, dropna=False)["score"].mean().unstack()
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
