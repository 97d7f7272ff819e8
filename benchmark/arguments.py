"""The command line, read without importing anything heavy: thread limits must be set before that."""

from __future__ import annotations

import argparse
import difflib
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, NoReturn


@dataclass(frozen=True)
class Arguments:
    """What was asked for; an empty tuple is a filter left out."""

    table: tuple[str, ...]
    dataset: tuple[str, ...]
    method: tuple[str, ...]
    partition: tuple[str, ...]
    clients: tuple[int, ...]
    backbone: tuple[str, ...]
    seeds: tuple[int, ...]
    settings: tuple[str, ...]
    """Settings replaced, each `name=value`."""
    workers: int
    threads: int
    engine: str
    results: Path
    data: Path | None
    format: str
    wide: bool
    list: bool
    dry_run: bool
    rerun: bool
    all: bool
    report: bool
    verify: int | None
    """How many stored records to run again and compare."""
    max_seconds: float
    """The longest that those may have taken."""
    performance: tuple[str, ...] | None
    """Parts of the performance page to measure, all if empty; None without `--performance`."""
    pairs: int
    peer_python: Path | None
    peer_checkout: Path | None
    shard: tuple[int, int] | None
    """Which of how many parts of the plan to run, counted from 1."""
    timeout: float | None
    """Seconds after which a cell is stopped."""
    checkpoint: float
    """Seconds of a cell between two checkpoints; 0 for none."""
    slurm_config: Path | None
    pdb: bool
    campaign: bool
    hours: float
    """After how long a campaign begins no further cell."""
    save: tuple[str, ...]
    """What cells leave beside their records (`benchmark.saving`)."""
    export: Path | None
    rows: str
    columns: str
    forget: tuple[str, ...]
    """Keys of records."""
    rename: str
    """`OLD=NEW`, or empty."""
    authors: tuple[str, ...]
    """Public codes to run, each `NAME=PATH`."""
    authors_python: Path | None


_UNITS = {"s": 1, "m": 60, "h": 3600}
"""Seconds in the units of time."""
_SEVERAL: dict[str, Any] = {"nargs": "+", "action": "extend", "default": []}
"""An option of several values, which may be given again."""


class _Parser(argparse.ArgumentParser):
    """Answers bad usage with one sentence and exit code 2."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse does; an unknown option is answered with those spelt most like it."""
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            near = difflib.get_close_matches(unknown[0].partition("=")[0], self._option_string_actions, n=3)
            hint = f", did you mean {', '.join(near)}?" if near else ""
            self.error(f"there is no {unknown[0]}{hint}")
        return found

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see --help\n")


