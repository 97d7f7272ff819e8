"""`python -m benchmark`: plan, run, keep, show."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from types import FrameType

from rich.console import Console

from benchmark.arguments import Arguments
from benchmark.availability import keep_available
from benchmark.cell import Cell
from benchmark.devices import describe_device
from benchmark.engines import Work, create_engine
from benchmark.environment import processor
from benchmark.listing import print_listing
from benchmark.pages.leaderboard import leaderboard_path, print_leaderboard, write_leaderboard
from benchmark.plan import Plan, Skip, make_plan
from benchmark.progress import GridProgress
from benchmark.protocol import Protocol, load_protocol, names
from benchmark.record import FAILED as FAILED_RECORD
from benchmark.record import Record
from benchmark.report import write_report
from benchmark.runner import attempt, failed
from benchmark.store import Store, StoreError, keep_elsewhere
from benchmark.verify import SCORE_TOLERANCE, compare, draw
from datasets.errors import UserError

OK, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
WIDTH = 400
"""Columns of a table that is not printed on a terminal."""


def main(arguments: Arguments, work: Work = attempt) -> int:
    """Do what the command line asks; returns the exit code. `work` runs one cell."""
    signal.signal(signal.SIGTERM, _terminate)
    if arguments.data is not None:
        os.environ["FEDSUB_DATA"] = str(arguments.data)
    try:
        return _dispatch(arguments, work)
    except UserError as error:
        print(f"benchmark: {error}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("benchmark: interrupted; finished cells are kept, the same command goes on", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of standard output has gone, as with `| head`: the rest is not wanted.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK


def _terminate(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _dispatch(arguments: Arguments, work: Work) -> int:
    if arguments.list:
        print_listing(console_for(sys.stdout.isatty()))
        return OK
    if arguments.report:
        own = [table for table in arguments.table if table.endswith(".toml")]
        for path in write_report(arguments.results, own):
            print(path)
        known = {*names(), *(Path(table).stem for table in own)}
        for path in sorted((arguments.results / "runs").glob("*.jsonl")):
            if path.stem not in known:
                print(
                    f"skipped {path}: there is no table {path.stem}: name its file with --table",
                    file=sys.stderr,
                )
        return OK
    if arguments.verify is not None:
        return _verify(arguments, arguments.verify, work)
    if arguments.performance is not None:
        from benchmark.performance.parts import measure

        print(measure(arguments))
        return OK
    plan = make_plan(arguments)
    if arguments.dry_run:
        return _dry_run(arguments, plan)
    return _run(arguments, plan, work)


def _verify(arguments: Arguments, count: int, work: Work) -> int:
    """Run stored records again; prints one line for each difference."""
    records = draw(arguments.results, count, arguments.seeds, arguments.table, arguments.max_seconds)
    engine = create_engine(arguments.engine, arguments.workers, arguments.threads, len(records))
    found = elsewhere = 0
    for comparison in compare(records, engine, work):
        for line in comparison.differences:
            print(line)
        found += len(comparison.differences)
        elsewhere += comparison.elsewhere
    summary = f"{len(records)} records run again: {found or 'no'} differences, here on {processor()}"
    if elsewhere:
        summary += f"; {elsewhere} made elsewhere, their scores compared to within {SCORE_TOLERANCE:g} points"
    print(summary, file=sys.stderr)
    return FAILED if found else OK


def console_for(is_terminal: bool, stderr: bool = False) -> Console:
    """A console on standard output or error; off a terminal it does not wrap at 80 columns."""
    return Console(stderr=stderr, width=None if is_terminal else WIDTH)


def _dry_run(arguments: Arguments, plan: Plan) -> int:
    stores = _stores(arguments.results, plan)
    done = {cell.key for cell in plan.cells if stores[cell.protocol].done(cell.key)}
    if arguments.format == "json":
        print(json.dumps([{"key": cell.key, **cell.to_dict()} for cell in plan.cells], indent=1))
    else:
        for cell in plan.cells:
            state = "done" if cell.key in done and not arguments.rerun else "to run"
            print(f"{cell.key}  {state:6}  {cell.protocol}: {cell.title}")
    _say_skipped(plan.skipped)
    print(f"{len(plan.cells)} cells, {len(done)} of them done", file=sys.stderr)
    return OK


def _stores(results: Path, plan: Plan) -> dict[str, Store]:
    """The store of every table in the plan, each file read once."""
    return {name: Store(results, name) for name in dict.fromkeys(cell.protocol for cell in plan.cells)}


def _run(arguments: Arguments, plan: Plan, work: Work) -> int:
    stores = _stores(arguments.results, plan)
    waiting = [cell for cell in plan.cells if arguments.rerun or not stores[cell.protocol].done(cell.key)]
    ready, missing = keep_available(waiting, download=not arguments.all)
    if missing and len(waiting) == len(plan.cells) and not ready:
        raise UserError("; ".join(f"{skip.what}: {skip.reason}" for skip in missing))
    _say_skipped((*plan.skipped, *missing))
    for store in stores.values():
        if ready:
            store.check_writable()
        if store.unreadable:
            print(f"{store.path}: {store.unreadable} unreadable line(s) passed over", file=sys.stderr)
    print(
        f"{len(plan.cells)} cells: {len(plan.cells) - len(waiting)} done before, {len(ready)} to run",
        file=sys.stderr,
    )
    for device, kernel in dict.fromkeys((cell.device, cell.kernel) for cell in ready):
        if device != "cpu":
            print(describe_device(device, kernel), file=sys.stderr)
    try:
        failed_now = _run_cells(arguments, ready, stores, work)
    except BaseException:
        # An interrupted run shows on its page what it finished; why it ended comes first all the same.
        try:
            _write_pages(arguments, stores)
        except (UserError, OSError) as error:
            print(f"benchmark: {error}", file=sys.stderr)
        raise
    protocols = _write_pages(arguments, stores)
    selected = [record for cell in plan.cells if (record := stores[cell.protocol].get(cell.key)) is not None]
    _show(arguments, protocols, selected)
    failures = {record.key: record for record in selected if record.status == FAILED_RECORD}
    failures |= {record.key: record for record in failed_now}
    if failures:
        _say_failed(failures.values(), len(plan.cells), stores)
    return FAILED if failures or (missing and not arguments.all) else OK


def _write_pages(arguments: Arguments, stores: dict[str, Store]) -> dict[str, Protocol]:
    """Write the page of every table in the run, with what other processes finished meanwhile."""
    protocols = {name: _protocol_of(arguments, name) for name in stores}
    for name, protocol in protocols.items():
        stores[name].refresh()
        write_leaderboard(arguments.results, protocol, stores[name].records())
    return protocols


def _say_failed(failures: Collection[Record], cells: int, stores: dict[str, Store]) -> None:
    print(
        f"{len(failures)} of {cells} cells failed; those without a result run again next time:",
        file=sys.stderr,
    )
    for record in failures:
        kept = " (its earlier result stays)" if stores[record.cell.protocol].done(record.key) else ""
        print(f"  {record.cell.title}: {record.error}{kept}", file=sys.stderr)


def _run_cells(
    arguments: Arguments, cells: Sequence[Cell], stores: dict[str, Store], work: Work
) -> list[Record]:
    """Run and keep the cells; returns the records of those that failed."""
    failures: list[Record] = []
    if not cells:
        return failures
    engine = create_engine(arguments.engine, arguments.workers, arguments.threads, len(cells))
    console = console_for(sys.stderr.isatty(), stderr=True)
    records = engine.map(work, cells, failed)
    try:
        with GridProgress(len(cells), console) as progress:
            for made in records:
                record = _keep(stores[made.cell.protocol], made, arguments)
                progress.finished(record)
                if record.status == FAILED_RECORD:
                    failures.append(record)
    finally:
        close: Callable[[], None] | None = getattr(records, "close", None)
        if close is not None:
            close()
    return failures


def _keep(store: Store, record: Record, arguments: Arguments) -> Record:
    """Append the record; where it is not one that can be stored, that is its cell's failure: returns what
    counts. Where the disk refuses, leave it elsewhere and raise StoreError that says where."""
    try:
        store.append(record, replace=arguments.rerun)
    except StoreError as error:
        try:
            refuge = keep_elsewhere(arguments.results, record)
        except OSError:
            print(record.to_json(), file=sys.stderr)
            raise error from None
        raise StoreError(f"{error} (the record at hand is kept in {refuge})") from error
    except UserError as error:
        if record.status == FAILED_RECORD:
            # Not even the failure: it is said, and its cell runs again next time.
            return record
        return _keep(store, failed(record.cell, f"its record cannot be stored: {error}"), arguments)
    return record


def _protocol_of(arguments: Arguments, name: str) -> Protocol:
    for table in arguments.table:
        if table.endswith(".toml") and Path(table).stem == name:
            return load_protocol(table)
    return load_protocol(name)


def _show(arguments: Arguments, protocols: dict[str, Protocol], selected: Sequence[Record]) -> None:
    if arguments.format == "json":
        print(json.dumps([record.to_dict() for record in selected], indent=1, allow_nan=False))
    else:
        console = console_for(sys.stdout.isatty() and not arguments.wide)
        for name, protocol in protocols.items():
            print_leaderboard(protocol, [item for item in selected if item.cell.protocol == name], console)
    for name in protocols:
        print(f"page: {leaderboard_path(arguments.results, name)}", file=sys.stderr)


def _say_skipped(skipped: Sequence[Skip]) -> None:
    for skip in skipped:
        print(f"skipped {skip.what}: {skip.reason}", file=sys.stderr)
