"""`study peers` and `study authors`."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from fedsub.benchmark.cli import values
from fedsub.benchmark.cli.commands import FAILED, OK, guarded, say
from fedsub.benchmark.cli.parser import CHOICE, FOLDERS, SETTING, Parser, request_of
from fedsub.benchmark.machine import ROOT
from fedsub.benchmark.spec.request import Request


def make_parser() -> Parser:
    """The parser of `study`."""
    parser = Parser(prog="fedsub study", description="What maintainers run.")
    commands = parser.add_subparsers(dest="study", required=True, metavar="STUDY", parser_class=Parser)
    peers = commands.add_parser("peers", help="time this suite and openfgl-lib in alternating blocks")
    pairs = "timed blocks of rounds of each suite (default: 5)"
    peers.add_argument("--pairs", metavar="N", help=pairs, type=values.positive, default=5)
    authors = commands.add_parser("authors", help="run authors' public code on our clients (docs/authors.md)")
    authors.add_argument("codes", metavar="NAME=PATH", help="fedpub, fedspray or fedstruct", nargs="+")
    peers.add_options(("dataset", "method", "clients"))
    authors.add_options((*SETTING, *CHOICE))
    for study, variable, folder in (
        (peers, "FEDSUB_PEER_PYTHON", ".venv-peers"),
        (authors, "FEDSUB_AUTHORS_PYTHON", ".venv-authors"),
    ):
        python = Path(os.environ.get(variable) or ROOT / folder / "bin" / "python")
        text = f"its Python interpreter ({variable})"
        study.add_argument("--python", metavar="FILE", help=text, type=Path, default=python)
        study.add_options((*FOLDERS, "rerun", "dry-run"))
    return parser


def main(argv: Sequence[str]) -> int:
    """Run one study; returns the exit code."""
    parser = make_parser()
    options = parser.parse_args(argv)
    request = request_of(parser, options)
    run = {"peers": _peers, "authors": _authors}[options.study]
    return guarded(lambda: run(request, options), options)


def _peers(request: Request, options: argparse.Namespace) -> int:
    from fedsub.benchmark.studies.peers.compare import check_peer, plan, timings, write_page

    cells = plan(request.dataset, request.method, request.clients)
    if options.dry_run:
        print(*(cell.key for cell in cells), sep="\n")
        return OK
    check_peer(options.python)
    failed = False
    try:
        for record in timings(request.results, cells, options.python, options.pairs, request.rerun):
            failed |= "error" in record
            say(f"  {record.get('error', 'done')}")
    finally:
        # An interrupted study shows on its page what it measured.
        print(write_page(request.results))
    return FAILED if failed else OK


def _authors(request: Request, options: argparse.Namespace) -> int:
    from fedsub.benchmark.analysis.public_code import compare, load
    from fedsub.benchmark.records.folder import Records
    from fedsub.benchmark.report.pages import boards_of
    from fedsub.benchmark.report.summaries import write_authors_page
    from fedsub.benchmark.spec.protocol import names
    from fedsub.benchmark.studies.authors.command import run_authors

    try:
        failures = run_authors(request, options.codes, options.python, options.dry_run)
    finally:
        if not options.dry_run and (runs := load(request.results)):
            tables = {run.protocol for found in runs.values() for run in found} & {*names()}
            boards = boards_of(Records(request.results), sorted(tables))
            print(write_authors_page(request.results, runs, compare(runs, boards)))
    return FAILED if failures else OK
