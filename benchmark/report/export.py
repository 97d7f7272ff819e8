"""Export of a table from records: LaTeX, Markdown, CSV or Parquet."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pandas

from fedsub.benchmark.analysis.agreement import LEAST
from fedsub.benchmark.analysis.frame import MAIN, OPTIONS, Results, across, competes, select
from fedsub.benchmark.analysis.means import LEVEL, Table, make_table
from fedsub.benchmark.analysis.plots import KINDS
from fedsub.benchmark.analysis.scores import make_rows
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.report.wording import markdown_table, span, title_of
from fedsub.benchmark.spec.custom import by_name
from fedsub.benchmark.spec.plan import outdated_parts
from fedsub.benchmark.spec.protocol import bare, load_protocol, names
from fedsub.benchmark.spec.request import Request
from fedsub.datasets.errors import UserError, unknown
from fedsub.datasets.files import explained, write_atomically, written_atomically

READ = (".tex", ".md")
"""Endings of formats for readers, in which methods have their papers' names."""
DRAWN = (".pdf", ".svg", ".png")
"""Endings of plots; the file's name says which plot, as `curves.pdf`."""
MARK = " †"
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""First characters of a cell that a spreadsheet runs as a formula."""


def note(table: Table) -> str:
    """Number of seeds, and the rule for bold figures."""
    runs = [*table.figures["runs"]]
    seeds = f"{span(runs)} seed{'s' * ({*runs} != {1})}"
    several = table.across and any(map(competes, table.levels[1:]))
    further = " (also in rows that differ only in settings of a method)" if several else ""
    said = [f"Mean and standard deviation over {seeds}."]
    if table.sign:
        said.append(
            f"Bold: the {'highest' if table.sign > 0 else 'lowest'} mean of a "
            f"{'row' if table.across else 'column'} among equal settings{further}, each two compared over "
            f"their common seeds (at least {LEAST}), and every mean that does not differ significantly or is "
            "equal to two decimals. The test is a paired one-sided t test over common seeds, each with its "
            f"own draw of the data (level {LEVEL:g}, Holm's correction). Few seeds separate few methods; "
            f"with fewer than {LEAST}, or without a rival, nothing is bold."
        )
    if np.isfinite(table.mean_ranks()).any():
        said.append("Mean rank: over the columns with a figure in every row of equal settings.")
    if not table.figures["rival"].all():
        said.append("†: breaks privacy, and is not compared where it does.")
    return " ".join(said)


def as_text(table: Table, bold: str, plain: str) -> pandas.DataFrame:
    """Return the table as text; `bold` and `plain` are the format strings of a `mean` and `std`."""
    rows = table.figures
    text = [
        _cell(mean, std, bold if winner else plain)
        for mean, std, winner in zip(rows["mean"], rows["std"], rows["bold"], strict=True)
    ]
    names = [*table.levels, table.column]
    index = [rows[name].map(partial(_rounded, is_option=name.startswith(OPTIONS))) for name in names]
    if not rows["rival"].all():
        place = names.index("method")
        # A method that breaks privacy in some columns only has one row.
        line = [*table.levels] if place < len(table.levels) else table.column
        keeps = rows.groupby(line, dropna=False)["rival"].transform("all")
        index[place] = index[place].where(keeps, index[place] + MARK)
    cells = across(pandas.Series(text, index=pandas.MultiIndex.from_arrays(index)))
    if np.isfinite(ranks := table.mean_ranks()).any():
        cells["mean rank"] = [_number(found) for found in ranks]
    if table.against:
        means = rows.groupby(list(table.levels), sort=False, dropna=False)["difference"].mean()
        cells[f"above {table.against}"] = [_number(value, "+z.2f") for value in means]
    return cells.fillna("").rename_axis(columns=None)


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
    (`Results.plot`), without further arguments.

    `.tex` needs the package booktabs; `.csv` and `.parquet` have a line for each row and column. `titles`
    replaces names of rows and columns; in `.tex` and `.md` a method has its paper's name by default. With
    `against` a further column shows by how much each row is above that one at equal settings, on average.

    Raises UserError as `make_table`, for another ending, for a title of a name that the table lacks, and if
    the file cannot be written.
    """
    path = Path(path)
    if path.suffix in DRAWN:
        if titles or against or (rows, columns, values) != ("method", "dataset", MAIN):
            raise UserError(f"only tables have titles, rows, columns and rivals: leave them out for {path}")
        return _draw(results, path)
    if path.suffix not in _WRITERS:
        known = ", ".join((*_WRITERS, *DRAWN))
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
    figure = results.plot(path.stem).get_figure(root=True)
    assert figure is not None
    with explained("write", path), written_atomically(path) as stream:
        figure.savefig(stream, format=path.suffix[1:])
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
    named = {axis: table.figures[axis].map(str) for axis in axes}
    titled = {axis: each.replace(found) for axis, each in named.items() if each.isin(found).any()}
    for axis, each in titled.items():
        if each.nunique() < named[axis].nunique():
            same = next(title for title in each if named[axis][each == title].nunique() > 1)
            raise UserError(f"two names of the axis {axis} have the title {same!r}: give other titles")
    return replace(
        table, figures=table.figures.assign(**titled), against=found.get(table.against, table.against)
    )


