"""The command `study authors`: run public code on the clients of our cells without a record."""

from __future__ import annotations

import io
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from fedsub.benchmark.analysis.codes import PublicCode
from fedsub.benchmark.analysis.public_records import AuthorsRuns, Run
from fedsub.benchmark.execution.availability import keep_available
from fedsub.benchmark.execution.leases import Leases
from fedsub.benchmark.execution.runner import make_clients
from fedsub.benchmark.machine import processor
from fedsub.benchmark.records.store import StoreError
from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.request import Request
from fedsub.benchmark.studies.authors.checkout import (
    FOLDER,
    INSTALL,
    VARIABLE,
    check_python,
    chosen,
    version_of,
)
from fedsub.benchmark.studies.authors.grid import plan, worker_of
from fedsub.benchmark.studies.authors.handover import KEPT
from fedsub.benchmark.studies.clients import write_clients
from fedsub.benchmark.studies.worker import Worker, WorkerError, available_memory
from fedsub.datasets.cache import cached, keep
from fedsub.datasets.errors import UserError
from fedsub.methods.core import registry
from fedsub.methods.structure.graphlets import graphlet_degrees, standardised

LONGEST = 6 * 3600.0
"""Seconds after which a run is given up."""
MISSING = "ModuleNotFoundError"
ROOM = "authors"
"""Subfolder of the user's cache for files that a code reuses between runs."""


def run_authors(request: Request, named: Sequence[str], python: Path | None, dry_run: bool) -> int:
    """Run the public codes `named`, each `NAME=PATH`, on the cells that the filters leave; counts failures.

    What has a record of this commit is not run again, unless `--rerun`, and what another process on the same
    results folder is running is left to it. Raises UserError for a checkout, an interpreter or a filter that
    does not fit.
    """
    codes = chosen(named)
    plans = {code: plan(code, request) for code in codes}
    python = python or Path(os.environ.get(VARIABLE) or FOLDER / "bin" / "python")
    if not dry_run:
        check_python(python)
    failures = 0
    for code, checkout in codes.items():
        version = version_of(checkout)
        kept = AuthorsRuns(request.results, code.name)
        waiting = [cell for cell in plans[code] if request.rerun or not kept.done(cell.key, version)]
        print(f"{code.title}: {len(plans[code])} runs, {len(waiting)} of them to run", file=sys.stderr)
        if dry_run:
            for cell in waiting:
                print(f"{cell.key}  {code.name}: {cell.title}")
            continue
        ready, missing = keep_available(waiting, download=True)
        for skip in missing:
            print(f"skipped {skip.what}: {skip.reason}", file=sys.stderr)
        with Leases(request.results) as leases:
            for number, cell in enumerate(ready, start=1):
                print(f"{code.name} {number}/{len(ready)}: {cell.title}", file=sys.stderr, flush=True)
                work = f"authors-{code.name}-{version.replace(':', '-')}-{cell.key}"
                if not leases.claim(work):
                    print("  left to the process that runs it now", file=sys.stderr)
                    continue
                kept.refresh()
                if request.rerun or not kept.done(cell.key, version):
                    failures += not _kept_run(code, checkout, version, cell, python, kept)
                leases.give_back(work)
    return failures


def _kept_run(
    code: PublicCode, checkout: Path, version: str, cell: Cell, python: Path, kept: AuthorsRuns
) -> bool:
    """Run one cell and store the result; returns success. Raises UserError if no run can work."""
    try:
        run = run_one(code, checkout, version, cell, python)
        kept.add(run)
    except WorkerError as error:
        if error.reason.startswith(MISSING):
            raise UserError(f"{python} lacks a package ({error.reason}): {INSTALL}") from error
        print(f"  failed: {error.reason}", file=sys.stderr)
        return False
    except StoreError:
        raise
    except UserError as error:
        # Its clients cannot be made, or a score is no number: those of others may be.
        print(f"  failed: {error}", file=sys.stderr)
        return False
    scores = ", ".join(f"{name} {value:.2f}" for name, value in run.metrics.items())
    print(f"  {scores} in {run.seconds:.0f} s", file=sys.stderr, flush=True)
    return True


def run_one(code: PublicCode, checkout: Path, version: str, cell: Cell, python: Path) -> Run:
    """Hand the clients of our cell over and have the code train on them. Raises WorkerError."""
    with tempfile.TemporaryDirectory(prefix="fedsub-authors-", ignore_cleanup_errors=True) as folder:
        exchange = Path(folder) / "clients.npz"
        federation = make_clients(cell)[2]
        written = write_clients(federation, exchange)
        options = asdict(registry.make_options(cell.method, dict(cell.options)))
        adjacency = federation.source.adjacency()
        kept = cached(ROOM, code.name, adjacency, {"commit": version, **options})
        if options.get("features") == "gdv":
            _keep_counts(kept, adjacency)
        task = {
            "cell": {**cell.to_dict(), "options": options},
            "checkout": str(checkout),
            "exchange": str(exchange),
            "folder": folder,
            "kept": str(kept),
            "memory": available_memory(0.9),
        }
        with Worker(code.name, python, worker_of(code), LONGEST) as worker:
            answer = worker.ask(task)
        if (found := Path(folder) / KEPT).exists():
            keep(kept, found.read_bytes())
    if answer["counts"] != written:
        raise WorkerError(code.name, f"it read {answer['counts']}, but {written} was written")
    return _run(code, version, cell, answer)


def _keep_counts(kept: Path, adjacency: sp.csr_matrix) -> None:
    """Leave our graphlet counts where FedStruct's code finds what an earlier run has counted.

    They are the same integers, and take seconds where the code's loops take hours (docs/authors.md).
    """
    if not kept.exists():
        content = io.BytesIO()
        np.savez_compressed(content, values=standardised(graphlet_degrees(adjacency)))
        keep(kept, content.getvalue())


def _run(code: PublicCode, version: str, cell: Cell, answer: dict[str, Any]) -> Run:
    return Run(
        code=code.name,
        commit=version,
        key=cell.key,
        protocol=cell.protocol,
        dataset=cell.dataset.text,
        partition=cell.partition.text,
        clients=cell.clients,
        method=cell.variant,
        backbone=cell.architecture.backbone,
        seed=cell.seed,
        data_seed=cell.drawn_with,
        metrics={name: round(value, 4) for name, value in answer["metrics"].items()},
        rounds=cell.schedule.rounds,
        seconds=round(answer["seconds"], 3),
        core_share=round(answer["core_share"], 3),
        environment={**answer["environment"], "cpu": processor()},
    )
