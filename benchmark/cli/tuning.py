"""`fedsub tune`: search, then show the trials and the command that runs the best one."""

from __future__ import annotations

import sys
from argparse import Namespace

from rich import box
from rich.markup import escape
from rich.table import Table

from fedsub.benchmark.analysis.trials import COLUMNS, SCORES, Outcome, Trials, importance, text
from fedsub.benchmark.cli.commands import say
from fedsub.benchmark.execution.engines import RunCell
from fedsub.benchmark.execution.progress import console_for
from fedsub.benchmark.execution.tuning import tune
from fedsub.benchmark.spec.request import Request


def run_tune(request: Request, options: Namespace, work: RunCell | None) -> int:
    """Search as asked; returns the exit code."""
    found = tune(request, work=work, warn=say, inform=say)
    shown = Trials(tuple(Outcome(each, found.records) for each in found.searches))
    if options.format == "json":
        print(shown.frame().to_json(orient="records", indent=1))
        return 0
    console = console_for(sys.stdout.isatty())
    for outcome in shown.outcomes:
        console.print(_table(outcome))
        if outcome.left_out:
            limit = found.caps[outcome.search.base.block]
            say(
                f"{outcome.title}: {len(outcome.left_out)} of {request.trials} trials did not fit into "
                f"{limit:.0f} core-seconds ({request.cap:g} times what FedAvg takes by default); --cap "
                "raises it"
            )
        for row in outcome.rows:
            if row["error"]:
                say(f"{outcome.title}: trial {row['trial']} failed: {row['error']}")
        if shares := [f"{name} {share:.0%}" for name, share in importance([outcome]).items()]:
            say(f"importance in the first rung: {', '.join(shares)}")
        console.print(outcome.command(request.settings), markup=False, highlight=False, soft_wrap=True)
    return 0


def _table(outcome: Outcome) -> Table:
    table = Table(title=escape(outcome.title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("trial", "settings", "first rung %", "validation %", "test %"):
        table.add_column(name, justify="left" if name == "settings" else "right")
    for row in outcome.rows:
        options = [] if row["method"] == outcome.method else [row["method"]]
        said = [*options, *(f"{name}={text(value)}" for name, value in row.items() if name not in COLUMNS)]
        scores = ("" if row[name] is None else f"{row[name]:.2f}" for name in SCORES)
        style = "bold" if row["best"] else ""
        table.add_row(str(row["trial"]), escape(" ".join(said) or "defaults"), *scores, style=style)
    return table
