"""The functions that run each command."""

import errno
import json
import os
import signal
import sys
import traceback
from argparse import Namespace
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from pkgutil import resolve_name

from fedsub.benchmark.cli.listing import print_listing, print_method
from fedsub.benchmark.cli.parser import Command
from fedsub.benchmark.execution.engines import RunCell
from fedsub.benchmark.execution.logs import log_path
from fedsub.benchmark.execution.progress import console_for, counted
from fedsub.benchmark.records.folder import TRIALS, Records
from fedsub.benchmark.records.record import FAILED as FAILED_RECORD
from fedsub.benchmark.records.record import Record
from fedsub.benchmark.spec.catalog import parts, remembering
from fedsub.benchmark.spec.plan import Plan, grid_cells, make_plan
from fedsub.benchmark.spec.protocol import Protocol, bare, load_protocol, names, table_name
from fedsub.benchmark.spec.request import Request
from fedsub.datasets.catalogue import REGISTRY
from fedsub.datasets.errors import UserError
from fedsub.datasets.files import locate
from fedsub.datasets.paths import PLUGIN
from fedsub.datasets.plugins import running_only
from fedsub.datasets.streams import close_output

OK, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
_ADVICE = {
    errno.ENAMETOOLONG: "give a shorter name",
    errno.EACCES: "check its permissions",
    errno.EMFILE: "use fewer --workers, or raise the limit with ulimit -n",
}
"""Error of the operating system → advice."""


def main(command: Command, work: RunCell | None = None) -> int:
    """Run a parsed command line; returns the exit code. `work` replaces the runner of one cell."""
    request, options = command.request, command.options

    def run() -> int:
        found = _COMMANDS[command.name]
        call = resolve_name(found) if isinstance(found, str) else found
        with ExitStack() as stack:
            # Code that only a table or a record names is not run.
            if command.name != "data" and not getattr(options, "trust", False):
                stack.enter_context(running_only(_named_files(command)))
            of_records = command.name in ("run", "list", "show", "report", "export")
            if of_records or getattr(options, "dry_run", False):
                stack.enter_context(remembering())
            return call(request, options, work)

    return guarded(run, options)


def _named_files(command: Command) -> list[str]:
    """Return the .py files that the user names on the command line."""
    named = [*getattr(command.options, "subject", ()), getattr(command.options, "name", None) or ""]
    return [*command.request.files, *(path for path in map(bare, named) if path.endswith(PLUGIN))]


