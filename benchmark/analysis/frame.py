"""Records as pandas frames."""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

from fedsub.benchmark.analysis.metrics import with_spread
from fedsub.benchmark.records.record import APART, FAILED, OK, VALIDATION, Record
from fedsub.benchmark.spec import catalog
from fedsub.benchmark.spec.cell import FIELDS, OUTSIDE_KEY
from fedsub.benchmark.spec.custom import NOUNS, by_name, names_of
from fedsub.benchmark.spec.protocol import AXES, bare, table_name
from fedsub.benchmark.spec.request import Request
from fedsub.datasets.errors import UserError, check_choice, unknown
from fedsub.methods.core.schedule import SELECTED_BESIDES

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

MAIN = "score"
"""Column of the main score: accuracy, or the area under the curve for link prediction."""
OPTIONS = "options."
"""Prefix of option columns."""
_LEFT_OUT = (*OUTSIDE_KEY, *APART, "traceback", "extras", "partition_statistics", "environment", "chosen")
"""Fields that are not figures of a record, or that have frames of their own."""
OF_A_METHOD = (
    "method",
    *(item.field.name for item in FIELDS.values() if item.part == "architecture"),
    "local_epochs",
    "learning_rate",
    "weight_decay",
    "optimiser",
    "weighting",
    "evaluate",
    "evaluate_every",
    "files",
    "versions",
)
"""Settings that may differ between compared methods, besides options."""
_OF_THE_MEASUREMENT = ("further_metrics", "kernel")
"""Settings that change no figure."""
_DIGITS = 8
"""Digits of a content hash shown in tables."""


@dataclass(frozen=True)
class Results:
    """Records, one for every cell that was run."""

    records: tuple[Record, ...]

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    @property
    def failures(self) -> tuple[Record, ...]:
        """Records of failed cells."""
        return tuple(record for record in self.records if record.status == FAILED)

    @property
    def successes(self) -> tuple[Record, ...]:
        """Records of successful cells."""
        return tuple(record for record in self.records if record.status == OK)

    def frame(self) -> pandas.DataFrame:
        """Return one row per record: its settings by their names in a protocol, and its figures. Test scores
        are in percent, the main one as `score`. `validation` is the validation score in the selected round
        (the median round if each client selects its own), averaged as the test score is; hyper-parameters
        are chosen by it. Seconds, bytes, options and a method's own figures are columns such as
        `seconds.train`, `bytes.up`, `options.mu`, `extras.epsilon`. `accuracy.selected_by_last` is the test
        score in the round that this rule would select."""
        import pandas

        found = pandas.DataFrame([_row(record) for record in self.records])
        for name in (name for name in found if found[name].dtype.kind == "O"):
            # Options of two methods may share a name but not a type; Parquet holds one type per column.
            kinds = {type(value) for value in found[name].dropna()}
            if kinds == {bool}:
                found[name] = found[name].astype("boolean")
            elif len(kinds) > 1:
                found[name] = found[name].map(str, na_action="ignore")
        return found

    def curves(self) -> pandas.DataFrame:
        """Return one row per evaluation: the cell, `round`, `validation` and `test` in percent, `loss` and,
        in newer records, the cumulative `bytes` and `seconds`. What a method reports for every round
        (`by_round`) has columns under its own names."""
        import pandas

        parts = []
        for record in self.successes:
            part = pandas.DataFrame(dict(record.curve))
            for name, values in record.result.by_round.items():
                if name not in part and values:
                    part[name] = part["round"].map(dict(enumerate(values, start=1)))
            for position, (name, value) in enumerate(_place(record).items()):
                part.insert(position, name, value)
            parts.append(part)
        return pandas.concat(parts, ignore_index=True) if parts else pandas.DataFrame()

    def by_client(self) -> pandas.DataFrame:
        """Return one row per client of each cell: the cell, `client` from 0, its `name` if there is one, and
        its `test` score in percent in the selected round (NaN without test nodes). Older records without such
        scores have no rows."""
        import pandas

        rows = []
        for record in self.successes:
            names = record.extras.get("client_names", ())
            for client, score in enumerate(record.result.by_client.get("test", ())):
                named = {"client": client, **({"name": names[client]} if names else {}), "test": score}
                rows.append({**_place(record), **named})
        return pandas.DataFrame(rows)

    def pivot(
        self, rows: str = "method", columns: str = "dataset", values: str = MAIN, text: bool = True
    ) -> pandas.DataFrame:
        """Return mean and sample standard deviation over seeds, as `81.23 ± 0.45`; without `text` as numbers,
        in columns `mean`, `std` and `runs`.

        Different settings are never averaged: a setting or option outside `rows` and `columns` becomes a
        level of the rows if it differs within a field of the table. A setting that must be alike for two
        methods to be compared, such as the number of clients, does so if it differs within a column.
        Raises UserError without a result, for a column that `frame` lacks, for one column as both rows and
        columns, and for values that are text.
        """
        import pandas

        found, _, _ = averaged(Results(self.successes), rows, columns, values)
        if text:
            spreads = found["std"].astype(object).where(found["std"].notna(), None)
            figures = zip(found["mean"], spreads, strict=True)
            shown = ["" if mean != mean else with_spread(mean, std) for mean, std in figures]
            return across(pandas.Series(shown, index=found.index)).fillna("")
        return pandas.concat({name: across(found[name]) for name in found}, axis=1).swaplevel(axis=1)

    def plot(self, kind: str, axes: Axes | None = None) -> Axes:
        """Draw `curves`, `cost` or `ranks` on matplotlib `axes`, by default new ones (`analysis.plots.plot`).

        Raises UserError for another kind, and if there is nothing to draw.
        """
        from fedsub.benchmark.analysis import plots

        _, levels, frame = averaged(Results(self.successes), "method", "dataset", MAIN)
        names = [*dict.fromkeys((*AXES, *levels))]
        own = [name for name in names if competes(name)]
        return plots.plot(self, kind, axes, frame, [name for name in names if name not in own], own)

    def _repr_html_(self) -> str:
        parts = [self.pivot().to_html()] if self.successes else []
        for record in self.failures:
            parts.append(f"<p>failed: {html.escape(f'{record.cell.title}: {record.error}')}</p>")
        return "".join(parts) or "<p>no records</p>"

    def __repr__(self) -> str:
        head = f"{len(self.successes)} results, {len(self.failures)} failures"
        return f"{head}\n{self.pivot()}" if self.successes else head


