"""Scheduler: claims, runs, stores and reports cells."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import Any, cast

from fedsub.benchmark.execution.callbacks.base import Callback
from fedsub.benchmark.execution.callbacks.relay import relayed
from fedsub.benchmark.execution.checkpoints import Checkpoints, forget
from fedsub.benchmark.execution.engines import (
    Engine,
    InProcess,
    ProcessPool,
    RunCell,
    SlurmEngine,
    create_engine,
)
from fedsub.benchmark.execution.estimate import expected_seconds
from fedsub.benchmark.execution.leases import Leased, Leases, holder
from fedsub.benchmark.execution.logs import Logged, keep_failure
from fedsub.benchmark.execution.progress import GridProgress, console_for
from fedsub.benchmark.execution.queue import Queue, Wanted
from fedsub.benchmark.execution.runner import failed
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.records.record import FAILED, OK, Record
from fedsub.benchmark.records.search import kept
from fedsub.benchmark.records.store import StoreError, keep_elsewhere
from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.request import Request
from fedsub.datasets.errors import UserError


def run_cells(
    request: Request,
    cells: Sequence[Cell],
    records: Records,
    work: RunCell,
    callbacks: Sequence[Callback],
    until: float,
    quiet: bool,
    wanted: Wanted | None,
) -> list[Record]:
    """Run the cells and store their records; returns the records of those that failed.

    No cell begins after the time `until`, of `time.monotonic`. `callbacks` are called after every round in
    this process; `quiet` shows no progress; `wanted` as in `Queue`.
    """
    failures: list[Record] = []
    engine = create_engine(request, len(cells), records.peak_memory)
    if request.checkpoint and request.engine != "flower":
        for sentence in Checkpoints(request.results, request.checkpoint).describe(cells):
            print(sentence, file=sys.stderr)
    console = console_for(sys.stderr.isatty(), stderr=True)
    console.quiet = quiet
    with (
        Leases(request.results) as leases,
        GridProgress(expected_seconds(cells, records), console) as progress,
        _with_callbacks(request, engine, cells, callbacks, progress, work) as reporting,
    ):
        if not isinstance(engine, InProcess):
            reporting = Logged(reporting, request.results.resolve())
        if isinstance(engine, SlurmEngine):
            reporting = Leased(reporting, request.results.resolve(), holder())
        queue = Queue(cells, records, leases, request.rerun, until, wanted)
        with closing(run_queue(engine, reporting, queue, leases, records, request)) as made:
            for record in made:
                progress.finished(record)
                if record.status == FAILED:
                    failures.append(record)
                    if isinstance(engine, InProcess):
                        keep_failure(request.results.resolve(), record)
    return failures


def run_queue(
    engine: Engine, work: RunCell, queue: Queue, leases: Leases, records: Records, request: Request
) -> Generator[Record]:
    """Run the queue's cells, store their records and give their leases back; yields each cell's valid record.
    Closing the generator stops the engine."""
    while queue.is_open():
        with closing(engine.map(work, queue, failed)) as made_now:
            for made in made_now:
                record = keep(records, made, request)
                leases.give_back(made.key)
                yield record


@contextmanager
def _with_callbacks(
    request: Request,
    engine: Engine,
    cells: Sequence[Cell],
    callbacks: Sequence[Callback],
    progress: GridProgress,
    work: RunCell,
) -> Iterator[RunCell]:
    """Wrap the work so that it calls callbacks and the progress bar after every round."""
    # A federation's rounds are over when its processes end.
    tells = isinstance(engine, (InProcess, ProcessPool)) and request.engine != "flower"
    called = [*callbacks, *([progress.round] if tells and progress.is_seen else [])]
    if not called:
        yield work
    elif isinstance(engine, InProcess):
        yield partial(cast(Any, work), callbacks=called)
    else:
        with relayed(cells, called) as sender:
            yield partial(cast(Any, work), callbacks=[sender])


def keep(records: Records, record: Record, request: Request) -> Record:
    """Append the record; returns it, or a failure if the record cannot be stored. After a success, remove the
    checkpoint. If the file cannot be written, write the record elsewhere and raise a StoreError that says
    where."""
    try:
        records.append(kept(record), replace=request.rerun)
    except StoreError as error:
        try:
            refuge = keep_elsewhere(request.results, record)
        except OSError:
            print(record.to_json(), file=sys.stderr)
            raise error from None
        raise StoreError(f"{error} (this record is kept in {refuge})") from error
    except UserError as error:
        if record.status == FAILED:
            # Not even the failure can be stored: it is only reported, and its cell runs again next time.
            return record
        return keep(records, failed(record.cell, f"its record cannot be stored: {error}"), request)
    if record.status == OK:
        forget(request.results, record.key)
    return record
