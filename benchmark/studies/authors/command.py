"""The command `study authors`: run public code on the clients of our cells that have no record of it."""

import hashlib
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from fedsub.benchmark.analysis.public_code import CODES, AuthorsRuns, PublicCode, Run
from fedsub.benchmark.execution.run import keep_available
from fedsub.benchmark.execution.runner import make_clients
from fedsub.benchmark.machine import git, processor
from fedsub.benchmark.records.store import StoreError
from fedsub.benchmark.spec.cell import FIELDS, Cell
from fedsub.benchmark.spec.plan import grid_cells, make_plan
from fedsub.benchmark.spec.protocol import bare, load_protocol
from fedsub.benchmark.spec.request import Request
from fedsub.benchmark.studies.clients import write_clients
from fedsub.benchmark.studies.worker import Worker, WorkerError, available_memory, lacks
from fedsub.datasets.errors import UserError, unknown
from fedsub.methods.core import registry
from fedsub.methods.structure.graphlets import graphlet_degrees, standardised

INSTALL = (
    "make an environment with python3 -m venv .venv-authors and "
    ".venv-authors/bin/pip install -r benchmark/studies/authors/requirements.txt"
)
LONGEST = 6 * 3600.0
"""Seconds after which a run counts as failed."""
MISSING = "ModuleNotFoundError"
DRAWS = 5
"""Seeds of a cell, each a draw of clients and split."""
FIXED = ("task", "participation", "stragglers", "leavers")
"""Settings that both programs would need, and that no worker passes on."""


def run_authors(request: Request, named: Sequence[str], python: Path, dry_run: bool) -> int:
    """Run the public codes `named`, each `NAME=PATH`, on the selected cells; return the number of cells
    that failed or lack their graph.

    Cells with a record of this commit are skipped unless `--rerun` is given. Raises UserError for an invalid
    checkout, interpreter or filter.
    """
    codes = chosen(named)
    plans = {name: plan(CODES[name], request) for name in codes}
    if not dry_run and (reason := lacks(python, "import torch, numpy, scipy")):
        raise UserError(
            f"{python} cannot run the authors' code ({reason}): {INSTALL}, or give another interpreter with "
            "--python or FEDSUB_AUTHORS_PYTHON"
        )
    failures = 0
    for name, checkout in codes.items():
        code, cells, version = CODES[name], plans[name], version_of(checkout)
        kept = AuthorsRuns(request.results, code.name)
        done = {run.key for run in kept.values() if run.commit == version}
        waiting = [cell for cell in cells if request.rerun or cell.key not in done]
        print(f"{code.title}: {len(cells)} runs, {len(waiting)} of them to run", file=sys.stderr)
        if dry_run:
            for cell in waiting:
                print(f"{cell.key}  {code.name}: {cell.title}")
            continue
        ready, missing = keep_available(waiting, download=True)
        for skip in missing:
            print(f"skipped {skip.what}: {skip.reason}", file=sys.stderr)
        failures += len(waiting) - len(ready)
        for number, cell in enumerate(ready, start=1):
            print(f"{code.name} {number}/{len(ready)}: {cell.title}", file=sys.stderr, flush=True)
            try:
                run = run_one(code, checkout, version, cell, python)
                kept.add(run)
            except StoreError:
                raise
            except (WorkerError, UserError) as error:
                if str(error).startswith(MISSING):
                    raise UserError(f"{python} lacks a package ({error}): {INSTALL}") from error
                print(f"  failed: {error}", file=sys.stderr)
                failures += 1
                continue
            scores = ", ".join(f"{name} {value:.2f}" for name, value in run.metrics.items())
            print(f"  {scores} in {run.seconds:.0f} s", file=sys.stderr, flush=True)
    return failures


def chosen(given: Sequence[str]) -> dict[str, Path]:
    """Return names of public codes and the codes' folders from `NAME=PATH` arguments.

    Raises UserError for an unknown name and for a path that holds another code.
    """
    found = {}
    for text in given:
        name, equals, path = text.partition("=")
        if name not in CODES:
            raise unknown("public code", name, CODES)
        code = CODES[name]
        if not equals or not (Path(path) / code.entry).is_file():
            raise UserError(
                f"{text} is not a checkout of {code.title}'s code: write {name}=PATH, PATH being a clone of "
                f"https://github.com/{code.repository}, which has {code.entry}"
            )
        found[name] = Path(path).resolve()
    return found


