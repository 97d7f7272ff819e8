"""`python -m benchmark`: plan, run, keep, show."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, cast

from fedsub.benchmark.cli.arguments import Arguments
from fedsub.benchmark.cli.listing import print_listing
from fedsub.benchmark.execution.engines import RunCell, check_engine
from fedsub.benchmark.execution.estimate import Estimate
from fedsub.benchmark.execution.logs import log_path
from fedsub.benchmark.execution.progress import console_for
from fedsub.benchmark.machine import describe_device, processor
from fedsub.benchmark.records.folder import Records, run_once
from fedsub.benchmark.records.record import FAILED as FAILED_RECORD
from fedsub.benchmark.records.record import OK as OK_RECORD
from fedsub.benchmark.records.record import Record
from fedsub.benchmark.records.store import Store
from fedsub.benchmark.spec.catalog import remembering
from fedsub.benchmark.spec.plan import Plan, Skip, grid_cells, make_plan
from fedsub.benchmark.spec.protocol import Protocol, load_protocol, names, table_name
from fedsub.datasets.errors import UserError
from fedsub.datasets.streams import close_output

OK, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


def main(arguments: Arguments, work: RunCell | None = None) -> int:
    """Do what the command line asks; returns the exit code. `work` runs one cell, else the runner does.

    What needs torch, DGL or a page is imported where it is used: a list or a plan needs none of them.
    """
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
        close_output()
        return OK


def _terminate(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _dispatch(arguments: Arguments, work: RunCell | None) -> int:
    if arguments.list:
        with remembering():
            print_listing(console_for(sys.stdout.isatty()))
        return OK
    if arguments.report:
        _report(arguments)
        return OK
    if arguments.export is not None or arguments.forget:
        _forget(arguments)
        _export(arguments)
        return OK
    check_engine(arguments.engine)
    saving = None
    if arguments.save:
        from fedsub.benchmark.execution.artifacts import Saving

        saving = Saving(arguments.results.resolve(), arguments.save)
    if arguments.dry_run and not (
        arguments.campaign or arguments.authors or arguments.verify or arguments.performance is not None
    ):
        with remembering():
            return _dry_run(arguments, make_plan(arguments))
    if work is None:
        from fedsub.benchmark.execution.runner import attempt, debugged

        work = debugged if arguments.pdb else attempt
        if arguments.checkpoint and arguments.verify is None:
            from fedsub.benchmark.execution.checkpoints import Checkpoints

            checkpoints = Checkpoints(arguments.results.resolve(), arguments.checkpoint)
            work = partial(cast(Any, work), checkpoints=checkpoints)
    if saving is not None:
        work = partial(cast(Any, work), save=saving)
    if arguments.verify is not None:
        return _verify(arguments, arguments.verify, work)
    if arguments.performance is not None:
        from fedsub.benchmark.studies.performance.parts import measure, missing

        if arguments.dry_run:
            for line in missing(arguments):
                print(line)
        else:
            print(measure(arguments))
        return OK
    if arguments.campaign:
        return _campaign(arguments, work)
    if arguments.authors:
        return _run_authors(arguments)
    return _run(arguments, make_plan(arguments), work)


def _forget(arguments: Arguments) -> None:
    if arguments.forget:
        from fedsub.benchmark.execution import artifacts
        from fedsub.benchmark.records.edit import forget

        for record in forget(arguments.results, arguments.forget):
            artifacts.remove(arguments.results, record.key)
            print(f"forgotten: {record.key}  {record.cell.protocol}: {record.cell.title}")


def _export(arguments: Arguments) -> None:
    if arguments.export is not None:
        from fedsub.benchmark.report.export import export_records

        if not any((arguments.results / "runs").glob("*.jsonl")):
            raise UserError(f"{arguments.results} holds no records: name another folder with --results")
        records = Records(arguments.results)
        path = export_records(records, arguments, arguments.export, arguments.rows, arguments.columns)
        for sentence in records.warnings():
            print(sentence, file=sys.stderr)
        print(path)


def _report(arguments: Arguments) -> None:
    """Remake every page; says which records have no table to stand in."""
    from fedsub.benchmark.report.pages import write_report

    own = [table for table in arguments.table if table.endswith(".toml")]
    with remembering():
        pages = write_report(arguments.results, own)
    print(*pages, sep="\n")
    known = {*names(), *(Path(table).stem for table in own)}
    for path in sorted((arguments.results / "runs").glob("*.jsonl")):
        if path.stem not in known:
            print(
                f"skipped {path}: there is no table {path.stem}: name its file with --table", file=sys.stderr
            )


def _campaign(arguments: Arguments, work: RunCell) -> int:
    from fedsub.benchmark.studies.campaign import run_campaign

    failures = run_campaign(arguments, work)
    for record in failures:
        print(f"failed: {record.cell.title}: {record.error}", file=sys.stderr)
    return FAILED if failures else OK


def _run_authors(arguments: Arguments) -> int:
    """Run public code on our clients; the page shows what there is, after an interruption too."""
    from fedsub.benchmark.report.public_code import write_authors_page
    from fedsub.benchmark.studies.authors.command import run_authors

    try:
        failures = run_authors(arguments, arguments.authors, arguments.authors_python, arguments.dry_run)
    finally:
        if not arguments.dry_run and (
            page := write_authors_page(arguments.results, Records(arguments.results))
        ):
            print(page)
    return FAILED if failures else OK


def _verify(arguments: Arguments, count: int, work: RunCell) -> int:
    """Run stored records again; prints one line for each difference."""
    from fedsub.benchmark.analysis.frame import Results
    from fedsub.benchmark.execution.scheduler import engine_for
    from fedsub.benchmark.execution.verify import SCORE_TOLERANCE, compare, draw
    from fedsub.benchmark.report.export import select

    records = draw(
        arguments.results,
        count,
        tables=[*map(table_name, arguments.table)],
        max_seconds=arguments.max_seconds,
        chosen=lambda every: select(Results(tuple(every)), arguments),
    )
    if arguments.dry_run:
        for record in records:
            print(f"{record.key}  {record.cell.protocol}: {record.cell.title}")
        return OK
    taken = {record.key: record.result.peak_memory_mb for record in records}
    engine = engine_for(arguments, len(records), lambda cell: taken[cell.key])
    found = exact = unlike = 0
    for comparison in compare(records, engine, work):
        for line in comparison.differences:
            print(line)
        found += len(comparison.differences)
        exact += comparison.to_the_digit
        unlike += not comparison.alike
    summary = f"{len(records)} records run again: {found or 'no'} differences, {exact} to the digit"
    if unlike:
        summary += (
            f"; of {unlike} made elsewhere or by earlier code scores may move {SCORE_TOLERANCE:g} points"
        )
    summary += f"; here on {processor()}"
    print(summary, file=sys.stderr)
    return FAILED if found else OK


def _dry_run(arguments: Arguments, plan: Plan) -> int:
    records = Records(arguments.results)
    answered = {cell.key: record for cell in plan.cells if (record := records.get(cell)) is not None}
    done = {key for key, record in answered.items() if record.status == OK_RECORD and not arguments.rerun}
    if arguments.format == "json":
        print(json.dumps([{"key": cell.key, **cell.to_dict()} for cell in plan.cells], indent=1))
    else:
        for cell in plan.cells:
            is_done = cell.key in done
            source = answered[cell.key].source if is_done else None
            state = "to run" if not is_done else "done" if source is None else f"done in {source.protocol}"
            print(f"{cell.key}  {state:6}  {cell.protocol}: {cell.title}")
    _say_skipped(plan.skipped)
    _say_unreadable(records, plan)
    waiting = [cell for cell in plan.cells if cell.key not in done]
    unequal = waiting if arguments.rerun else run_once(waiting)
    _say_counts(len(plan.cells), len(waiting), len(waiting), len(unequal))
    return OK


def _say_counts(cells: int, waiting: int, ready: int, unequal: int) -> None:
    """How many cells wait, how many of those have a graph here, how many of these are no other's equal."""
    print(
        f"{_cells(cells)}: {cells - waiting} done before, {unequal} to run"
        + (f", {ready - unequal} equal to those" if unequal < ready else ""),
        file=sys.stderr,
    )


