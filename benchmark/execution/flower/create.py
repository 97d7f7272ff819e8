"""Writes a Flower app that runs one cell, and the data of each of its clients."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from fedsub.benchmark.execution.flower.app import METHOD_FILE
from fedsub.benchmark.spec.cell import Cell
from fedsub.datasets.archive import as_raw, write_archive
from fedsub.datasets.errors import UserError
from fedsub.datasets.federation import Federation
from fedsub.methods.core import registry, tasks

PACKAGE = "federation"
PATIENCE = 600
"""Seconds that the server waits for clients to join, and for the messages of a round."""
PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "fedsub-federation"
version = "1.0.0"
description = "{title}"
license = "Apache-2.0"
dependencies = ["fedsub-bench[flower]"]

[tool.hatch.build.targets.wheel]
packages = ["{package}"]

[tool.flwr.app]
publisher = "fedsub"

[tool.flwr.app.components]
serverapp = "{package}.server:app"
clientapp = "{package}.client:app"

[tool.flwr.app.config]
cell = {cell}
patience = {patience}
outcome = "outcome.json"
"""
README = """\
# {title}

`clients/client-N.npz` holds the nodes, edges and labels of client N. Copy it to that client's machine, with
nothing else of this folder. Each machine needs `pip install 'fedsub-bench[flower]'`.

1. The server: `flower-superlink --insecure --disable-runtime-dependency-installation`
2. Client N: `flower-supernode --insecure --superlink SERVER:8000 --node-config
   'partition-id=N num-partitions={clients} data="/path/to/client-N.npz"'`
3. Start: `flwr run . LINK --stream`, with `[superlink.LINK] address = "SERVER:8000"` and `insecure = true` in
   `$FLWR_HOME/config.toml`

`--insecure` sends everything in clear text; Flower's documentation has the options for TLS and node keys. The
server writes `outcome.json` to its working folder.
"""


def create(cell: Cell, federation: Federation, folder: Path) -> None:
    """Write the app to `folder`, which must be new or empty, and the data of the cell's clients to
    `folder`/clients.

    Raises UserError for a cell that cannot run as a federation, and for a folder that holds something.
    """
    check(cell)
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} is not empty: name a new folder")
    package = folder / PACKAGE
    package.mkdir(parents=True)
    for side in ("client", "server"):
        text = (
            "from pathlib import Path\n\n"
            f"from fedsub.benchmark.execution.flower.{side} import {side}_app\n\n"
            f"app = {side}_app(Path(__file__).parent)\n"
        )
        (package / f"{side}.py").write_text(text, encoding="utf-8")
    (package / "__init__.py").touch()
    if (own := Path(cell.method)).suffix == ".py":
        shutil.copyfile(own, package / METHOD_FILE)
    stored = json.dumps(json.dumps(cell.to_dict()))
    title = json.dumps(cell.title)[1:-1]
    project = PROJECT.format(title=title, package=PACKAGE, cell=stored, patience=PATIENCE)
    (folder / "pyproject.toml").write_text(project, encoding="utf-8")
    (folder / "README.md").write_text(README.format(title=cell.title, clients=cell.clients), encoding="utf-8")
    clients = folder / "clients"
    clients.mkdir()
    for client in range(federation.clients):
        held = federation.only(client).source
        write_archive(clients / f"client-{client}.npz", as_raw(held), {"classes": held.classes})


def check(cell: Cell) -> None:
    """Raises UserError for a cell that cannot run as a federation."""
    title = registry.describe(cell.method).title
    if reason := registry.describe(cell.method).simulation_only:
        raise UserError(f"{title} runs as a simulation only, because {reason}")
    if cell.task.name != tasks.NodeClassification.name:
        raise UserError(f"{cell.task} runs as a simulation only: its pairs are drawn over all clients")
    if cell.schedule.evaluate == "neighbour":
        raise UserError("evaluate=neighbour runs as a simulation only: it scores with others' models")
    if cell.schedule.protects or cell.schedule.compresses:
        raise UserError(
            "privacy and small messages are not yet sent over Flower: leave them at their defaults"
        )
