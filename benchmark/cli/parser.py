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
    "backbone": ("B", "networks: gcn, sgc, graphsage, mlp, gat, gprgnn, or the path of a .py file"),
}
"""Filters of cells and records: metavar and help."""
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
    """A parsed command line."""

    name: str
    request: Request
    options: argparse.Namespace
    """The options of the command besides those of the request."""


class Parser(argparse.ArgumentParser):
    """Parser that answers bad usage with one sentence and exit code 2; options cannot be abbreviated."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **settings})

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse; an unknown option is answered with similar ones, or the command that replaced it."""
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
    """Action that prints the version; looked up only when asked for, because it is slow."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"fedsub-bench {version('fedsub-bench')}")
        except PackageNotFoundError:
            print("fedsub-bench, not installed: run from its sources")
        parser.exit()


class _Completion(argparse.Action):
    """Action that prints the shell completion of `fedsub`."""

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
    add(parser, "--version", help="print the version", action=_Version, nargs=0)
    shells: dict[str, Any] = {"choices": ("bash", "zsh", "tcsh"), "action": _Completion}
    add(parser, "--print-completion", help="print the script that completes fedsub in a shell", **shells)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)

    def command(name: str, text: str) -> Parser:
        made: Parser = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        return made

    run = command("run", "run cells and show their leaderboards (the default)")
    choosing = run.add_argument_group("what to run")
    add_filters(choosing)
    add_settings(choosing)
    running = run.add_argument_group("how to run it")
    add_engine(running)
    add(running, "--rerun", help="run finished cells again", action="store_true")
    add(running, "--pdb", help="debug a cell where it raises (in this process)", action="store_true")
    keeping = run.add_argument_group("what to keep and show")
    add_folders(keeping)
    add(
        keeping,
        "--save",
        "WHAT",
        "predictions, model, embeddings of every cell, in RESULTS/saved",
        **_SEVERAL,
    )
    often = "keep a cell's state that often, to go on from (default: 10m); 0 never"
    add(keeping, "--checkpoint", "T", often, type=values.interval, default=600.0)
    _add_format(keeping)
    add(keeping, "--dry-run", help="list the cells and run none", action="store_true")
    trust = "with --dry-run: run the .py files that a table names, to plan their cells"
    add(keeping, "--trust", help=trust, action="store_true")

    listing = command("list", "list methods, graphs, partitions, splits and tables, or describe one method")
    add(listing, "name", "METHOD", "a method, to see its options", nargs="?")

    check = command("check", "check methods: gradients, absence, bytes, seeds, halves, checkpoints, options")
    add(check, "method", "METHOD", "a name, or the path of a .py file; options in brackets", nargs="+")

    tune = command("tune", "search for the settings of methods, by validation")
    _add_choices(tune)
    add_settings(tune)
    add_tuning(tune)
    add_engine(tune)
    add_folders(tune)
    _add_format(tune)

    arena = command("arena", "tune every method alike, rank them on fresh draws, write arena.md")
    _add_choices(arena, ("dataset", "partition", "method"))
    add(
        arena,
        "--hours",
        "H",
        "begin no run after H hours; 0 writes the page alone",
        type=float,
        default=math.inf,
    )
    add_settings(arena)
    add_tuning(arena)
    add_engine(arena)
    add_folders(arena)

    show = command("show", "show the leaderboards of stored records and run nothing")
    add_filters(show)
    add_folders(show)
    _add_format(show)

    report = command("report", "remake every page of the results folder")
    add(report, "--table", "FILE", "tables of your own, .toml files", **_SEVERAL)
    add(report, "--open", help="open the site in the browser", action="store_true")
    add_folders(report)

    export = command(
        "export",
        "write a table of the records (.tex, .md, .csv, .parquet) or curves.pdf, cost.pdf, ranks.pdf",
    )
    add(export, "file", "FILE", "its ending names the format", type=Path)
    add_filters(export)
    add(export, "--rows", "NAME", "default: method", default="method")
    add(export, "--columns", "NAME", "default: dataset", default="dataset")
    add(export, "--against", "NAME", "a row: a column says how far each is above it", default="")
    called = "what a row or column is called: 'fedprox[mu=0.1]=FedProx'"
    add(export, "--title", "NAME=TITLE", called, type=values.title, **_SEVERAL)
    add_folders(export)

    bundle = command("bundle", "put records, tables and the files behind them in one .zip, to be verified")
    add(bundle, "file", "FILE", "where it is written", type=Path)
    add(bundle, "--table", "T", "the tables (default: all); a .toml file is put in", **_SEVERAL)
    add_folders(bundle)

    verify = command("verify", "run stored records again and compare every figure")
    add(verify, "count", "N", "how many records; or a bundle, all of whose are run", type=values.bundle)
    add_filters(verify)
    longest = values.above_zero("a number of seconds above 0")
    add(
        verify, "--max-seconds", "S", "of records that took at most S seconds", type=longest, default=math.inf
    )
    add(verify, "--dry-run", help="name the records and run none", action="store_true")
    add(verify, "--trust", help="run the .py files that records name, too", action="store_true")
    add_engine(verify)
    add_folders(verify)

    federation = command("flower", "write a federation's files for Flower")
    made = federation.add_subparsers(dest="action", required=True, metavar="ACTION").add_parser(
        "create", help="write a Flower app that runs one cell, and a data file for each client"
    )
    add(made, "folder", "DIR", "a new or empty folder", type=Path)
    add_filters(made)
    add_settings(made)
    add_folders(made)

    records = command("records", "edit stored records")
    forget = records.add_subparsers(dest="action", required=True, metavar="ACTION").add_parser(
        "forget", help="take records out, with what their cells left beside them"
    )
    add(forget, "key", "KEY", "as --dry-run shows it", nargs="+")
    add_folders(forget)

    for name, text in _OF_THEIR_OWN.items():
        command(name, text)
    return parser


def add(
    parser: argparse._ActionsContainer, name: str, metavar: str | None = None, help: str = "", **settings: Any
) -> None:
    """Add one option or argument."""
    if metavar is not None:
        settings["metavar"] = metavar
    parser.add_argument(name, help=help, **settings)


def add_filters(parser: argparse._ActionsContainer) -> None:
    """Add the options that choose cells or records."""
    _add_choices(parser)
    add(parser, "--seeds", "N", "how many seeds, 0…N−1; or the seeds themselves: 0,3-5", **_SEVERAL)


def _add_choices(parser: argparse._ActionsContainer, names: Sequence[str] = tuple(FILTERS)) -> None:
    """Add the same but for the seeds."""
    for name in names:
        letter, text = FILTERS[name]
        add(parser, f"--{name}", letter, text, **_SEVERAL)


def add_tuning(parser: argparse._ActionsContainer) -> None:
    """Add the limits of a search."""
    add(
        parser,
        "--trials",
        "N",
        "points of a search, the defaults counted (default: 20)",
        type=values.positive,
    )
    cap = "core-seconds of a method's search on a block, in FedAvg's own there (default: 120); 0: no cap"
    add(parser, "--cap", "X", cap, type=float, default=120.0)


def add_folders(parser: argparse._ActionsContainer) -> None:
    """Add the options of folders for records and graphs."""
    add(parser, "--results", "DIR", "results folder", type=Path, default=Path("results"))
    add(parser, "--data", "DIR", "folder of graph archives (FEDSUB_DATA)", type=Path)


def add_engine(parser: argparse._ActionsContainer) -> None:
    """Add the options of engine, workers and device."""
    add(parser, "--workers", "N", "processes (default: one a core; one on a GPU)", type=values.positive)
    add(parser, "--threads", "N", "threads per process", type=values.positive, default=1)
    engines = "process (default), ray, slurm, in-process (to debug), flower (every client its own process)"
    add(parser, "--engine", help=engines, default="process")
    config = "with --engine slurm: YAML of submitit's parameters, slurm_partition: gpu"
    add(parser, "--slurm-config", "FILE", config, type=Path)
    stop = "stop a cell after that long, 90s, 30m or 2h: it has failed"
    add(parser, "--timeout", "T", stop, type=values.duration)


def add_settings(group: argparse._ActionsContainer) -> None:
    """Add the options that replace settings of a protocol or choose a part of the plan."""
    settings = "settings of the protocol: learning_rate=0.001 hidden=64,64; given twice, either value runs"
    add(group, "--set", "NAME=VALUE", settings, **_SEVERAL)
    add(group, "--rounds", "N", "rounds of training", type=values.positive)
    add(group, "--task", "TASK", "node-classification or link-prediction[width=N,…]")
    add(group, "--kernel", help="behind message passing", choices=("auto", "dgl", "torch"))
    add(group, "--device", "DEVICE", "cpu (default) or cuda")
    add(group, "--all", help="run every table on all data at hand", action="store_true")
    part = "the I-th of N parts of the cells, the same on every machine"
    add(group, "--shard", "I/N", part, type=values.shard)


def _add_format(group: argparse._ActionsContainer) -> None:
    add(group, "--format", help="of standard output", choices=("table", "json"), default="table")
    add(group, "--wide", help="every column, also where a terminal is narrower", action="store_true")


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
    """The request in a command's options; exits if they contradict each other."""
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
    """The items of an option's lists. An empty one, such as an empty shell variable, is refused: it would
    select everything."""
    items = tuple(item for value in given for item in values.split_list(value))
    if given and not items:
        parser.error(f"--{name} names nothing: give it a value or leave it out")
    return items