def _run(arguments: Arguments, plan: Plan, work: RunCell) -> int:
    from fedsub.benchmark.execution.availability import keep_available
    from fedsub.benchmark.execution.scheduler import run_cells

    records = Records(arguments.results)
    stores = {cell.protocol: records.store(cell.protocol) for cell in plan.cells}
    waiting = [cell for cell in plan.cells if arguments.rerun or not records.done(cell)]
    ready, missing = keep_available(waiting, download=not arguments.all)
    if missing and len(waiting) == len(plan.cells) and not ready:
        raise UserError("; ".join(f"{skip.what}: {skip.reason}" for skip in missing))
    _say_skipped((*plan.skipped, *missing))
    unequal = ready if arguments.rerun else run_once(ready)
    for store in stores.values():
        if ready:
            store.check_writable()
    _say_unreadable(records, plan)
    _say_counts(len(plan.cells), len(waiting), len(ready), len(unequal))
    _say_unsaved(arguments, [found for cell in plan.cells if (found := records.get(cell)) is not None])
    ready = unequal
    for device, kernel in dict.fromkeys((cell.device, cell.kernel) for cell in ready):
        if device != "cpu":
            print(describe_device(device, kernel), file=sys.stderr)
    try:
        failed_now = run_cells(arguments, ready, records, work, Estimate(records.every()))
    except BaseException:
        # An interrupted run shows on its page what it finished; why it ended comes first all the same.
        try:
            _write_pages(arguments, stores, records)
        except (UserError, OSError) as error:
            print(f"benchmark: {error}", file=sys.stderr)
        raise
    protocols = _write_pages(arguments, stores, records)
    selected = [record for cell in plan.cells if (record := records.get(cell)) is not None]
    _show(arguments, protocols, selected if arguments.seeds else _of_all_seeds(plan, protocols, records))
    failures = {record.key: record for record in selected if record.status == FAILED_RECORD}
    failures |= {record.key: record for record in failed_now}
    if failures:
        _say_failed(arguments, failures.values(), len(plan.cells), stores)
    return FAILED if failures or (missing and not arguments.all) else OK


