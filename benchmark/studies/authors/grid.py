"""What is run: which methods a public code has, on which cells of which tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedsub.benchmark.cli.arguments import Arguments
from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.plan import grid_cells, make_plan
from fedsub.benchmark.spec.protocol import load_protocol
from fedsub.datasets.errors import UserError
from fedsub.datasets.options import parse_name

DRAWS = 5
"""Seeds of a cell, each a draw of clients and split."""


@dataclass(frozen=True)
class PublicCode:
    """The public code of a paper."""

    name: str
    """As the command line and the records spell it."""
    title: str
    repository: str
    """Its address on GitHub."""
    entry: str
    """A file that every checkout has."""
    worker: str
    """The module that runs it."""
    methods: tuple[str, ...]
    """As the tables spell them."""
    datasets: tuple[str, ...]
    tables: tuple[tuple[str, tuple[int, ...]], ...]
    """Each with the numbers of clients that are run, all that it lists if empty."""
    lacks: str = ""
    """What of its paper's tables it cannot run, or hardly here, and why."""

    def has(self, table: str, point: Mapping[str, Any]) -> bool:
        """Whether it can run the cell at this place of a table's grid."""
        numbers = dict(self.tables).get(table)
        return (
            numbers is not None
            and (not numbers or point["clients"] in numbers)
            and point["method"] in self.methods
            and point["dataset"] in self.datasets
        )


CODES = {
    code.name: code
    for code in (
        PublicCode(
            "fedpub",
            "FED-PUB",
            "JinheonBaek/FED-PUB",
            "models/fedpub/server.py",
            "fedsub.benchmark.studies.authors.fedpub_worker",
            ("local", "fedavg", "fedpub"),
            ("cora", "citeseer", "pubmed"),
            (
                ("fedpub-2", (5, 10, 20)),
                ("fedpub-1", (10, 30, 50)),
                ("fedpub-6", (10,)),
                ("fedpub-7", (10,)),
                ("fedpub-8", (3,)),
                ("fedpub-fig12", (10,)),
            ),
        ),
        PublicCode(
            "fedspray",
            "FedSpray",
            "xbfu/FedSpray",
            "server.py",
            "fedsub.benchmark.studies.authors.fedspray_worker",
            ("local", "fedspray"),
            ("pubmed", "coauthor_physics"),
            (("fedspray-2", ()),),
            lacks="It has no FedAvg. It is slow on a processor, so that of its 500 rounds 100 are run of "
            "most cells.",
        ),
        PublicCode(
            "fedstruct",
            "FedStruct",
            "JavadAliakbari/FedStruct",
            "src/GNN/GNN_server.py",
            "fedsub.benchmark.studies.authors.fedstruct_worker",
            (
                "central",
                "local",
                "fedsgd",
                "fedsage+",
                "fedsage-true",
                "fedstruct[features=deg]",
                "fedstruct[features=gdv]",
                "fedstruct[features=n2v]",
                "fedstruct[features=h2v]",
            ),
            ("cora", "citeseer", "chameleon"),
            (("fedstruct-1", (5, 10)),),
        ),
    )
}
"""By name."""


def plan(code: PublicCode, arguments: Arguments) -> list[Cell]:
    """Our cells that the code can run, and that the filters of the command line leave.

    A variant of a method that the code has may be named though its tables do not list it: what the code has
    no name for changes our cell alone, so that one run of theirs is compared with several readings of ours.
    Raises UserError if none is left.
    """
    cells: dict[str, Cell] = {}
    methods = _methods(code, arguments.method)
    for table, clients in code.tables if methods else ():
        asked = replace(
            arguments,
            table=(table,),
            dataset=_datasets(code, table),
            method=methods,
            partition=(),
            backbone=(),
            clients=(),
            seeds=arguments.seeds or tuple(range(DRAWS)),
        )
        cells |= {
            cell.key: cell
            for cell in make_plan(asked).cells
            if _wanted(cell, arguments) and (not clients or cell.clients in clients)
        }
    if not cells:
        raise UserError(
            f"{code.title}'s code runs none of these cells: it has {', '.join(code.methods)} on "
            f"{', '.join(code.datasets)} in the tables {', '.join(dict(code.tables))}"
        )
    return list(cells.values())


def _datasets(code: PublicCode, table: str) -> tuple[str, ...]:
    """The code's graphs that the table has."""
    present = {cell.dataset.text for cell in grid_cells(load_protocol(table))}
    return tuple(name for name in code.datasets if name in present)


def _methods(code: PublicCode, asked: tuple[str, ...]) -> tuple[str, ...]:
    """Of the code's own those that are asked for, all if none is, and the variants asked for."""
    own = [name for name in code.methods if not asked or {name, parse_name(name)[0]} & {*asked}]
    known = {parse_name(name)[0] for name in code.methods}
    variants = [name for name in asked if "[" in name and parse_name(name)[0] in known]
    return tuple(dict.fromkeys((*own, *variants)))


def _wanted(cell: Cell, arguments: Arguments) -> bool:
    def kept(asked: tuple[str, ...], *names: str) -> bool:
        return not asked or any(name in asked for name in names)

    return (
        kept(arguments.table, cell.protocol)
        and kept(arguments.dataset, cell.dataset.text)
        and kept(arguments.partition, cell.partition.text, cell.partition.name)
        and kept(arguments.backbone, cell.architecture.backbone)
        and (not arguments.clients or cell.clients in arguments.clients)
    )
