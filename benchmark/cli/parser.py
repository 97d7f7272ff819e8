"""The parser of the command line: commands and their options.

Thread limits must be set before numerical libraries are imported, so this module imports none.
"""

import argparse
import difflib
import math
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from fedsub.benchmark.cli import values
from fedsub.benchmark.machine import version_of
from fedsub.benchmark.spec.request import Request
from fedsub.datasets.files import expanded

_SEVERAL: dict[str, Any] = {"nargs": "+", "action": "extend", "default": []}
_FLAG: dict[str, Any] = {"action": "store_true"}
_COUNT: dict[str, Any] = {"type": values.positive}
_INTERVAL: dict[str, Any] = {"type": values.interval}
_SECONDS: dict[str, Any] = {"type": values.duration, "default": math.inf}
_HOURS: dict[str, Any] = {"type": float, "default": math.inf}
_TITLES: dict[str, Any] = {"type": values.title, **_SEVERAL}
FILTERS = ("table", "dataset", "method", "partition", "clients", "backbone")
"""Options that select cells or records, besides the seeds."""
SETTINGS = ("rounds", "task", "kernel", "device")
"""Settings with an option of their own."""
_Option = tuple[str | None, str, Mapping[str, Any]]
"""Metavar, help, and further arguments of `add_argument`. Fields of `Request` take its defaults."""
OPTIONS: dict[str, _Option] = {
    "table": ("T", "protocols, one per published table (or the path of a .toml file)", _SEVERAL),
    "dataset": ("D", "graphs; without --table the default protocol is used", _SEVERAL),
    "method": ("M", "methods; options in brackets select or add exactly that variant", _SEVERAL),
    "partition": ("P", "partition schemes", _SEVERAL),
    "clients": ("K", "numbers of clients", _SEVERAL),
    "backbone": ("B", "gcn, sgc, graphsage, mlp, gat, gprgnn, or the path of a .py file", _SEVERAL),
    "seeds": ("N", "number of seeds, from 0; or a list of seeds, such as 0,3-5", _SEVERAL),
    "set": ("NAME=VALUE", "settings: learning_rate=0.001 hidden=64,64; two values both run", _SEVERAL),
    "rounds": ("N", "rounds of training", _COUNT),
    "task": ("TASK", "node-classification or link-prediction[width=N,…]", {}),
    "kernel": (None, "library for message passing", {"choices": ("auto", "dgl", "torch")}),
    "device": ("DEVICE", "cpu (default) or cuda", {}),
    "all": (None, "run every table on all graphs that are on this machine", _FLAG),
    "shard": ("I/N", "the I-th of N parts of the cells, the same on every machine", {"type": values.shard}),
    "trials": ("N", f"trials of a search, including the defaults (default: {Request.trials})", _COUNT),
    "cap": (
        "X",
        f"core-seconds of a search, in units of FedAvg's default run (default: {Request.cap:g}); 0: no cap",
        {"type": float},
    ),
    "workers": ("N", "worker processes (default: one per core; one on a GPU)", _COUNT),
    "threads": ("N", "threads per process", _COUNT),
    "engine": (None, "process (default), ray, slurm, flower, in-process (to debug)", {}),
    "slurm-config": ("FILE", "YAML file with submitit's parameters, for --engine slurm", {"type": Path}),
    "timeout": ("T", "time after which a cell fails, such as 90s, 30m or 2h", {"type": values.duration}),
    "max-seconds": ("S", "only records whose run took at most S seconds", _SECONDS),
    "by": ("NAME", "append records without a difference to verified.jsonl, with your name", {}),
    "hours": ("H", "start no run after H hours; 0 only writes the page", _HOURS),
    "rerun": (None, "run cells again that have a record", _FLAG),
    "pdb": (None, "open the debugger where a cell raises (in this process)", _FLAG),
    "dry-run": (None, "list the cells that would run, and run nothing", _FLAG),
    "trust": (None, "run the .py files that a table or a record names", _FLAG),
    # A shell leaves the ~ in --results=~/runs.
    "results": ("DIR", "results folder", {"type": expanded}),
    "data": ("DIR", "folder of graph archives (FEDSUB_DATA)", {"type": Path}),
    "save": ("WHAT", "save predictions, model or embeddings of every cell to RESULTS/saved", _SEVERAL),
    "checkpoint": ("T", "time between checkpoints of a cell (default: 10m); 0 for none", _INTERVAL),
    "format": (None, "format of standard output", {"choices": ("table", "json"), "default": "table"}),
    "wide": (None, "show every column, even in a narrow terminal", _FLAG),
    "open": (None, "open the site in the browser", _FLAG),
    "rows": ("NAME", "setting or option of the rows (default: method)", {"default": "method"}),
    "columns": ("NAME", "setting or option of the columns (default: dataset)", {"default": "dataset"}),
    "against": ("NAME", "a row; a further column gives each row's difference from it", {"default": ""}),
    "title": ("NAME=TITLE", "title of a row or column: 'fedprox[mu=0.1]=FedProx'", _TITLES),
}
"""Option without its dashes → how it is parsed."""
ARGUMENTS: dict[str, _Option] = {
    "name": ("NAME", "a method, to print its options, or a graph", {"nargs": "?"}),
    "subject": ("METHOD", "a name or the path of a .py file, with options in brackets", {"nargs": "+"}),
    "file": ("FILE", "the file to write", {"type": Path}),
    "count": ("N", "number of records, or a bundle whose records are all run", {"type": values.bundle}),
    "edit": (
        "forget|add|pack",
        "forget removes records, and their cells' files and logs; add copies the successes of another "
        "results folder, or of a file unsaved-….jsonl, that this one lacks; pack compresses all records",
        {"choices": ("forget", "add", "pack")},
    ),
    "create": ("create", "app for one cell, with a data file for each client", {"choices": ("create",)}),
    "folder": ("DIR", "a new or empty folder", {"type": Path}),
    "key": ("KEY|PATH", "key to forget, as --dry-run prints it, or path to add", {"nargs": "*"}),
}
"""Positional argument → how it is parsed."""
CHOICE = (*FILTERS, "seeds")
SETTING = ("set", *SETTINGS, "all", "shard")
_SEARCH = ("trials", "cap")
ENGINE = ("workers", "threads", "engine", "slurm-config", "timeout")
FOLDERS = ("results", "data")
_FORMAT = ("format", "wide")
_CAUTION = ("dry-run", "trust")
COMMANDS: Mapping[str, tuple[str, Sequence[str]]] = {
    "run": (
        "run cells and show their leaderboards (the default)",
        (*CHOICE, *SETTING, *ENGINE, "rerun", "pdb", *FOLDERS, "save", "checkpoint", *_FORMAT, *_CAUTION),
    ),
    "list": (
        "list methods, graphs, partitions, splits and tables, or describe one method or graph",
        ("name", "data"),
    ),
    "check": ("check methods: gradients, absence, bytes, seeds, halves, checkpoints, options", ("subject",)),
    "tune": (
        "search for the settings of methods, by validation",
        (*FILTERS, *SETTING, *_SEARCH, *ENGINE, *FOLDERS, *_FORMAT, "trust"),
    ),
    "arena": (
        "tune every method with the same budget, rank them on fresh draws, write arena.md",
        ("dataset", "partition", "method", "hours", "set", *SETTINGS, "shard", *_SEARCH, *ENGINE, *FOLDERS),
    ),
    "show": ("show the leaderboards of stored records and run nothing", (*CHOICE, *FOLDERS, *_FORMAT)),
    "report": ("rewrite every page of the results folder", ("table", "open", *FOLDERS)),
    "export": (
        "write a table of the records (.tex, .md, .csv, .parquet) or curves.pdf, cost.pdf, ranks.pdf",
        ("file", *CHOICE, "rows", "columns", "against", "title", *FOLDERS),
    ),
    "bundle": (
        "put records, tables and the files that they need in one .zip, for verification",
        ("file", "table", *FOLDERS),
    ),
    "verify": (
        "run stored records again and compare every figure",
        ("count", *CHOICE, "max-seconds", "by", *_CAUTION, *ENGINE, *FOLDERS),
    ),
    "flower": (
        "write a federation's files for Flower",
        ("create", "folder", *CHOICE, "set", *SETTINGS, *FOLDERS, "trust"),
    ),
    "records": ("edit stored records", ("edit", "key", "results")),
    "data": ("list, fetch, inspect, export and divide graphs", ()),
    "study": ("comparisons that maintainers run: peers, authors", ()),
}
"""Command → its help, and its options and arguments."""
OF_THEIR_OWN = ("data", "study")
"""Commands with parsers of their own."""


