"""Export of a table from records: LaTeX, Markdown, CSV or Parquet.

A block is a column (or a row, if columns are methods) of figures with the same other settings. In every block
the best mean is bold, and so is every mean that cannot be told from it. They are compared by a paired
one-sided t test over common seeds, each with its own draw of clients and split; Holm (1979) corrects the
block's p-values. Methods that break privacy do not compete, as on the leaderboards.
"""

from __future__ import annotations

import io
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pandas
from scipy.stats import ttest_rel

from fedsub.benchmark.analysis.agreement import LEAST
from fedsub.benchmark.analysis.frame import MAIN, Results, across, averaged, axes, competes, select
from fedsub.benchmark.analysis.metrics import more_is_better
from fedsub.benchmark.analysis.plots import KINDS
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.report.wording import markdown_table, title_of
from fedsub.benchmark.spec.plan import outdated_parts
from fedsub.benchmark.spec.protocol import bare
from fedsub.benchmark.spec.request import Request
from fedsub.datasets.errors import UserError, unknown
from fedsub.datasets.files import explained, write_atomically

ENDINGS = (".tex", ".md", ".csv", ".parquet")
READ = (".tex", ".md")
"""Endings of formats for readers, in which methods have their papers' names."""
DRAWN = (".pdf", ".svg", ".png")
"""Endings of plots; the file's name says which plot, as `curves.pdf`."""
LEVEL = 0.05
MARK = " †"
LESS_IS_BETTER = ("seconds", "bytes", "peak_memory")
"""Prefixes of figures for which less is better."""
RANK = "mean rank"
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""First characters of a cell that a spreadsheet runs as a formula."""


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
    values: str
    """Name of the figure."""
    against: str = ""
    """Row that is subtracted in the column `difference` of `figures`; empty for none."""

    @property
    def note(self) -> str:
        """Number of seeds, and the rule for bold figures."""
        runs = self.figures["runs"]
        least, most = int(runs.min()), int(runs.max())
        seeds = f"{most} seed{'s' * (most != 1)}" if least == most else f"{least} to {most} seeds"
        said = [f"Mean and standard deviation over {seeds}."]
        if _sign(self.values):
            said.append(
                f"Bold: the {'highest' if _sign(self.values) > 0 else 'lowest'} mean of a "
                f"{'row' if self.across else 'column'} among equal settings{self._further}, and every "
                "mean that does not differ significantly. The test is a paired one-sided t test over common "
                f"seeds, each with its own draw of clients and split (level {LEVEL:g}, Holm's correction). "
                f"Few seeds separate few methods; with fewer than {LEAST} nothing is bold."
            )
        if self.ranked:
            said.append("Mean rank: over the columns with a figure in every row of equal settings.")
        if not self.figures["rival"].all():
            said.append("†: breaks privacy, and is not compared.")
        return " ".join(said)

    @property
    def _further(self) -> str:
        several = self.across and any(map(competes, self.levels[1:]))
        return " (also in rows that differ only in settings of a method)" if several else ""

    @property
    def across(self) -> bool:
        """Whether the columns compete, rather than the rows."""
        return axes(self.levels[0], self.column)[0] == self.column

    @property
    def ranked(self) -> bool:
        """Whether rows have a mean rank: at least one column has a figure for each row."""
        return bool(np.isfinite(self.mean_ranks(self._index())).any())

    def _index(self) -> pandas.Index:
        rows = self.figures[list(self.levels)].drop_duplicates()
        return pandas.MultiIndex.from_frame(rows) if len(self.levels) > 1 else pandas.Index(rows.iloc[:, 0])

    def shown(self, bold: str, plain: str) -> pandas.DataFrame:
        """Return the table as text; `bold` and `plain` are the format strings of a `mean` and `std`."""
        rows = self.figures
        text = [
            _cell(mean, std, bold if winner else plain)
            for mean, std, winner in zip(rows["mean"], rows["std"], rows["bold"], strict=True)
        ]
        names = [*self.levels, self.column]
        index = [rows[name].map(_rounded) for name in names]
        if not rows["rival"].all():
            place = names.index("method")
            index[place] = index[place].where(rows["rival"], index[place] + MARK)
        table = across(pandas.Series(text, index=pandas.MultiIndex.from_arrays(index)))
        if self.ranked:
            table[RANK] = [_number(found) for found in self.mean_ranks(self._index())]
        if self.against:
            means = rows.groupby(list(self.levels), sort=False, dropna=False)["difference"].mean()
            table[f"above {self.against}"] = [_number(value, "+.2f") for value in means]
        return table.fillna("").rename_axis(columns=None)

    def mean_ranks(self, index: pandas.Index) -> list[float]:
        """Return the mean rank of every row of the table; NaN if no column has a figure for each row."""
        shared = [name for name in self.levels[1:] if not competes(name)]
        rows = self.figures[self.figures["rival"]]
        if rows.empty or self.across or not _sign(self.values):
            return [np.nan] * len(index)
        size = rows.groupby([*shared, self.column], dropna=False)["rank"].transform("count")
        row = rows[list(self.levels)].astype(str).agg("|".join, axis=1)
        kinds = [rows[name] for name in shared]
        wanted = row.groupby(kinds, dropna=False).transform("nunique") if kinds else row.nunique()
        ranks = rows[size == wanted].groupby(list(self.levels), dropna=False, sort=False)["rank"].mean()
        return [float(ranks.get(key, np.nan)) for key in index]


def make_table(
    results: Results,
    rows: str = "method",
    columns: str = "dataset",
    values: str = MAIN,
    against: str = "",
) -> Table:
    """Make a table of the means of every row and column, the best of each block marked; with `against` also
    the differences from that row.

    Raises UserError for a column or row that records do not have, and if there is no result.
    """
    results = Results(results.successes)
    if not results.records:
        raise UserError("there is no result to export: give a results folder and tables that have records")
    found, levels, frame = averaged(results, rows, columns, values)
    figures = found.reset_index()
    of_methods = "method" in (rows, columns)
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
            figures.loc[members.index, "rank"] = (-sign * members["mean"]).rank()
    figures["bold"] &= figures["runs"] >= LEAST
    if against:
        base = figures[figures[rows] == against]
        if base.empty:
            raise unknown(f"{rows} in the table", against, set(figures[rows].map(str)))
        same = [name for name in (columns, *levels[1:]) if not competes(name) or name == columns]
        means = base.groupby(same, dropna=False)["mean"].mean().rename("base")
        figures["difference"] = figures["mean"] - figures.join(means, on=same)["base"]
    return Table(figures, tuple(levels), columns, values, against)


def against_best(values: pandas.DataFrame, sign: int) -> dict[Hashable, float]:
    """Return column of `values` (seeds by methods) → corrected p-value of the test that the column with the
    best mean is better; 1 for that column itself, NaN without two common seeds. Empty if `sign` is 0.

    `sign`: 1 if more is better, -1 if less is better, 0 if methods do not compete on the figure.
    """
    means = sign * values.mean()
    if not sign or means.isna().all():
        return {}
    best = means.idxmax()
    others = [name for name in values.columns if name != best]
    found = {name: _p_value(sign * values[[best, name]].dropna().to_numpy()) for name in others}
    return {best: 1.0, **holm(found)}


def holm(p_values: Mapping[Hashable, float]) -> dict[Hashable, float]:
    """Return the p-values corrected for their number, step down (Holm 1979). NaN means no test and stays
    NaN."""
    ordered = pandas.Series(p_values, dtype=float).dropna().sort_values(kind="stable")
    corrected = (ordered * np.arange(len(ordered), 0, -1)).clip(upper=1).cummax()
    return {**dict.fromkeys(p_values, float("nan")), **corrected.to_dict()}


def export(
    results: Results,
    path: str | Path,
    rows: str = "method",
    columns: str = "dataset",
    values: str = MAIN,
    titles: Mapping[str, str] = MappingProxyType({}),
    against: str = "",
) -> Path:
    """Write the table to `path`, in the format that its ending names; returns the path.

    A file called `curves`, `cost` or `ranks` that ends in .pdf, .svg or .png is that plot of the results
    (`Results.plot`); the further arguments do not apply to it.

    `.tex` needs the package booktabs; `.csv` and `.parquet` have a line for each row and column. `titles`
    replaces names of rows and columns; in `.tex` and `.md` a method has its paper's name by default. With
    `against` a further column shows by how much each row is above that one, on average.

    Raises UserError as `make_table`, for another ending, for a title of a name that the table lacks, and if
    the file cannot be written.
    """
    path = Path(path)
    if path.suffix in DRAWN:
        return _draw(results, path)
    if path.suffix not in ENDINGS:
        known = ", ".join((*ENDINGS, *DRAWN))
        raise UserError(f"cannot export to {path}: the file's name must end in {known}")
    table = _titled(make_table(results, rows, columns, values, against), titles, path.suffix in READ)
    with explained("write", path):
        write_atomically(path, _WRITERS[path.suffix](table))
    return path


def _draw(results: Results, path: Path) -> Path:
    """Write the plot that the file's name says. Raises UserError for another name."""
    if path.stem not in KINDS:
        raise UserError(
            f"cannot draw {path}: its name must be {' or '.join(f'{kind}{path.suffix}' for kind in KINDS)}"
        )
    content = io.BytesIO()
    figure = results.plot(path.stem).get_figure(root=True)
    assert figure is not None
    figure.savefig(content, format=path.suffix[1:])
    with explained("write", path):
        write_atomically(path, content.getvalue())
    return path