def _latex(table: Table) -> bytes:
    shown = as_text(table, r"$\mathbf{{{mean} \pm {std}}}$", r"${mean} \pm {std}$")
    levels = [each.replace("_", " ") for each in table.levels]
    shown.index = shown.index.set_names(levels)
    style = shown.reset_index().style.hide(axis="index").format_index(escape="latex", axis=1)
    style = style.format(escape="latex", subset=levels)
    tabular = style.to_latex(hrules=True, column_format="l" * len(levels) + "r" * shown.shape[1])
    # In LaTeX's default font encoding these letters print others outside mathematics.
    tabular = re.sub(r"[<>|]", r"$\g<0>$", tabular)
    # At the start of a row these would be arguments of the line before.
    tabular = re.sub(r"^[*[]", r"{}\g<0>", tabular, flags=re.MULTILINE)
    said = note(table).replace("%", r"\%").replace("_", r"\_")
    lines = (
        r"% \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        tabular.rstrip(),
        r"\par\smallskip",
        rf"{{\footnotesize {said}\par}}",
        r"\end{table}",
    )
    return ("\n".join(lines) + "\n").encode()


def _markdown(table: Table) -> bytes:
    shown = as_text(table, "**{mean} ± {std}**", "{mean} ± {std}").reset_index()
    lines = shown.astype(str).to_numpy().tolist()
    return f"{markdown_table([*map(str, shown.columns)], lines)}\n\n{note(table)}\n".encode()


def _csv(table: Table) -> bytes:
    """Return a line for each row and column; text that a spreadsheet would run as a formula is quoted."""
    return str(table.figures.map(_quoted).to_csv(index=False)).encode()


def _quoted(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def _parquet(table: Table) -> bytes:
    return bytes(table.figures.to_parquet(index=False))


_WRITERS = {".tex": _latex, ".md": _markdown, ".csv": _csv, ".parquet": _parquet}


def _rounded(value: object, is_option: bool) -> object:
    """Return a setting as it is shown: 0.30000000000000004 as 0.3. Only options are numbers as text."""
    try:
        number = float(value) if isinstance(value, (str, float) if is_option else float) else None
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
    against: str,
    say: Callable[[str], None],
) -> Path:
    """Write the table of the records that the request selects, without records of earlier versions.

    Runs that deviate from a requested table are left out as on its page; `say` receives their number.
    Raises UserError as `export`, `select` and `Records.of_tables`."""
    found = stored.of_tables(request.table)
    records = {record.key: record for record in found}
    chosen = select(Results(tuple(records.values())), replace(request, table=()))
    current = [record for record in chosen if not outdated_parts(record.cell)]
    axes = (rows, columns, "partition" * bool(request.partition))
    named = {"", *(axis.removeprefix(OPTIONS) for axis in axes)}
    fits: dict[str, bool] = {}
    for table in (load_protocol(each) for each in request.table if each in names() or Path(each).is_file()):
        own = (record for record in found if record.cell.protocol == table.name)
        for row in make_rows(table, own) if table.published else ():
            others = {each.partition("=")[0] for each in row.deviations.split(", ")} - named
            fits |= {record.key: fits.get(record.key, False) or not others for record in row.records}
    before, current = len(current), [record for record in current if fits.get(record.key, True)]
    if left_out := before - len(current):
        how = "to keep them, name the setting with --rows or --columns"
        say(f"left out {left_out} run{'s' * (left_out > 1)} with other settings than their table's; {how}")
    # Rows and columns have the order of the request.
    graphs = [by_name("dataset", each) for each in request.dataset]
    methods = [by_name("method", each) for each in request.method]
    current.sort(key=lambda record: _place(graphs, str(record.cell.dataset)))
    current.sort(key=lambda record: _place(methods, record.cell.variant))
    return export(Results(tuple(current)), path, rows, columns, titles=titles, against=against)


def _place(asked: Sequence[str], name: str) -> int:
    """Return the position of a name, or of its bare form, among the requested ones; last if absent."""
    return next((place for place, each in enumerate(asked) if each in (name, bare(name))), len(asked))
