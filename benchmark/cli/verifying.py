"""`fedsub verify`: run stored records again and compare every figure."""

import sys
from argparse import Namespace
from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from fedsub.benchmark.analysis.frame import Results, select
from fedsub.benchmark.cli.commands import say, warn
from fedsub.benchmark.execution.engines import RunCell, create_engine
from fedsub.benchmark.execution.runner import attempt
from fedsub.benchmark.execution.verify import CHANGED, FEW_TOLERANCE, SCORE_TOLERANCE, compare, draw
from fedsub.benchmark.machine import processor
from fedsub.benchmark.records.bundle import Places, relocated, unpack
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.records.latest import FILE, add_verified
from fedsub.benchmark.records.record import Record
from fedsub.benchmark.spec.custom import code_of
from fedsub.benchmark.spec.request import Request


def run_verify(request: Request, options: Namespace, work: RunCell | None) -> int:
    """Run stored records, or those of a bundle, again; prints one line per difference and returns the exit
    code."""
    checked: list[Record] = []
    try:
        with TemporaryDirectory() as folder:
            places: Places = {}
            count, again = options.count, request
            if not isinstance(count, int):
                places, count = unpack(count, Path(folder)), sys.maxsize
                again = replace(request, results=Path(folder) / "results")
                if options.trust:
                    # Code in the bundle may import modules beside it, also in worker processes.
                    found = (path for each in places.values() for path in each.values())
                    sys.path += sorted({str(path.parent) for path in found})
            return _run_again(again, options, work, count, places, checked)
    finally:
        # Also those before an interruption.
        if options.by and checked:
            add_verified(request.results, options.by, checked)
            say(f"{request.results / FILE}: {len(checked)} records verified by {options.by}")


def _run_again(
    request: Request,
    options: Namespace,
    work: RunCell | None,
    count: int,
    places: Places,
    checked: list[Record],
) -> int:
    """Return the exit code; add the records without a difference to `checked`."""
    passed_over: Counter[str] = Counter()
    stored = Records(request.results)
    try:
        held = stored.of_tables(request.table)
        moved = Results(tuple(relocated(each, places) for each in held))
        chosen = select(moved, replace(request, table=()))
        limits = (options.max_seconds, options.trust, passed_over, request.is_elsewhere)
        records = draw(chosen, count, *limits)
    finally:
        warn(stored)
    # A record may have another key in a bundle.
    own = {relocated(each, places).key: each for each in (held if places else records)}
    if options.dry_run:
        for record in records:
            cell = record.cell
            print(f"{own[record.key].key}  {cell.protocol}: {cell.title}", *code_of(cell))
        return 0
    taken = {record.key: record.result.peak_memory_mb for record in records}
    engine = create_engine(request, len(records), lambda cell: taken[cell.key])
    found = exact = unlike = 0
    for comparison in compare(records, engine, work or attempt):
        for line in comparison.differences:
            print(line)
        found += len(comparison.differences)
        exact += comparison.to_the_digit
        unlike += not comparison.alike
        if not comparison.differences:
            checked.append(own[comparison.record.key])
    summary = f"{len(records)} records run again: {found or 'no'} differences, {exact} equal to the digit"
    if unlike:
        summary += f"; scores of {unlike} from other machines or code may differ by {SCORE_TOLERANCE:g}"
        summary += f" points, of last rounds, rare classes and small graphs by up to {2 * FEW_TOLERANCE:g}"
    say(f"{summary}; run on {processor()}")
    for reason, many in (+passed_over).items():
        say(f"skipped: {many} {reason}")
    return int(bool(found or passed_over[CHANGED]))