def version_of(checkout: Path) -> str:
    """Return the commit, with `-dirty` if a tracked file was changed; without git a digest of the code."""
    if git(checkout, "rev-parse", "--show-toplevel") == str(checkout):
        changed = git(checkout, "status", "--porcelain", "--untracked-files=no")
        return f"{git(checkout, 'rev-parse', 'HEAD')}{'' if changed == '' else '-dirty'}"
    digest = hashlib.sha256()
    for path in sorted(checkout.rglob("*.py")):
        digest.update(f"{path.relative_to(checkout)}\0".encode() + path.read_bytes())
    return f"sha256:{digest.hexdigest()[:40]}"


def plan(code: PublicCode, request: Request) -> list[Cell]:
    """Return our cells that the code can run, restricted by the request's filters.

    The request may name variants of the code's methods that its tables do not list. Options unknown to the
    code change only our cell, so that one run of theirs is compared with several variants of ours.
    Raises UserError if no cell is left, and for a setting in `FIXED`.
    """
    own = [name for name in code.methods if not request.method or {name, bare(name)} & {*request.method}]
    known = {*map(bare, code.methods)}
    variants = [name for name in request.method if "[" in name and bare(name) in known]
    methods = tuple(dict.fromkeys((*own, *variants)))
    cells: dict[str, Cell] = {}
    for table, clients in code.tables.items() if methods else ():
        present = {cell.dataset.text for cell in grid_cells(load_protocol(table))}
        asked = replace(
            request,
            table=(table,),
            dataset=tuple(name for name in code.datasets if name in present),
            method=methods,
            partition=(),
            backbone=(),
            clients=(),
            seeds=request.seeds or tuple(range(DRAWS)),
        )
        cells |= {
            cell.key: cell
            for cell in make_plan(asked).cells
            if _is_asked(cell, request) and (not clients or cell.clients in clients)
        }
    if not cells:
        raise UserError(
            f"{code.title}'s code can run none of the selected cells: it has {', '.join(code.methods)} on "
            f"{', '.join(code.datasets)} in the tables {', '.join(code.tables)}"
        )
    for name in FIXED:
        if any(FIELDS[name].of(cell) != FIELDS[name].default for cell in cells.values()):
            raise UserError(f"{name} is not passed on to the public codes: leave it out of --set")
    return list(cells.values())


def _is_asked(cell: Cell, request: Request) -> bool:
    """Whether a cell passes the request's filters, methods aside; a bare name passes every variant."""
    point = {**cell.point, "table": cell.protocol}
    filters = {axis: getattr(request, axis) for axis in point if axis != "method"}
    return all(not asked or {point[axis], bare(point[axis])} & {*asked} for axis, asked in filters.items())


def run_one(code: PublicCode, checkout: Path, version: str, cell: Cell, python: Path) -> Run:
    """Run the code in a worker on the clients of our cell. Raises WorkerError."""
    with tempfile.TemporaryDirectory(prefix="fedsub-authors-", ignore_cleanup_errors=True) as folder:
        exchange, graphlets = Path(folder) / "clients.npz", Path(folder) / "graphlets.npz"
        federation = make_clients(cell)[2]
        written = write_clients(federation, exchange)
        options = asdict(registry.make_options(cell.method, dict(cell.options)))
        if options.get("features") == "gdv":
            # Our graphlet counts, for FedStruct's code in place of those of an earlier run: the integers are
            # the same, and take seconds to count; the code's loops take hours (docs/authors.md).
            counts = graphlet_degrees(federation.source.adjacency())
            np.savez(graphlets, values=standardised(counts))
        task = {
            "cell": {**cell.to_dict(), "options": options},
            "seed": cell.seed,
            "checkout": str(checkout),
            "exchange": str(exchange),
            "folder": folder,
            "graphlets": str(graphlets),
            "memory": available_memory(0.9),
        }
        module = f"fedsub.benchmark.studies.authors.{code.name}_worker"
        with Worker(code.name, python, module, LONGEST) as worker:
            answer = worker.ask(task)
    if answer["counts"] != written:
        raise WorkerError(code.name, f"the worker read {answer['counts']}, but {written} was written")
    return Run(
        code=code.name,
        commit=version,
        key=cell.key,
        protocol=cell.protocol,
        **cell.point,
        seed=cell.seed,
        data_seed=cell.drawn_with,
        metrics={name: round(value, 4) for name, value in answer["metrics"].items()},
        rounds=cell.schedule.rounds,
        seconds=round(answer["seconds"], 3),
        core_share=round(answer["core_share"], 3),
        environment={**answer["versions"], "threads": 1, "cpu": processor()},
    )
