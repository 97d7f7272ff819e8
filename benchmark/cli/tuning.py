"""`fedsub tune`: search for settings, show the trials and the command of the best one. `fedsub arena`: tune
every method on every block, compare them on fresh draws, and write the page.
"""

import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace

from rich import box
from rich.markup import escape
from rich.table import Table

from fedsub.benchmark.analysis.trials import COLUMNS, SCORES, Outcome, Trials, importance, text
from fedsub.benchmark.cli.commands import FAILED, OK, say, say_failed
from fedsub.benchmark.execution.engines import RunCell
from fedsub.benchmark.execution.progress import console_for
from fedsub.benchmark.execution.run import execute
from fedsub.benchmark.execution.tuning import plan_searches, run_searches, tune
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.records.record import Record
from fedsub.benchmark.records.search import Search, Standing
from fedsub.benchmark.report.arena import write_arena
from fedsub.benchmark.spec.catalog import FEDAVG, LOCAL
from fedsub.benchmark.spec.cell import Block
from fedsub.benchmark.spec.plan import Plan
from fedsub.benchmark.spec.protocol import ARENA
from fedsub.benchmark.spec.request import Request
from fedsub.datasets.errors import UserError
from fedsub.datasets.registry import is_available


def run_tune(request: Request, options: Namespace, work: RunCell | None) -> int:
    """Run the requested searches and show the trials; returns the exit code."""
    found = tune(request, work=work, warn=say, inform=say)
    shown = Trials(tuple(Outcome(each, found.records, request) for each in found.searches))
    broken = [all(row["error"] for row in each.rows) for each in shown.outcomes]
    if options.format == "json":
        print(shown.frame().to_json(orient="records", indent=1))
        return int(any(broken))
    console = console_for(sys.stdout.isatty() and not options.wide)
    for outcome, nothing in zip(shown.outcomes, broken, strict=True):
        console.print(_table(outcome))
        if outcome.left_out:
            limit = found.caps[outcome.search.base.block]
            say(
                f"{outcome.title}: {outcome.left_out} of {request.trials} trials did not fit into "
                f"{limit:.0f} core-seconds ({request.cap:g} times FedAvg's default run); --cap raises it"
            )
        for row in outcome.rows:
            if row["error"]:
                say(f"{outcome.title}: trial {row['trial']} failed: {row['error']}")
        if shares := [f"{name} {share:.0%}" for name, share in importance([outcome]).items()]:
            say(f"importance in the first rung: {', '.join(shares)}")
        if not nothing:
            console.print(outcome.command(request), markup=False, highlight=False, soft_wrap=True)
    return int(any(broken))


def _table(outcome: Outcome) -> Table:
    table = Table(title=escape(outcome.title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("trial", "settings", "first rung %", "validation %", "test %"):
        table.add_column(name, justify="left" if name == "settings" else "right")
    for row in outcome.rows:
        options = [] if row["method"] == outcome.method else [row["method"]]
        tuned = {name: value for name, value in row.items() if name not in (*COLUMNS, *outcome.given)}
        said = [*options, *(f"{name}={text(value)}" for name, value in tuned.items())]
        scores = ("" if row[name] is None else f"{row[name]:.2f}" for name in SCORES)
        style = "bold" if row["best"] else ""
        table.add_row(str(row["trial"]), escape(" ".join(said) or "defaults"), *scores, style=style)
    return table


def run_arena(request: Request, options: Namespace, work: RunCell | None) -> int:
    """Run missing cells until the time limit and write the pages; returns the exit code."""
    request = replace(request, table=(str(ARENA),))
    asked = tuple(dict.fromkeys((LOCAL, FEDAVG, *request.method))) if request.method else ()
    searches, references, skipped = plan_searches(replace(request, method=asked))
    for skip in skipped:
        say(f"skipped {skip.what}: {skip.reason}")
    if len({(each.base.block, each.base.variant) for each in searches}) < len(searches):
        raise UserError(
            "a method has several searches on a block: give each setting once, and methods and graphs "
            "names of their own"
        )
    if not options.hours >= 0:
        raise UserError(f"--hours must be at least 0, not {options.hours}")
    until = time.monotonic() + 3600 * options.hours
    ran, missing, cells = [], 0, 0
    failures: list[Record] = []
    for block in _blocks(request, searches):
        if time.monotonic() >= until:
            break
        own = [search for search in searches if search.base.block == block]
        of_cap = [cell for cell in references if cell.block == block]
        try:
            tuned = run_searches(request, own, of_cap, work=work, until=until, warn=say, inform=say)
            chosen = [(search, Standing(search, tuned.records).chosen) for search in tuned.searches]
            finals = [
                cell for search, best in chosen for n in dict.fromkeys((best, 0)) for cell in search.final(n)
            ]
            if time.monotonic() < until:
                done = execute(request, work, plan=Plan(tuple(finals), ()), until=until, warn=say, inform=say)
                failures += done.failures
                cells += len(finals)
        except UserError as error:
            if is_available(own[0].base.dataset.text):
                raise
            # A missing graph does not stop the other blocks.
            say(f"skipped {error}")
            missing += 1
        else:
            ran.append(block)
    records = Records(request.results)
    if not (pages := write_arena(request, records, searches, asked, ran)):
        raise UserError("no block is finished: raise --hours")
    print(*pages, sep="\n")
    if failures:
        say_failed(request, failures, cells, records)
    return FAILED if failures or (missing and request.dataset) else OK


def _blocks(request: Request, searches: Sequence[Search]) -> list[Block]:
    """Return the blocks to run, one of each graph first. If the request names methods but no graph: only
    blocks on which the arena has run."""
    order = list(dict.fromkeys(search.base.block for search in searches))
    partitions = list(dict.fromkeys(partition for _, partition, _ in order))
    order.sort(key=lambda block: partitions.index(block[1]))
    if request.method and not request.dataset:
        records = Records(request.results)
        local = [search for search in searches if search.base.method == LOCAL]
        had = {each.base.block for each in local if all(map(records.done, each.final(0)))}
        order = [block for block in order if block in had] or order
    return order