@dataclass(frozen=True)
class Command:
    """A parsed command line."""

    name: str
    request: Request
    options: argparse.Namespace
    """All parsed options, including those that are not part of the request."""


class Parser(argparse.ArgumentParser):
    """Parser that reports bad usage in one sentence, with exit code 2; options cannot be abbreviated."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **settings})

    def add_options(self, names: Iterable[str]) -> None:
        """Add some of `OPTIONS` and `ARGUMENTS`."""
        for name in names:
            metavar, text, settings = (OPTIONS | ARGUMENTS)[name]
            shown: dict[str, Any] = {} if metavar is None else {"metavar": metavar}
            self.add_argument(f"--{name}" if name in OPTIONS else name, help=text, **shown, **settings)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does; the error for an unknown option names similar ones."""
        found, unknown = super().parse_known_args(args, namespace)
        # argparse takes an optional list as empty if an option stands before it.
        if getattr(found, "key", None) == [] and not any(text.startswith("-") for text in unknown):
            found.key, unknown = unknown, []
        if unknown:
            near = _near(unknown[0].partition("=")[0], self._option_string_actions)
            self.error(f"there is no {unknown[0]}" + (f", did you mean {', '.join(near)}?" if near else ""))
        return found, unknown

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see --help\n")


def _near(name: str, options: Collection[str]) -> list[str]:
    """Return what an unknown command or option may mean; for a setting, its --set."""
    from fedsub.benchmark.spec import settings

    if not name.startswith("-"):
        return difflib.get_close_matches(name, COMMANDS)
    asked = name.strip("-").replace("-", "_")
    meant = settings.USUAL.get(asked, asked).partition(",")[0]
    if f"--{meant}" in options:
        return [f"--{meant}"]
    if meant in settings.SETTINGS:
        return [f"--set {meant}=…"]
    return difflib.get_close_matches(name, options)


