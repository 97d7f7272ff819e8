"""The cells of our tables that a public code can run."""

from __future__ import annotations

from dataclasses import replace

from fedsub.benchmark.analysis.codes import PublicCode
from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.plan import grid_cells, is_chosen, make_plan
from fedsub.benchmark.spec.protocol import load_protocol
from fedsub.benchmark.spec.request import Request
from fedsub.datasets.errors import UserError
from fedsub.datasets.options import parse_name

DRAWS = 5
"""Seeds of a cell, each a draw of clients and split."""


def worker_of(code: PublicCode) -> str:
    """The module that runs the code."""
    return f"fedsub.benchmark.studies.authors.{code.name}_worker"


def plan(code: PublicCode, request: Request) -> list[Cell]:
    """Our cells that the code can run, restricted by the request's filters.

    A variant of a method that the code has may be named though its tables do not list it: what the code has
    no name for changes our cell alone, so that one run of theirs is compared with several readings of ours.
    Raises UserError if none is left.
    """
    cells: dict[str, Cell] = {}
    methods = _methods(code, request.method)
    for table, clients in code.tables.items() if methods else ():
        asked = replace(
            request,
            table=(table,),
            dataset=_datasets(code, table),
            method=methods,
            partition=(),
            backbone=(),
            clients=(),
            seeds=request.seeds or tuple(range(DRAWS)),
        )
        cells |= {
            cell.key: cell
            for cell in make_plan(asked).cells
            if is_chosen(cell, replace(request, method=())) and (not clients or cell.clients in clients)
        }
    if not cells:
        raise UserError(
            f"{code.title}'s code runs none of these cells: it has {', '.join(code.methods)} on "
            f"{', '.join(code.datasets)} in the tables {', '.join(code.tables)}"
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