def select(records: Results, request: Request) -> Results:
    """Select records by the filters of a request.

    A user's file is selected by its path or its name. Raises UserError, with the nearest values, for a filter
    value that no record has.
    """
    tables = tuple(map(table_name, request.table))
    filters = (
        ("table", tables, lambda record: record.cell.protocol),
        ("dataset", request.dataset, lambda record: str(record.cell.dataset)),
        ("method", request.method, lambda record: record.cell.variant),
        ("partition", request.partition, lambda record: str(record.cell.partition)),
        ("number of clients", request.clients, lambda record: record.cell.clients),
        ("backbone", request.backbone, lambda record: record.backbone),
        ("seed", request.seeds, lambda record: record.cell.seed),
    )
    found = list(records)
    for noun, asked, of in filters:
        wanted = [by_name(noun, value) for value in asked]
        present = {form for record in records for form in (of(record), bare(of(record)))}
        for value in wanted:
            if value not in present:
                raise unknown(f"{noun} in the records", str(value), map(str, present))
        found = [record for record in found if not wanted or {of(record), bare(of(record))} & {*wanted}]
    return Results(tuple(found))


def _place(record: Record) -> dict[str, Any]:
    cell = record.cell
    return {"key": record.key, "protocol": cell.protocol, **cell.point, "seed": cell.seed}


def _row(record: Record) -> dict[str, Any]:
    values = record.to_dict()
    row: dict[str, Any] = {**_place(record), "status": record.status}
    aside = {*_LEFT_OUT, *row}
    scores = {_score_name(name): value for name, value in values.pop("metrics", {}).items()}
    row |= {MAIN: record.score, VALIDATION: record.validation, **scores}
    for name, value in values.items():
        if name in aside:
            continue
        name = FIELDS[name].field.name if name in FIELDS else name
        if isinstance(value, dict):
            row |= {f"{name}.{key}": each for key, each in value.items()}
        else:
            row[name] = "+".join(map(str, value)) if isinstance(value, list) else value
    # Other extras, such as lists by client, do not fit into a row.
    figures = {name: value for name, value in record.extras.items() if isinstance(value, (int, float))}
    return row | {f"extras.{name}": value for name, value in figures.items()}


def _score_name(name: str) -> str:
    """Column of a score; a score in the round selected by another rule is `NAME.selected_by_RULE`."""
    for rule in SELECTED_BESIDES:
        ending = f"_{rule.replace('-', '_')}"
        if name.endswith(ending):
            return f"{name.removesuffix(ending)}.selected_by_{rule}"
    return name


def competes(name: str) -> bool:
    """Whether a setting may differ between compared methods, as options may."""
    return name in OF_A_METHOD or name.startswith(OPTIONS)


