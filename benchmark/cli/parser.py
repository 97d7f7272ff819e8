"""The command line: commands and their options, read without importing anything heavy.

Thread limits must be set before numerical libraries are imported, so this module imports none.
"""

from __future__ import annotations

import argparse
import difflib
import math
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from fedsub.benchmark.cli import values
from fedsub.benchmark.spec.request import Request
from fedsub.datasets.errors import UserError

FILTERS = {
    "table": ("T", "protocols, one per published table (or the path of a .toml file)"),
    "dataset": ("D", "graphs; without --table they run under the default protocol"),
    "method": ("M", "methods; options in brackets select or add exactly that variant"),
    "partition": ("P", "partition schemes"),
    "clients": ("K", "numbers of clients"),
    "backbone": ("B", "gcn, sgc, graphsage or mlp"),
}
"""What chooses cells and records: metavar and help."""
_AS_SETTINGS = ("rounds", "kernel", "device", "task")
"""Settings with an option of their own."""
_REPLACED = {
    "--report": "report",
    "--verify": "verify N",
    "--export": "export FILE",
    "--forget": "records forget KEY",
    "--rename": "export FILE --title NAME=TITLE",
    "--campaign": "study campaign",
    "--authors": "study authors NAME=PATH",
    "--peers": "study peers",
    "--performance": "study peers",
}
"""Former options → the command that does the same."""
_OF_THEIR_OWN = {
    "data": "list, fetch, inspect, export and divide graphs (python -m datasets)",
    "study": "what maintainers run: campaign, peers, authors",
}
"""Commands with parsers of their own."""
_SEVERAL: dict[str, Any] = {"nargs": "+", "action": "extend", "default": []}


@dataclass(frozen=True)
class Command:
    """What a command line asks for."""

    name: str
    request: Request
    options: argparse.Namespace
    """The options of the command besides those of the request."""


class Parser(argparse.ArgumentParser):
    """Answers bad usage with one sentence and exit code 2; options are spelt in full."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **settings})

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse does; an unknown option is answered with the nearest ones, or the command it became."""
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            name = unknown[0].partition("=")[0]
            if name in _REPLACED:
                self.error(f"{name} is a command now: {self.prog} {_REPLACED[name]}")
            near = difflib.get_close_matches(name, _options_of(self, args), n=3)
            self.error(f"there is no {unknown[0]}" + (f", did you mean {', '.join(near)}?" if near else ""))
        return found

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see --help\n")


def _options_of(parser: argparse.ArgumentParser, args: Sequence[str]) -> list[str]:
    """The options of the command that `args` name."""
    found = [*parser._option_string_actions]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction) and args[0] in action.choices:
            found += _options_of(action.choices[args[0]], args[1:] or [""])
    return found