def _titled(table: Table, titles: Mapping[str, str], for_paper: bool) -> Table:
    axes = [*table.levels, table.column]
    present = {str(value) for axis in axes for value in table.figures[axis]}
    for name in titles:
        if name not in present:
            raise unknown("row or column of the table", name, present)
    found = dict(titles)
    if for_paper and "method" in axes:
        found = {name: title_of(name) for name in table.figures["method"].unique()} | found
    figures = table.figures.replace(dict.fromkeys(axes, found))
    return replace(table, figures=figures, against=found.get(table.against, table.against))


def _latex(table: Table) -> bytes:
    shown = table.shown(r"$\mathbf{{{mean} \pm {std}}}$", r"${mean} \pm {std}$")
    levels = [each.replace("_", " ") for each in table.levels]
    shown.index = shown.index.set_names(levels)
    style = shown.reset_index().style.hide(axis="index").format_index(escape="latex", axis=1)
    style = style.format(escape="latex", subset=levels)
    tabular = style.to_latex(hrules=True, column_format="l" * len(levels) + "r" * shown.shape[1])
    note = table.note.replace("%", r"\%").replace("_", r"\_")
    lines = (
        r"% \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        tabular.rstrip(),
        r"\par\smallskip",
        rf"{{\footnotesize {note}\par}}",
        r"\end{table}",
    )
    return ("\n".join(lines) + "\n").encode()