def axes(rows: str, columns: str) -> tuple[str, str]:
    """Sort two axes into the competing one and the one that separates comparisons."""
    return (columns, rows) if competes(columns) and not competes(rows) else (rows, columns)


def averaged(
    results: Results, rows: str, columns: str, values: str
) -> tuple[pandas.DataFrame, list[str], pandas.DataFrame]:
    """Return `mean`, `std` and `runs` of a figure over seeds, by levels and column; the levels; the frame.

    Levels are `rows` and every setting or option that differs within a row and column, or that differs within
    a comparison and must be alike there. In the frame of the results, options that are levels are text.
    Raises UserError as `Results.pivot`.
    """
    if not results.records:
        raise UserError("no result to average: every run failed or none was selected")
    if rows == columns:
        raise UserError(f"rows and columns are both {rows}: give two different ones")
    frame = results.frame()
    for name in (rows, columns, values):
        check_choice("column", name, tuple(frame.columns))
    if not all(isinstance(value, Real) for value in frame[values].dropna()):
        raise UserError(f"{values} cannot be averaged: it is not a number; give a score, such as accuracy")
    if "files" in frame:
        frame["files"] = frame["files"].str[:_DIGITS]
        _tell_graphs_apart(results, frame)
    rival, apart = axes(rows, columns)
    unlike = set(_varying(frame, [rows, columns]))
    if competes(rival):
        aside = (rival, *_OF_THE_MEASUREMENT)
        unlike |= {name for name in _varying(frame, [apart]) if not (competes(name) or name in aside)}
    unlike -= {columns, "versions", "files"}
    # In the order of a cell's settings.
    levels = [rows, *(item.field.name for item in FIELDS.values() if item.field.name in unlike)]
    # Every scheme has versions, and a file its digest: a level only if other levels do not tell them.
    levels += _varying(frame, [*levels, columns])
    levels += _varying_options(results, frame, [*levels, columns])
    for name in (name for name in (*levels, columns) if name.startswith(OPTIONS)):
        # Empty for methods without the option.
        frame[name] = frame[name].astype(str).where(frame[name].notna(), "")
    groups = frame.groupby([*levels, columns], sort=False, dropna=False)[values]
    found = groups.agg(["mean", "std", "count"]).rename(columns={"count": "runs"})
    return found, levels, frame


def across(values: pandas.Series) -> pandas.DataFrame:
    """The last level of the index as columns, rows and columns in the order of their first appearance."""
    # `unstack(sort=False)` of pandas before 3 puts values in the wrong places.
    rows, columns = values.index.droplevel(-1).unique(), values.index.unique(-1)
    return values.unstack().reindex(index=rows, columns=columns)


def _tell_graphs_apart(results: Results, frame: pandas.DataFrame) -> None:
    """Add a content hash to the names of different graphs that share a name. Records whose other parts are
    the benchmark's tell graphs apart: their hash covers only the graph.
    """
    digests: dict[str, set[str]] = {}
    known = {part: catalog.parts(part) for part in NOUNS if part != "method"} | {"method": catalog.methods()}
    for cell in (record.cell for record in results if record.cell.files):
        own = [part for part, name in names_of(cell).items() if name not in known[part]]
        if own == ["dataset"]:
            digests.setdefault(str(cell.dataset), set()).add(cell.files)
    several = frame["dataset"].isin([name for name, found in digests.items() if len(found) > 1])
    frame.loc[several, "dataset"] += " (" + frame.loc[several, "files"] + ")"


def _varying(frame: pandas.DataFrame, given: list[str]) -> list[str]:
    """Settings of cells, except seeds, that differ within a group of `given`."""
    aside = ("seed", "options", *OUTSIDE_KEY, *given)
    settings = [item.field.name for name, item in FIELDS.items() if name not in aside]
    return _differing(frame[[name for name in settings if name in frame]], frame, given)


def _varying_options(results: Results, frame: pandas.DataFrame, given: list[str]) -> list[str]:
    """Options, as `options.mu`, that differ within a group of `given`. A table may set options that the
    method's name does not show, and may have set others before."""
    import pandas

    # Only options set by the cell: a record older than an option lacks even the option's default.
    chosen = [{f"{OPTIONS}{name}": value for name, value in record.cell.options} for record in results]
    options = pandas.DataFrame(chosen, index=frame.index)
    names = [name for name in options if name not in given]
    return _differing(options[names], frame, given) if names else []


def _differing(values: pandas.DataFrame, frame: pandas.DataFrame, given: list[str]) -> list[str]:
    """Columns that differ within a group of the columns `given` of the frame."""
    counts = values.groupby([frame[name] for name in given], dropna=False).nunique(dropna=False)
    return [name for name in counts if (counts[name] > 1).any()]