def guarded(run: Callable[[], int], options: Namespace) -> int:
    """Run a command; report its errors in one sentence and return the exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if getattr(options, "data", None) is not None:
        os.environ["FEDSUB_DATA"] = str(options.data)
    try:
        return run()
    except UserError as error:
        print(f"fedsub: {error}", file=sys.stderr)
        return BAD_INPUT
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            close_output()
            return OK
        if error.errno not in _ADVICE:
            raise
        place = f" ({str(error.filename)[:80]}…)" if error.filename else ""
        print(f"fedsub: {error.strerror}{place}: {_ADVICE[error.errno]}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        goes_on = getattr(options, "command", "") in ("run", "tune", "arena")
        said = "; finished cells are kept; the same command continues" if goes_on else ""
        print(f"fedsub: interrupted{said}", file=sys.stderr)
        return INTERRUPTED


# Modules that need torch or DGL, or write pages, are imported at their use: lists and plans do without them.


def _run(request: Request, options: Namespace, work: RunCell | None) -> int:
    if options.dry_run:
        return _dry_run(request, options, make_plan(request))
    from fedsub.benchmark.execution.run import execute

    protocols: dict[str, Protocol] = {}

    def after(plan: Plan, records: Records) -> None:
        tables = dict.fromkeys(cell.protocol for cell in plan.cells)
        protocols.update({name: _protocol_of(request, name) for name in tables})
        write_pages(request, protocols, records)

    done = execute(request, work, warn=say, inform=say, after=after)
    # A cell of several tables has one record, which is shown in each.
    selected = [record for cell in done.plan.cells if (record := done.stored.get(cell)) is not None]
    found = selected if request.seeds else _of_all_seeds(done.plan, protocols, done.stored)
    _show(request.results, options, protocols, found)
    for page in (request.results / "leaderboards" / f"{name}.md" for name in protocols):
        if page.is_file():
            say(f"page: {page}")
    _say_unreported(protocols, selected)
    failures = {record.key: record for record in selected if record.status == FAILED_RECORD}
    failures |= {record.key: record for record in done.failures}
    if failures:
        say_failed(request, failures.values(), len(done.plan.cells), done.stored)
    return FAILED if failures or (done.missing and not request.all) else OK


def say(sentence: str) -> None:
    """Print one line on standard error, if anyone still reads it."""
    with suppress(BrokenPipeError):
        print(sentence, file=sys.stderr)


def _list(request: Request, options: Namespace, work: RunCell | None) -> int:
    console = console_for(sys.stdout.isatty())
    if options.name is None:
        print_listing(console)
    elif options.name in parts("dataset"):
        return _data(request, Namespace(rest=["info", options.name]), work)
    else:
        print_method(options.name, console)
    return OK


def _check(request: Request, options: Namespace, work: RunCell | None) -> int:
    from fedsub.methods.checks import CheckError, checked

    failed = False
    for text in options.subject:
        print(f"{text}:")
        try:
            for what, found in checked(text, {}):
                print(f"  {what}: {found}", flush=True)
        except CheckError as error:
            if error.__cause__ and not isinstance(error.__cause__, UserError):
                # An error in the method's code, which its author has to find.
                traceback.print_exception(error.__cause__)
            print(f"  FAILED: {error}")
            failed = True
    return FAILED if failed else OK


def _show_stored(request: Request, options: Namespace, work: RunCell | None) -> int:
    """Show leaderboards of stored records, for the tables that the filters select."""
    from fedsub.benchmark.analysis.frame import Results, select

    stored = _stored(request)
    tables = [*map(table_name, request.table)] or stored.tables()
    protocols = {name: _protocol_of(request, name) for name in tables if name in names() or request.table}
    records = [
        record
        for name, protocol in protocols.items()
        for record in stored.of_table(name, grid_cells(protocol))
    ]
    if not records and (request.table or tables == [TRIALS]):
        held = ", ".join(protocols) or "any table"
        raise UserError(f"{request.results} holds no records of {held}: give another folder with --results")
    selected = select(Results(tuple(records)), request).records
    warn(stored)
    _say_unknown(tables, protocols)
    _show(request.results, options, protocols, selected)
    if failures := {record.key: record for record in selected if record.status == FAILED_RECORD}:
        say_failed(request, failures.values(), len({record.key for record in selected}), stored)
    return OK


def _report(request: Request, options: Namespace, work: RunCell | None) -> int:
    """Rewrite every page; reports records without a table."""
    from fedsub.benchmark.report.pages import write_report

    pages = write_report(request.results, request.table)
    print(*pages, sep="\n")
    _say_unknown(Records(request.results).tables(), map(table_name, request.table))
    if options.open:
        import webbrowser

        webbrowser.open(pages[-1].resolve().as_uri())
    return OK


def _export(request: Request, options: Namespace, work: RunCell | None) -> int:
    from fedsub.benchmark.report.export import export_records

    records, given = _stored(request), (options.file, options.rows, options.columns)
    try:
        path = export_records(records, request, *given, dict(options.title), options.against, say)
    finally:
        warn(records)
    print(path)
    return OK


def _bundle(request: Request, options: Namespace, work: RunCell | None) -> int:
    """Write records, tables and the user's files that they need to one file."""
    from fedsub.benchmark.records.bundle import write

    for sentence in write(request.results, options.file, request.table):
        say(sentence)
    print(options.file)
    return OK


def _flower(request: Request, options: Namespace, work: RunCell | None) -> int:
    """Write the Flower app of the cell's first seed; prints the folder."""
    from fedsub.benchmark.execution.flower.create import create_planned

    cell = create_planned(request, options.folder)
    say(f"wrote {cell.title}; {options.folder / 'README.md'} explains how to start it")
    print(options.folder)
    return OK


def _edit(request: Request, options: Namespace, work: RunCell | None) -> int:
    from fedsub.benchmark.execution import artifacts
    from fedsub.benchmark.records.folder import add, forget

    if (options.edit == "pack") == bool(options.key):
        raise UserError("`records forget` needs keys and `records add` paths; `records pack` takes none")
    if options.edit == "pack":
        _stored(request).pack()
    elif options.edit == "add":
        for source in map(Path, options.key):
            count, unread = add(request.results, source)
            print(f"{source}: records added: {count}")
            for sentence in unread:
                say(sentence)
    else:
        stored = _stored(request)
        try:
            forgotten = forget(stored, [key for text in options.key for key in text.split(",")])
        finally:
            warn(stored)
        for record in forgotten:
            artifacts.remove(request.results, record.key)
            print(f"forgotten: {record.key}  {record.cell.protocol}: {record.cell.title}")
    return OK


def _data(request: Request, options: Namespace, work: RunCell | None) -> int:
    from fedsub.datasets.cli import main as graphs

    return graphs(options.rest)


_COMMANDS: Mapping[str, Callable[[Request, Namespace, RunCell | None], int] | str] = {
    "run": _run,
    "list": _list,
    "check": _check,
    "tune": "fedsub.benchmark.cli.tuning:run_tune",
    "arena": "fedsub.benchmark.cli.tuning:run_arena",
    "show": _show_stored,
    "report": _report,
    "export": _export,
    "bundle": _bundle,
    "verify": "fedsub.benchmark.cli.verifying:run_verify",
    "flower": _flower,
    "records": _edit,
    "data": _data,
}
"""Command → function, or `module:function` to import."""