def _markdown(table: Table) -> bytes:
    shown = table.shown("**{mean} ± {std}**", "{mean} ± {std}").reset_index()
    lines = shown.astype(str).to_numpy().tolist()
    return f"{markdown_table([*map(str, shown.columns)], lines)}\n\n{table.note}\n".encode()


def _csv(table: Table) -> bytes:
    """Return a line for each row and column; text that a spreadsheet would run as a formula is quoted."""
    return str(table.figures.map(_quoted).to_csv(index=False)).encode()


def _quoted(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def _parquet(table: Table) -> bytes:
    content = io.BytesIO()
    table.figures.to_parquet(content, index=False)
    return content.getvalue()


_WRITERS = {".tex": _latex, ".md": _markdown, ".csv": _csv, ".parquet": _parquet}


def _sign(values: str) -> int:
    if values == MAIN or more_is_better(values):
        return 1
    return -1 if values.startswith(LESS_IS_BETTER) else 0


def _p_value(pairs: np.ndarray) -> float:
    """p-value of a paired t test, (seeds, 2), that the first column is greater; NaN below two pairs."""
    if len(pairs) < 2:
        return float("nan")
    difference = pairs[:, 0] - pairs[:, 1]
    if np.ptp(difference) == 0:
        return float(difference[0] <= 0)
    return float(ttest_rel(pairs[:, 0], pairs[:, 1], alternative="greater").pvalue)


def _rounded(value: object) -> object:
    """Return a setting as it is shown: 0.30000000000000004 as 0.3."""
    try:
        number = float(value) if isinstance(value, (str, float)) else None
    except ValueError:
        number = None
    return value if number is None or number != number else f"{number:g}"


def _cell(mean: float, std: float, form: str) -> str:
    if mean != mean or std != std:
        return _number(mean)
    return form.format(mean=f"{mean:.2f}", std=f"{std:.2f}")


def _number(value: float, form: str = ".2f") -> str:
    return "" if value != value else f"{value:{form}}"


def export_records(
    stored: Records,
    request: Request,
    path: Path,
    rows: str,
    columns: str,
    titles: Mapping[str, str],
    against: str = "",
) -> Path:
    """Write the table of the records that the request selects, without records of earlier versions.

    Raises UserError as `export`, `select` and `Records.of_tables`."""
    records = {record.key: record for record in stored.of_tables(request.table)}
    chosen = select(Results(tuple(records.values())), replace(request, table=()))
    current = [record for record in chosen if not outdated_parts(record.cell)]
    # Rows and columns have the order of the request.
    current.sort(key=lambda record: _place(request.dataset, str(record.cell.dataset)))
    current.sort(key=lambda record: _place(request.method, record.cell.variant))
    return export(Results(tuple(current)), path, rows, columns, titles=titles, against=against)


def _place(asked: Sequence[str], name: str) -> int:
    """Return the position of a name, or of its bare form, among the requested ones; last if absent."""
    return next((place for place, each in enumerate(asked) if each in (name, bare(name))), len(asked))