def _of_all_seeds(plan: Plan, tables: Iterable[str], records: Records) -> list[Record]:
    """What is on record of the rows of the run, as on their pages."""
    rows = {cell.group: cell for cell in plan.cells}
    return [
        record
        for table in tables
        for record in records.of_table(table, (cell for cell in rows.values() if cell.protocol == table))
        if record.cell.group in rows
    ]


def _write_pages(arguments: Arguments, stores: Collection[str], records: Records) -> dict[str, Protocol]:
    """Write the page of every table in the run, with what other processes finished meanwhile."""
    from fedsub.benchmark.analysis.public_code import by_work
    from fedsub.benchmark.analysis.public_records import load
    from fedsub.benchmark.analysis.scores import Leaderboard
    from fedsub.benchmark.report.leaderboard import write_leaderboard

    protocols = {name: _protocol_of(arguments, name) for name in stores}
    records.refresh()
    theirs = by_work(load(arguments.results), records)
    for name, protocol in protocols.items():
        found = records.of_table(name, grid_cells(protocol))
        write_leaderboard(arguments.results, Leaderboard(protocol, found), theirs)
    return protocols


def _cells(count: int) -> str:
    return f"{count} cell{'' if count == 1 else 's'}"


def _say_failed(
    arguments: Arguments, failures: Collection[Record], cells: int, stores: dict[str, Store]
) -> None:
    print(
        f"{len(failures)} of {_cells(cells)} failed; those without a result run again next time:",
        file=sys.stderr,
    )
    for record in failures:
        kept = " (its earlier result stays)" if stores[record.cell.protocol].done(record.key) else ""
        log = log_path(arguments.results, record.key)
        kept += f" (log: {log})" if log.is_file() else ""
        print(f"  {record.cell.title}: {record.error}{kept}", file=sys.stderr)


def _protocol_of(arguments: Arguments, name: str) -> Protocol:
    for table in arguments.table:
        if table_name(table) == name:
            return load_protocol(table)
    return load_protocol(name)


def _show(arguments: Arguments, protocols: dict[str, Protocol], selected: Sequence[Record]) -> None:
    from fedsub.benchmark.analysis.metrics import unreported
    from fedsub.benchmark.analysis.scores import Leaderboard
    from fedsub.benchmark.report.leaderboard import leaderboard_path, print_leaderboard

    if arguments.format == "json":
        print(json.dumps([record.to_dict() for record in selected], indent=1, allow_nan=False))
    else:
        console = console_for(sys.stdout.isatty() and not arguments.wide)
        for name, protocol in protocols.items():
            own = [item for item in selected if item.cell.protocol == name]
            print_leaderboard(Leaderboard(protocol, own), console)
    for name, protocol in protocols.items():
        print(f"page: {leaderboard_path(arguments.results, name)}", file=sys.stderr)
        own = [item for item in selected if item.cell.protocol == name]
        for metric, near in unreported(protocol.metrics, own).items():
            # A part of a table of the benchmark lacks scores of the methods that are left out.
            if near or name not in names():
                hint = f": did you mean {', '.join(near)}?" if near else ", which its table names"
                print(f"no run has the score {metric!r}{hint}", file=sys.stderr)


def _say_unsaved(arguments: Arguments, known: Sequence[Record]) -> None:
    """Name what `--save` asks for and no run of this command will leave."""
    if not arguments.save or arguments.rerun:
        return
    from fedsub.benchmark.execution.artifacts import Saving

    saving = Saving(arguments.results, arguments.save)
    if count := sum(record.status == OK_RECORD and saving.lacks(record) for record in known):
        print(
            f"{_cells(count)} done before without the files that --save asks for: run again with --rerun",
            file=sys.stderr,
        )


def _say_unreadable(records: Records, plan: Plan) -> None:
    for sentence in records.warnings({cell.protocol for cell in plan.cells}):
        print(sentence, file=sys.stderr)


def _say_skipped(skipped: Sequence[Skip]) -> None:
    for skip in skipped:
        print(f"skipped {skip.what}: {skip.reason}", file=sys.stderr)
