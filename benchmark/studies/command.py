"""`study campaign`, `study peers` and `study authors`."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedsub.benchmark.cli import values
from fedsub.benchmark.cli.commands import FAILED, OK, guarded, say
from fedsub.benchmark.cli.parser import (
    Parser,
    add,
    add_engine,
    add_filters,
    add_folders,
    add_settings,
    request_of,
)
from fedsub.benchmark.execution.engines import RunCell
from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.plan import load_protocols, make_plan
from fedsub.benchmark.spec.protocol import names
from fedsub.benchmark.spec.request import Request


def make_parser() -> Parser:
    """The parser of `study`."""
    parser = Parser(prog="benchmark study", description="What maintainers run.")
    commands = parser.add_subparsers(dest="study", required=True, metavar="STUDY", parser_class=Parser)
    campaign = commands.add_parser("campaign", help="run what answers printed figures, cheapest first")
    hours = values.above_zero("a number of hours above 0")
    add(campaign, "--hours", "H", "begin no cell after H hours", type=hours, default=math.inf)
    add_engine(campaign)
    peers = commands.add_parser("peers", help="time this suite and openfgl-lib, interleaved")
    add(peers, "--pairs", "N", "blocks of rounds of each (default: 5)", type=values.positive, default=5)
    add(peers, "--python", "FILE", "interpreter with openfgl-lib (FEDSUB_PEER_PYTHON)", type=Path)
    authors = commands.add_parser("authors", help="run public code on our clients (docs/authors.md)")
    add(authors, "codes", "NAME=PATH", "fedpub, fedspray or fedstruct", nargs="+")
    add(authors, "--python", "FILE", "interpreter for them (FEDSUB_AUTHORS_PYTHON)", type=Path)
    add_settings(authors)
    for study in (campaign, peers, authors):
        add_filters(study)
        add_folders(study)
        add(study, "--rerun", help="run again what has a record", action="store_true")
        add(study, "--dry-run", help="list what is to be run", action="store_true")
    return parser


def main(argv: Sequence[str], work: RunCell | None = None) -> int:
    """Run one study; returns the exit code."""
    parser = make_parser()
    options = parser.parse_args(argv)
    request = request_of(parser, options)
    run = {"campaign": _campaign, "peers": _peers, "authors": _authors}[options.study]
    return guarded(lambda: run(request, options, work), options)


def _campaign(request: Request, options: argparse.Namespace, work: RunCell | None) -> int:
    from fedsub.benchmark.cli.commands import write_pages
    from fedsub.benchmark.execution.estimate import Estimate
    from fedsub.benchmark.execution.run import execute
    from fedsub.benchmark.records.folder import Records
    from fedsub.benchmark.studies.campaign import by_worth, in_words

    # What a filter names, tables that do not list it would run too: filters choose among their own cells.
    asked, tables = replace(request, table=()), request.table or tuple(names())
    request = replace(request, table=tables, dataset=(), method=(), partition=(), clients=(), backbone=())
    protocols = {protocol.name: protocol for protocol in load_protocols(tables)}
    if options.dry_run:
        records = Records(request.results)
        estimate = Estimate(records.every())
        waiting = [cell for cell in make_plan(request).cells if not records.done(cell)]
        cells = by_worth(waiting, estimate, protocols, asked)
        for cell in cells:
            print(f"{cell.key}  {cell.protocol}: {cell.title}")
        say(in_words(cells, estimate, request.workers))
        return OK

    def order(cells: list[Cell], estimate: Estimate) -> list[Cell]:
        found = by_worth(cells, estimate, protocols, asked)
        say(in_words(found, estimate, request.workers))
        return found

    done = execute(
        request,
        work,
        order=order,
        until=time.monotonic() + 3600 * options.hours,
        warn=say,
        inform=say,
        after=lambda plan, records: write_pages(request, protocols, records),
    )
    for record in done.failures:
        say(f"failed: {record.cell.title}: {record.error}")
    return FAILED if done.failures else OK


def _peers(request: Request, options: argparse.Namespace, work: RunCell | None) -> int:
    from fedsub.benchmark.studies.peers.compare import Limits, peer_python, timings
    from fedsub.benchmark.studies.peers.grid import plan
    from fedsub.benchmark.studies.peers.page import write_page

    cells = plan(request.dataset, request.method, request.clients)
    if options.dry_run:
        print(*(cell.key for cell in cells), sep="\n")
        return OK
    python, limits = peer_python(options.python), Limits(pairs=options.pairs)
    try:
        for record in timings(request.results, cells, python, limits, request.rerun):
            say(f"  {record.get('error', 'done')}")
    finally:
        # An interrupted study shows on its page what it measured.
        print(write_page(request.results))
    return OK


def _authors(request: Request, options: argparse.Namespace, work: RunCell | None) -> int:
    from fedsub.benchmark.records.folder import Records
    from fedsub.benchmark.report.public_code import write_authors_page
    from fedsub.benchmark.studies.authors.command import run_authors

    try:
        failures = run_authors(request, options.codes, options.python, options.dry_run)
    finally:
        if not options.dry_run and (page := write_authors_page(request.results, Records(request.results))):
            print(page)
    return FAILED if failures else OK
