"""`fedsub tune`: search, then show the trials and the command that runs the best one."""

from __future__ import annotations

import sys
from argparse import Namespace

from rich import box
from rich.markup import escape
from rich.table import Table

from fedsub.benchmark.analysis.trials import Outcome, outcomes_of, text
from fedsub.benchmark.execution.engines import RunCell
from fedsub.benchmark.execution.progress import console_for
from fedsub.benchmark.execution.tuning import tune
from fedsub.benchmark.spec.request import Request
from fedsub.benchmark.spec.space import TRIALS


def run_tune(request: Request, options: Namespace, work: RunCell | None) -> int:
    """Search as asked; returns the exit code."""

    def say(sentence: str) -> None:
        print(sentence, file=sys.stderr)

    trials = options.trials or TRIALS
    found = tune(request, trials, options.cap, work=work, warn=say, inform=say)
    outcomes = outcomes_of(found.searches, found.records).outcomes
    if options.format == "json":
        print(outcomes_of(found.searches, found.records).frame().to_json(orient="records", indent=1))
        return 0
    console = console_for(sys.stdout.isatty())
    for outcome in outcomes:
        console.print(_table(outcome))
        limit = found.caps[outcome.dataset, outcome.partition, outcome.clients]
        if outcome.left_out:
            say(
                f"{outcome.title}: {outcome.left_out} of {trials} trials did not fit into {limit:.0f} "
                f"core-seconds ({options.cap:g} times what FedAvg takes by default); --cap raises it"
            )
        for trial in outcome.trials:
            if trial.error:
                say(f"{outcome.title}: trial {trial.number} failed: {trial.error}")
        console.print(outcome.command(request.settings), markup=False, highlight=False, soft_wrap=True)
    return 0


def _table(outcome: Outcome) -> Table:
    table = Table(title=escape(outcome.title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("trial", "settings", "first rung %", "validation %", "test %"):
        table.add_column(name, justify="left" if name == "settings" else "right")
    for trial in outcome.trials:
        options = [] if trial.method == outcome.method else [trial.method]
        said = [*options, *(f"{name}={text(value)}" for name, value in trial.settings.items())]
        scores = (
            "" if each is None else f"{each:.2f}" for each in (trial.first, trial.validation, trial.test)
        )
        style = "bold" if trial is outcome.best else ""
        table.add_row(str(trial.number), escape(" ".join(said) or "defaults"), *scores, style=style)
    return table
