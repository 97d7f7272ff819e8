"""Means by row and column, and which of them cannot be told from the best.

A block is a column (or a row, if columns are methods) of figures with the same other settings. In every block
the best mean is bold, and so is every mean that cannot be told from it. The best is below no other over the
seeds of both (`leading`). The others are compared with it by a paired one-sided t test over common seeds,
each with its own draw of the data; Holm (1979) corrects the block's p-values. As the same seeds choose the
best, one of several equal methods loses its bold more often than the test's level. Methods that break privacy
do not compete, as on the leaderboards.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas
from scipy.stats import ttest_rel

from fedsub.benchmark.analysis.agreement import LEAST
from fedsub.benchmark.analysis.frame import MAIN, OPTIONS, Results, averaged, axes, competes
from fedsub.benchmark.analysis.metrics import more_is_better
from fedsub.benchmark.analysis.paired import leading
from fedsub.benchmark.analysis.ranking import DIGITS
from fedsub.datasets.errors import unknown

LEVEL = 0.05
LESS_IS_BETTER = ("seconds", "bytes", "peak_memory")
"""Prefixes of figures for which less is better."""


@dataclass(frozen=True)
class Table:
    """Means by row and column."""

    figures: pandas.DataFrame
    """One row for each row and column of the table: their names, `mean`, `std`, `runs` (seeds), `rival`
    (whether it keeps privacy), `bold`, `rank` in its block, and `p_value` (`against_best`)."""
    levels: tuple[str, ...]
    """Columns of `figures` that name a row, the requested one first."""
    column: str
    """Column of `figures` that names a column."""
    sign: int
    """1 if more is better, -1 if less is, 0 without a contest."""
    against: str = ""
    """Row that is subtracted in the column `difference` of `figures`; empty for none."""

    @property
    def across(self) -> bool:
        """Whether the columns compete, rather than the rows."""
        return axes(self.levels[0], self.column)[0] == self.column

    def mean_ranks(self) -> list[float]:
        """Return the mean rank of every row of the table; NaN if no column has a figure for each row."""
        shared = [name for name in self.levels[1:] if not competes(name)]
        rows = self.figures[self.figures["rival"]]
        index = self.figures.groupby(list(self.levels), dropna=False, sort=False).size().index
        if rows.empty or self.across or not self.sign:
            return [np.nan] * len(index)
        size = rows.groupby([*shared, self.column], dropna=False)["rank"].transform("count")
        row = rows.groupby(list(self.levels), dropna=False).ngroup()
        kinds = [rows[name] for name in shared]
        wanted = row.groupby(kinds, dropna=False).transform("nunique") if kinds else row.nunique()
        ranks = rows[size == wanted].groupby(list(self.levels), dropna=False, sort=False)["rank"].mean()
        return [float(ranks.get(key, np.nan)) for key in index]


def make_table(
    results: Results, rows: str = "method", columns: str = "dataset", values: str = MAIN, against: str = ""
) -> Table:
    """Make a table of the means of every row and column, the best of each block marked; with `against` also
    the differences from that row at equal settings, NaN without one.

    Raises UserError for a column or row that records do not have, and if there is no result.
    """
    results = Results(results.successes)
    found, levels, frame = averaged(results, rows, columns, values)
    figures = found.reset_index()
    of_methods = "method" in (*levels, columns)
    keeps = frame["privacy"] == "" if of_methods else pandas.Series(True, index=frame.index)
    # By the position of a row in `figures`.
    place = frame.groupby([*levels, columns], sort=False, dropna=False).ngroup()
    figures["rival"] = keeps.groupby(place).all()
    by_seed = frame.groupby(["seed", place])[values].mean().unstack()
    figures["bold"], figures["rank"], figures["p_value"] = False, np.nan, np.nan
    shared = [axes(rows, columns)[1], *(name for name in levels[1:] if not competes(name))]
    sign = _sign(values)
    for _, members in figures[figures["rival"]].groupby(shared, dropna=False, sort=False):
        found = against_best(by_seed[members.index], sign)
        figures.loc[list(found), "p_value"] = list(found.values())
        figures.loc[[place for place, p in found.items() if p >= LEVEL], "bold"] = True
        if sign:
            figures.loc[members.index, "rank"] = (-sign * members["mean"]).round(DIGITS).rank()
    if against:
        base = figures[figures[rows].map(str) == against]
        if base.empty:
            raise unknown(f"{rows} in the table", against, set(figures[rows].map(str)))
        # The row may lack the options of other methods. Files and versions differ between any two methods.
        apart = ("files", "versions", *((OPTIONS,) if rows == "method" else ()))
        same = [columns, *(name for name in levels[1:] if not name.startswith(apart))]
        # Two rows with equal settings leave open which of them to subtract.
        means = base.drop_duplicates(same, keep=False).set_index(same)["mean"].rename("base")
        figures["difference"] = figures["mean"] - figures.join(means, on=same)["base"]
    return Table(figures, tuple(levels), columns, sign, against)


def against_best(values: pandas.DataFrame, sign: int) -> dict[Hashable, float]:
    """Return column of `values` (seeds by methods) → corrected p-value of the test that the best column is
    better; 1 for the best (`leading`), several if they are equal, NaN without LEAST common seeds. Empty if
    there is no best or `sign` is 0.

    `sign`: 1 if more is better, -1 if less is better, 0 if methods do not compete on the figure.
    """
    kept = leading({name: (sign * values[name]).dropna().to_dict() for name in values.columns})
    if not sign or not kept:
        return {}
    best = kept[0]
    others = [name for name in values.columns if name != best]
    pairs = {name: sign * values[[best, name]].dropna().to_numpy() for name in others}
    found = {name: 1.0 if name in kept else _p_value(pairs[name]) for name in others}
    return {best: 1.0, **holm(found)}


def holm(p_values: Mapping[Hashable, float]) -> dict[Hashable, float]:
    """Return the p-values corrected for their number, step down (Holm 1979). NaN means no test and stays
    NaN."""
    ordered = pandas.Series(p_values, dtype=float).dropna().sort_values(kind="stable")
    corrected = (ordered * np.arange(len(ordered), 0, -1)).clip(upper=1).cummax()
    return {**dict.fromkeys(p_values, float("nan")), **corrected.to_dict()}


def _sign(values: str) -> int:
    if values == MAIN or more_is_better(values):
        return 1
    return -1 if values.startswith(LESS_IS_BETTER) else 0


def _p_value(pairs: np.ndarray) -> float:
    """p-value of a paired t test, (seeds, 2), that the first column is greater; NaN below LEAST pairs."""
    if len(pairs) < LEAST:
        return float("nan")
    difference = pairs[:, 0] - pairs[:, 1]
    if np.ptp(difference) == 0:
        return float(difference[0] <= 0)
    return float(ttest_rel(pairs[:, 0], pairs[:, 1], alternative="greater").pvalue)