def _stored(request: Request) -> Records:
    """Return the records of the results folder. Raises UserError if there are none."""
    if not (records := Records(request.results)):
        raise UserError(f"{request.results} holds no records: give another folder with --results")
    return records


def warn(records: Records) -> None:
    """Report the records that could not be read so far."""
    for sentence in records.warnings():
        say(sentence)


def _dry_run(request: Request, options: Namespace, plan: Plan) -> int:
    records = Records(request.results)
    waiting = {cell for cell in plan.cells if request.rerun or not records.done(cell)}
    absent = {name for name in REGISTRY if locate(name) is None} if waiting else ()
    ready = {cell for cell in waiting if cell.dataset.name not in absent}
    if options.format == "json":
        print(json.dumps([{"key": cell.key, **cell.to_dict()} for cell in plan.cells], indent=1))
    else:
        for cell in plan.cells:
            state = "to run" if cell in ready else "no data" if cell in waiting else "done"
            print(f"{cell.key}  {state:7}  {cell.protocol}: {cell.title}")
    for skip in plan.skipped:
        say(f"skipped {skip.what}: {skip.reason}")
    warn(records)
    say(counted(plan.cells, waiting, ready))
    return OK


def _of_all_seeds(plan: Plan, tables: Iterable[str], records: Records) -> list[Record]:
    """Return the stored records of the run's rows, in all seeds, as on their pages."""
    rows = {cell.group: cell for cell in plan.cells}
    return [
        record
        for table in tables
        for record in records.of_table(table, (cell for cell in rows.values() if cell.protocol == table))
        if record.cell.group in rows
    ]


def write_pages(request: Request, protocols: Mapping[str, Protocol], records: Records) -> None:
    """Write the page of every table in the run; errors are only reported, as the records are stored."""
    from fedsub.benchmark.analysis.public_code import load
    from fedsub.benchmark.analysis.scores import Leaderboard
    from fedsub.benchmark.report.leaderboard import write_table_page

    try:
        theirs = load(request.results)
        for name, protocol in protocols.items():
            if found := records.of_table(name, grid_cells(protocol)):
                write_table_page(request.results, Leaderboard(protocol, found), theirs)
    except (UserError, OSError) as error:
        say(f"fedsub: {error}")


def _protocol_of(request: Request, name: str) -> Protocol:
    return load_protocol(next((table for table in request.table if table_name(table) == name), name))


def _show(
    folder: Path, options: Namespace, protocols: Mapping[str, Protocol], selected: Sequence[Record]
) -> None:
    from fedsub.benchmark.analysis.public_code import load
    from fedsub.benchmark.analysis.scores import Leaderboard
    from fedsub.benchmark.report.terminal import print_leaderboard

    if options.format == "json":
        print(json.dumps([record.to_dict() for record in selected], indent=1, allow_nan=False))
        return
    console, theirs = console_for(sys.stdout.isatty() and not options.wide), load(folder)
    for name, protocol in protocols.items():
        if own := [item for item in selected if item.cell.protocol == name]:
            print_leaderboard(Leaderboard(protocol, own), console, theirs)


def _say_unknown(tables: Iterable[str], given: Iterable[str]) -> None:
    """Report the tables that are neither the benchmark's nor `given`, so that their records are not shown."""
    for name in sorted({*tables} - {*names(), TRIALS, *given}):
        say(f"skipped the records of {name}, an unknown table: give its file with --table")


def _say_unreported(protocols: Mapping[str, Protocol], selected: Sequence[Record]) -> None:
    """Report scores that a table names but no run has."""
    from fedsub.benchmark.analysis.metrics import unreported

    for name, protocol in protocols.items():
        own = [item for item in selected if item.cell.protocol == name]
        for metric, near in unreported(protocol.metrics, own).items():
            # A partial run of the benchmark's own table lacks scores of the methods that did not run.
            if near or name not in names():
                hint = f": did you mean {', '.join(near)}?" if near else ", which its table lists"
                say(f"no run has the score {metric!r}{hint}")


def say_failed(request: Request, failures: Collection[Record], cells: int, records: Records) -> None:
    """Name the cells that failed, each with its cause and log."""
    say(f"{len(failures)} of {cells} cells failed; cells without a result run again next time:")
    for record in failures:
        kept = " (its earlier result is kept)" if records.done(record.cell) else ""
        log = log_path(request.results, record.key)
        kept += f" (log: {log})" if log.is_file() else ""
        say(f"  {record.cell.title}: {record.error}{kept}")