class _Version(argparse.Action):
    """Prints the version of the package; looked up when asked for, which costs more than all of `--help`."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(
            option_strings, dest=argparse.SUPPRESS, default=argparse.SUPPRESS, nargs=0, help=help
        )

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"fedsub-bench {version('fedsub-bench')}")
        except PackageNotFoundError:
            print("fedsub-bench, not installed: run from its sources")
        parser.exit()


class _Completion(argparse.Action):
    """Prints what a shell reads to complete the command `fedsub`."""

    def __init__(self, option_strings: Sequence[str], dest: str, **settings: Any) -> None:
        super().__init__(option_strings, dest=argparse.SUPPRESS, default=argparse.SUPPRESS, **settings)

    def __call__(self, parser: argparse.ArgumentParser, _: object, shell: Any, *__: object) -> NoReturn:
        try:
            import shtab
        except ModuleNotFoundError:
            parser.error("completion needs shtab: install the extra with pip install -e '.[completion]'")
        parser.prog = "fedsub"
        print(shtab.complete(parser, shell))
        parser.exit()


def split_list(text: str) -> list[str]:
    """The items of a list with commas between them; commas inside brackets belong to an item."""
    items, depth, start = [], 0, 0
    for position, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth <= 0:
            items.append(text[start:position])
            start = position + 1
    items.append(text[start:])
    return [item.strip() for item in items if item.strip()]


def parse_seeds(values: Sequence[str]) -> tuple[int, ...]:
    """`N` is the seeds 0…N−1; several values, or a list with commas, are the seeds themselves.

    Raises ValueError, in words, for anything else.
    """
    items = [item for value in values for item in split_list(value)]
    if not items or not all(item.isdecimal() for item in items):
        raise ValueError(f"--seeds takes a count or a list of whole numbers, not {' '.join(values)!r}")
    if len(items) == 1 and "," not in values[0]:
        if int(items[0]) < 1:
            raise ValueError("--seeds takes a count of at least 1")
        return tuple(range(int(items[0])))
    return tuple(dict.fromkeys(int(item) for item in items))


def parse(argv: Sequence[str]) -> Arguments:
    """Read the command line. Exits with code 2 and one sentence if it cannot be understood."""
    parser = _parser()
    given = parser.parse_args(argv)
    clients = [item for value in given.clients for item in split_list(value)]
    for item in clients:
        if not item.isdecimal() or int(item) < 1:
            parser.error(f"--clients takes whole numbers of at least 1, not {item!r}")
    try:
        seeds = parse_seeds(given.seeds) if given.seeds else ()
    except ValueError as error:
        parser.error(str(error))
    settings = list(given.set)
    for name in ("rounds", "kernel", "device", "task"):
        value = getattr(given, name)
        if value is not None:
            settings.append(f"{name}={value}")
    values: dict[str, Any] = {item.name: getattr(given, item.name, None) for item in fields(Arguments)}
    for name in ("table", "dataset", "method", "partition", "backbone"):
        values[name] = tuple(item for value in values[name] for item in split_list(value))
    for name in ("save", "forget"):
        values[name] = tuple(item for value in getattr(given, name) for item in split_list(value))
    values["authors"] = tuple(given.authors)
    values["clients"] = tuple(int(item) for item in clients)
    values["seeds"] = seeds
    values["settings"] = tuple(settings)
    if given.pdb:
        values["engine"] = "in-process"
    if given.timeout is not None and values["engine"] == "in-process":
        parser.error("--timeout needs another engine than in-process, which cannot stop a cell")
    if given.slurm_config is not None and values["engine"] != "slurm":
        parser.error("--slurm-config needs --engine slurm")
    if given.campaign and (seeds or settings):
        parser.error("--campaign runs the tables' own settings and seeds: drop --seeds, --set and their kind")
    if given.workers is None:
        values["workers"] = len(os.sched_getaffinity(0)) if given.device in (None, "cpu") else 1
    if given.performance is not None:
        values["performance"] = tuple(item for value in given.performance for item in split_list(value))
    elif given.peers:
        values["performance"] = ("peers",)
    return Arguments(**values)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="benchmark",
        allow_abbrev=False,
        usage="python -m benchmark [--table T …] [--dataset D …] [--method M …] [options]",
        description="Run subgraph federated learning benchmarks and compare them with published tables. "
        "Alone it runs the quick table on a generated graph.",
        epilog="Every filter takes several values, separated by spaces or commas; names may carry options: "
        "'fedprox[mu=0.1]', 'metis[recursive=true]', 'community[nodes=2000]'.",
    )
    what = parser.add_argument_group("what to run")
    for name, letter, text in (
        ("table", "T", "protocols, one per published table (or the path of a .toml file)"),
        ("dataset", "D", "graphs; without --table they run under the default protocol"),
        ("method", "M", "methods; options in brackets select or add exactly that variant"),
        ("partition", "P", "partition schemes"),
        ("clients", "K", "numbers of clients"),
        ("backbone", "B", "gcn, sgc, graphsage or mlp"),
        ("seeds", "N", "how many seeds, 0…N−1; or the seeds themselves: 0,3,5"),
        ("set", "NAME=VALUE", "replace settings of the protocol: learning_rate=0.001 hidden=64,64"),
    ):
        what.add_argument(f"--{name}", **_SEVERAL, metavar=letter, help=text)
    what.add_argument("--rounds", type=_positive, metavar="N", help="rounds of training")
    what.add_argument("--task", metavar="TASK", help="node-classification or link-prediction[width=N,…]")
    what.add_argument("--all", action="store_true", help="run every table on all data at hand")
    what.add_argument(
        "--campaign",
        action="store_true",
        help="run what answers printed figures, what decides most per second first",
    )
    what.add_argument(
        "--hours",
        type=partial(_above_zero, wanted="a number of hours above 0"),
        default=math.inf,
        metavar="H",
        help="with --campaign: begin no cell after H hours",
    )
    what.add_argument(
        "--shard",
        type=_shard,
        metavar="I/N",
        help="the I-th of N parts of the cells, the same on every machine",
    )
    how = parser.add_argument_group("how to run it")
    how.add_argument(
        "--workers", type=_positive, metavar="N", help="processes (default: one a core; one on a GPU)"
    )
    how.add_argument("--threads", type=_positive, default=1, metavar="N", help="threads per process")
    how.add_argument(
        "--engine", default="process", help="process (default), ray, slurm, in-process (to debug)"
    )
    how.add_argument(
        "--slurm-config",
        type=Path,
        metavar="FILE",
        help="with --engine slurm: YAML of submitit's parameters, slurm_partition: gpu",
    )
    how.add_argument("--kernel", choices=("auto", "dgl", "torch"), help="behind message passing")
    how.add_argument("--device", metavar="DEVICE", help="cpu (default) or cuda")
    how.add_argument("--data", type=Path, metavar="DIR", help="folder of graph archives (FEDSUB_DATA)")
    how.add_argument(
        "--save",
        **_SEVERAL,
        metavar="WHAT",
        help="predictions, model, embeddings of every cell, in RESULTS/saved/KEY",
    )
    how.add_argument("--rerun", action="store_true", help="run finished cells again")
    how.add_argument(
        "--timeout",
        type=_duration,
        metavar="T",
        help="stop a cell after that long, 90s, 30m or 2h: it has failed",
    )
    how.add_argument(
        "--checkpoint",
        type=_interval,
        default=600.0,
        metavar="T",
        help="keep a cell's state that often, to go on from (default: 10m); 0 never",
    )
    how.add_argument("--pdb", action="store_true", help="debug a cell where it raises (runs in this process)")
    speed = parser.add_argument_group("how fast it is (results/performance.md)")
    speed.add_argument("--peers", action="store_true", help="time this suite and openfgl-lib, interleaved")
    speed.add_argument(
        "--performance",
        nargs="*",
        action="extend",
        metavar="PART",
        help="measure what the page lacks, or some of its parts: roofline, peers",
    )
    speed.add_argument(
        "--pairs", type=_positive, default=5, metavar="N", help="pairs of blocks that are timed (default: 5)"
    )
    speed.add_argument(
        "--peer-python",
        type=Path,
        metavar="FILE",
        help="interpreter that has openfgl-lib (FEDSUB_PEER_PYTHON)",
    )
    speed.add_argument(
        "--peer-checkout",
        type=Path,
        metavar="PATH",
        help="a clone of SuperYeYu/FedGB, to be timed too (FEDSUB_FEDGB)",
    )
    theirs = parser.add_argument_group("the authors' own code on our clients (docs/authors.md)")
    theirs.add_argument(
        "--authors",
        **_SEVERAL,
        metavar="NAME=PATH",
        help="run checkouts of public code: fedpub=PATH, fedspray=PATH, fedstruct=PATH",
    )
    theirs.add_argument(
        "--authors-python",
        type=Path,
        metavar="FILE",
        help="interpreter that has what they import (FEDSUB_AUTHORS_PYTHON)",
    )
    out = parser.add_argument_group("what to show")
    out.add_argument("--results", type=Path, default=Path("results"), metavar="DIR", help="results folder")
    out.add_argument("--format", choices=("table", "json"), default="table", help="of standard output")
    out.add_argument("--wide", action="store_true", help="every column, also where a terminal is narrower")
    out.add_argument("--list", action="store_true", help="list methods, graphs, partitions and tables")
    out.add_argument("--version", action=_Version, help="print the version")
    out.add_argument(
        "--print-completion",
        action=_Completion,
        choices=("bash", "zsh", "tcsh"),
        help="print the script with which the shell completes fedsub",
    )
    out.add_argument("--dry-run", action="store_true", help="list the cells and run none")
    out.add_argument(
        "--verify", type=_positive, metavar="N", help="run N stored records again, compare every figure"
    )
    out.add_argument(
        "--max-seconds",
        type=partial(_above_zero, wanted="a number of seconds above 0"),
        default=math.inf,
        metavar="S",
        help="with --verify: of records that took at most S seconds",
    )
    out.add_argument(
        "--export", type=Path, metavar="FILE", help="a table of the records: .tex, .md, .csv or .parquet"
    )
    out.add_argument("--rows", default="method", metavar="NAME", help="with --export (default: method)")
    out.add_argument("--columns", default="dataset", metavar="NAME", help="with --export (default: dataset)")
    out.add_argument("--forget", **_SEVERAL, metavar="KEY", help="take records out")
    out.add_argument(
        "--rename", default="", metavar="OLD=NEW", help="call a part of one's own otherwise in records"
    )
    out.add_argument("--report", action="store_true", help="remake every page of the results folder")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, not {text!r}")
    return int(text)


def _duration(text: str) -> float:
    number, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS else (text, "s")
    return _UNITS[unit] * _above_zero(text, "a time such as 90s, 30m or 2h", number)


def _interval(text: str) -> float:
    return 0.0 if text == "0" else _duration(text)


def _above_zero(text: str, wanted: str, number: str | None = None) -> float:
    """The number in `text`, all of it unless said."""
    try:
        value = float(text if number is None else number)
    except ValueError:
        value = math.nan
    if not value > 0:
        raise argparse.ArgumentTypeError(f"expected {wanted}, not {text!r}")
    return value


def _shard(text: str) -> tuple[int, int]:
    part, slash, parts = text.partition("/")
    if not (part.isdecimal() and slash and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise argparse.ArgumentTypeError(f"expected a part and their number, such as 3/16, not {text!r}")
    return int(part), int(parts)