class _Version(argparse.Action):
    """Prints the version; looked up when asked for, which costs more than all of `--help`."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"fedsub-bench {version('fedsub-bench')}")
        except PackageNotFoundError:
            print("fedsub-bench, not installed: run from its sources")
        parser.exit()


class _Completion(argparse.Action):
    """Prints what a shell reads to complete the command `fedsub`."""

    def __call__(self, parser: argparse.ArgumentParser, _: object, shell: Any, *__: object) -> NoReturn:
        try:
            import shtab
        except ModuleNotFoundError:
            parser.error("completion needs shtab: pip install 'fedsub-bench[completion]'")
        from fedsub.datasets.streams import close_output

        parser.prog = "fedsub"
        with suppress(BrokenPipeError):
            print(shtab.complete(parser, shell), flush=True)
            parser.exit()
        close_output()
        parser.exit()


def make_parser() -> Parser:
    """The parser of all commands but `study`, which has its own."""
    parser = Parser(
        prog="benchmark",
        description="Run subgraph federated learning benchmarks and compare them with published tables.",
        epilog="Without a command it runs: `--dataset cora --method fedavg` is `run --dataset cora --method "
        "fedavg`, and `run --help` lists those options. Filters take several values, separated by spaces "
        "or commas. Names may carry options: 'fedprox[mu=0.1]', 'community[nodes=2000]'.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    parser.add_argument(
        "--print-completion",
        action=_Completion,
        choices=("bash", "zsh", "tcsh"),
        help="print the script with which the shell completes fedsub",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)

    def command(name: str, text: str) -> Parser:
        added: Parser = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        return added

    run = command("run", "run cells and show their leaderboards (the default)")
    choosing = run.add_argument_group("what to run")
    add_filters(choosing)
    add_settings(choosing)
    add_engine(run.add_argument_group("how to run it"))
    _add_running(run.add_argument_group("what to keep"))
    showing = run.add_argument_group("what to show")
    add_folders(showing)
    _add_format(showing)
    showing.add_argument("--dry-run", action="store_true", help="list the cells and run none")

    listing = command("list", "list methods, graphs, partitions, splits and tables, or describe one method")
    listing.add_argument("name", nargs="?", metavar="METHOD", help="a method, to see its options")

    show = command("show", "show the leaderboards of stored records and run nothing")
    add_filters(show)
    add_folders(show)
    _add_format(show)

    report = command("report", "remake every page of the results folder")
    report.add_argument("--table", **_SEVERAL, metavar="FILE", help="tables of your own, .toml files")
    report.add_argument("--open", action="store_true", help="open index.html in the browser")
    add_folders(report)

    export = command("export", "write a table of the records: .tex, .md, .csv or .parquet")
    export.add_argument("file", type=Path, metavar="FILE", help="its ending names the format")
    add_filters(export)
    export.add_argument("--rows", default="method", metavar="NAME", help="default: method")
    export.add_argument("--columns", default="dataset", metavar="NAME", help="default: dataset")
    export.add_argument(
        "--title",
        type=values.title,
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME=TITLE",
        help="what a row or column is called in the table: 'fedprox[mu=0.1]=FedProx'",
    )
    add_folders(export)

    verify = command("verify", "run stored records again and compare every figure")
    verify.add_argument("count", type=values.positive, metavar="N", help="how many records")
    add_filters(verify)
    verify.add_argument(
        "--max-seconds",
        type=values.above_zero("a number of seconds above 0"),
        default=math.inf,
        metavar="S",
        help="of records that took at most S seconds",
    )
    verify.add_argument("--dry-run", action="store_true", help="name the records and run none")
    add_engine(verify)
    add_folders(verify)

    records = command("records", "edit stored records")
    forget = records.add_subparsers(dest="action", required=True, metavar="ACTION").add_parser(
        "forget", help="take records out, with what their cells left beside them"
    )
    forget.add_argument("key", **{**_SEVERAL, "default": None}, metavar="KEY", help="as --dry-run shows it")
    add_folders(forget)

    for name, text in _OF_THEIR_OWN.items():
        command(name, text)
    return parser


def add_filters(parser: argparse._ActionsContainer) -> None:
    """The options that choose cells or records."""
    for name, (letter, text) in FILTERS.items():
        parser.add_argument(f"--{name}", **_SEVERAL, metavar=letter, help=text)
    parser.add_argument(
        "--seeds", **_SEVERAL, metavar="N", help="how many seeds, 0…N−1; or the seeds themselves: 0,3-5"
    )


def add_folders(parser: argparse._ActionsContainer) -> None:
    """Where records and graphs lie."""
    parser.add_argument("--results", type=Path, default=Path("results"), metavar="DIR", help="results folder")
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder of graph archives (FEDSUB_DATA)")


def add_engine(parser: argparse._ActionsContainer) -> None:
    """How much of which machine cells take."""
    parser.add_argument(
        "--workers",
        type=values.positive,
        metavar="N",
        help="processes (default: one a core; one on a GPU)",
    )
    parser.add_argument("--threads", type=values.positive, default=1, metavar="N", help="threads per process")
    parser.add_argument(
        "--engine", default="process", help="process (default), ray, slurm, in-process (to debug)"
    )
    parser.add_argument(
        "--slurm-config",
        type=Path,
        metavar="FILE",
        help="with --engine slurm: YAML of submitit's parameters, slurm_partition: gpu",
    )
    parser.add_argument(
        "--timeout",
        type=values.duration,
        metavar="T",
        help="stop a cell after that long, 90s, 30m or 2h: it has failed",
    )


def add_settings(group: argparse._ActionsContainer) -> None:
    """What replaces settings of a protocol, and which part of the plan runs."""
    group.add_argument(
        "--set",
        **_SEVERAL,
        metavar="NAME=VALUE",
        help="replace settings of the protocol: learning_rate=0.001 hidden=64,64; a setting given twice "
        "runs with either value",
    )
    group.add_argument("--rounds", type=values.positive, metavar="N", help="rounds of training")
    group.add_argument("--task", metavar="TASK", help="node-classification or link-prediction[width=N,…]")
    group.add_argument("--kernel", choices=("auto", "dgl", "torch"), help="behind message passing")
    group.add_argument("--device", metavar="DEVICE", help="cpu (default) or cuda")
    group.add_argument("--all", action="store_true", help="run every table on all data at hand")
    group.add_argument(
        "--shard",
        type=values.shard,
        metavar="I/N",
        help="the I-th of N parts of the cells, the same on every machine",
    )


def _add_running(group: argparse._ActionsContainer) -> None:
    group.add_argument(
        "--save",
        **_SEVERAL,
        metavar="WHAT",
        help="predictions, model, embeddings of every cell, in RESULTS/saved/KEY",
    )
    group.add_argument("--rerun", action="store_true", help="run finished cells again")
    group.add_argument(
        "--checkpoint",
        type=values.interval,
        default=600.0,
        metavar="T",
        help="keep a cell's state that often, to go on from (default: 10m); 0 never",
    )
    group.add_argument(
        "--pdb", action="store_true", help="debug a cell where it raises (runs in this process)"
    )


def _add_format(group: argparse._ActionsContainer) -> None:
    group.add_argument("--format", choices=("table", "json"), default="table", help="of standard output")
    group.add_argument("--wide", action="store_true", help="every column, also where a terminal is narrower")


def parse(argv: Sequence[str]) -> Command:
    """Read the command line. Exits with code 2 and one sentence where it cannot be understood."""
    parser = make_parser()
    given = ["list" if each == "--list" else each for each in argv[:1]] + [*argv[1:]]
    (actions,) = (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    if not given or given[0] not in (*actions.choices, *parser._option_string_actions):
        given = ["run", *given]
    if given[0] in _OF_THEIR_OWN:
        return Command(given[0], Request(), argparse.Namespace(rest=given[1:]))
    options = parser.parse_args(given)
    return Command(options.command, request_of(parser, options), options)


def request_of(parser: Parser, options: argparse.Namespace) -> Request:
    """The request in a command's options; ends the program where they contradict each other."""
    found = {name: value for name, value in vars(options).items() if name in Request.__dataclass_fields__}
    found |= {name: _items(parser, name, found[name]) for name in (*FILTERS, "save") if name in found}
    for item in found.get("clients", ()):
        if not item.isdecimal() or int(item) < 1:
            parser.error(f"--clients takes whole numbers of at least 1, not {item!r}")
    found["clients"] = tuple(map(int, found.get("clients", ())))
    settings = tuple(getattr(options, "set", ()))
    for name in _AS_SETTINGS:
        if (value := getattr(options, name, None)) is None:
            continue
        if same := [text for text in settings if text.partition("=")[0].strip() == name]:
            parser.error(f"--{name} {value} and --set {same[0]} both set {name}: give one of them")
        settings += (f"{name}={value}",)
    if found.get("pdb"):
        found["engine"] = "in-process"
    if found.get("workers", 1) is None:
        devices = [text.partition("=")[2].strip() for text in settings if text.startswith("device=")]
        found["workers"] = 1 if {*devices} - {"cpu"} else len(os.sched_getaffinity(0))
    try:
        found["seeds"] = values.parse_seeds(options.seeds) if getattr(options, "seeds", ()) else ()
        return Request(**{**found, "settings": settings})
    except (ValueError, UserError) as error:
        parser.error(str(error))


def _items(parser: Parser, name: str, given: Sequence[str]) -> tuple[str, ...]:
    """The items of an option's lists. One that names nothing, as an empty variable of the shell, is refused:
    left out, it would stand for everything."""
    items = tuple(item for value in given for item in values.split_list(value))
    if given and not items:
        parser.error(f"--{name} names nothing: give it a value or leave it out")
    return items