def make_parser() -> Parser:
    """Make the parser of all commands; those in `OF_THEIR_OWN` have parsers elsewhere."""
    parser = Parser(
        prog="fedsub",
        description="Run subgraph federated learning benchmarks and compare them with published tables.",
        epilog="Without a command it runs: `--dataset cora --method fedavg` is `run --dataset cora --method "
        "fedavg`, and `run --help` lists its options. Filters take several values, separated by spaces "
        "or commas. Names may carry options: 'fedprox[mu=0.1]', 'community[nodes=2000]'.",
    )
    version = version_of("fedsub-bench", "(not installed, running from the source tree)")
    parser.add_argument("--version", action="version", version=f"fedsub-bench {version}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    for name, (text, options) in COMMANDS.items():
        commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.").add_options(options)
    return parser


def parse(argv: Sequence[str]) -> Command:
    """Parse the command line. Exits with code 2 and one sentence if it is invalid."""
    parser = make_parser()
    given = [*argv]
    for each in given:
        if any("\udc80" <= letter <= "\udcff" for letter in each):
            parser.error(f"{each!r} is not valid UTF-8: rename the file, or start in its folder")
    if not given or given[0] not in (*COMMANDS, *parser._option_string_actions):
        given = ["run", *given]
    if given[0] in OF_THEIR_OWN:
        return Command(given[0], Request(), argparse.Namespace(rest=given[1:]))
    options = parser.parse_args(given)
    return Command(options.command, request_of(parser, options), options)


def request_of(parser: Parser, options: argparse.Namespace) -> Request:
    """Return the request in a command's options; exits if they contradict each other."""
    given = {name: value for name, value in vars(options).items() if value is not None}
    found = {name: value for name, value in given.items() if name in Request.__dataclass_fields__}
    found |= {name: _items(parser, name, found[name]) for name in (*FILTERS, "save") if name in found}
    found["clients"] = tuple(int(each) if each.isdecimal() else each for each in found.get("clients", ()))
    settings = tuple(given.get("set", ()))
    for name, value in [(name, given[name]) for name in SETTINGS if name in given]:
        if same := [text for text in settings if text.partition("=")[0].strip() == name]:
            parser.error(f"--{name} {value} and --set {same[0]} both set {name}: give only one")
        settings += (f"{name}={value}",)
    if found.get("pdb"):
        found["engine"] = "in-process"
    if getattr(options, "workers", 1) is None:
        devices = [text.partition("=")[2].strip() for text in settings if text.startswith("device=")]
        found["workers"] = 1 if {*devices} - {"cpu"} else len(os.sched_getaffinity(0))
    try:
        found["seeds"] = values.parse_seeds(found["seeds"]) if found.get("seeds") else ()
        return Request(**found, settings=settings)
    except ValueError as error:
        parser.error(str(error))


def _items(parser: Parser, name: str, given: Sequence[str]) -> tuple[str, ...]:
    """Return the items of an option's lists. An empty list, as from an empty shell variable, is an error: it
    would select everything."""
    items = tuple(item for value in given for item in values.split_list(value))
    if given and not items:
        parser.error(f"--{name} is empty: give a value or leave it out")
    return items
