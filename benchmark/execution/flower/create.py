"""Writing of a Flower app that runs one cell, and of the data of each of its clients."""

import json
from dataclasses import replace
from pathlib import Path

from fedsub.benchmark.execution.flower.app import OWN, OWN_PARTS
from fedsub.benchmark.execution.runner import make_clients
from fedsub.benchmark.spec import custom
from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.plan import make_plan
from fedsub.benchmark.spec.protocol import bare
from fedsub.benchmark.spec.request import Request
from fedsub.datasets.archive import as_raw, write_archive
from fedsub.datasets.errors import UserError
from fedsub.datasets.federation import Federation
from fedsub.datasets.files import expanded, explained, write_atomically
from fedsub.datasets.plugins import user_objects
from fedsub.methods import tasks
from fedsub.methods.core import registry
from fedsub.methods.core.training import check_selects

PATIENCE = 600
"""Seconds that the server waits for clients to join, and for the messages of a round."""


def create_planned(request: Request, folder: Path) -> Cell:
    """Call `create` with the one cell of a request, with the first of its seeds; returns the cell.

    Raises UserError for a request of several cells, and as `create` does.
    """
    cells = make_plan(request).cells
    cell = cells[0]
    titles = {replace(each, seed=cell.seed).key: f"{each.protocol} {each.title}".strip() for each in cells}
    if len(titles) > 1:
        found = "; ".join(titles.values())
        raise UserError(f"flower create takes one table and one value of each setting, not those of {found}")
    with user_objects(custom.user_objects_of(cell)):
        check(cell)
        create(cell, make_clients(cell)[2], folder)
    return cell


def create(cell: Cell, federation: Federation, folder: Path) -> None:
    """Write the app to `folder`, which must be new or empty, and the data of the cell's clients to
    `folder`/clients.

    Raises UserError for a cell that cannot run as a federation, and a folder with files or not writable.
    """
    check(cell)
    if not federation.validation.any():
        check_selects(cell.schedule, federation.source)
    files = _own_files(cell)
    with explained("write", folder):
        if folder.exists() and any(folder.iterdir()):
            raise UserError(f"{folder} is not empty: give a new folder")
        folder.mkdir(parents=True, exist_ok=True)
        runs = custom.with_metrics(cell, lambda name: Path(name).name)
        for part in OWN_PARTS & custom.paths_of(cell).keys():
            runs = custom.renamed(runs, part, custom.paths_of(cell)[part].name)
        for name, source in files.items():
            write_atomically(folder / OWN / name, source.read_bytes())
        stored = json.dumps(json.dumps(runs.to_dict()))
        for template in (Path(__file__).parent / "templates").iterdir():
            text = template.read_text("utf-8").format(cell=cell, patience=PATIENCE, stored=stored)
            (folder / template.stem).write_text(text, encoding="utf-8")
        for client in range(federation.clients):
            own = federation.only(client).source
            write_archive(folder / "clients" / f"client-{client}.npz", as_raw(own), {"classes": own.classes})


def _own_files(cell: Cell) -> dict[Path, Path]:
    """Path in the app → the user's file. Raises UserError for files that an app cannot hold."""
    own = [(part, path) for part, path in custom.paths_of(cell).items() if part in OWN_PARTS]
    own += [("metric", Path(bare(name))) for name in custom.metrics_of(cell) if "[" in name]
    found: dict[Path, Path] = {}
    for part, path in own:
        for source in custom.sources_of(part, path):
            name = source.relative_to(expanded(path).parent)
            other = found.setdefault(name, source)
            if not source.samefile(other):
                raise UserError(f"an app holds one file {name}, not both {other} and {source}: rename one")
            if name.match("test_*.py") or name.match("*_test.py"):
                raise UserError(f"Flower leaves tests out, and {source} is named like one: rename it")
    return found


def check(cell: Cell) -> None:
    """Raises UserError for a cell that cannot run as a federation."""
    info = registry.describe(cell.method)
    if reason := info.simulation_only_with(registry.make_options(cell.method, dict(cell.options))):
        raise UserError(f"{info.title} runs as a simulation only, because {reason}")
    if cell.task.name != tasks.NodeClassification.name:
        raise UserError(f"{cell.task} runs as a simulation only: its node pairs are drawn over all clients")
    if (moment := cell.schedule.evaluate) in ("neighbour", "whole-graph"):
        raise UserError(f"evaluate={moment} runs as a simulation only: it scores with others' data or models")
