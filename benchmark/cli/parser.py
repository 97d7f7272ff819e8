"""The options of the command line, read without importing anything heavy."""

from __future__ import annotations

import argparse
import difflib
import math
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

# argparse has no public name for what `add_argument_group` returns.
_Group = argparse._ArgumentGroup
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
        with suppress(BrokenPipeError):
            print(shtab.complete(parser, shell), flush=True)
            parser.exit()
        # Before the command line is read another package may stand under that name.
        from fedsub.datasets.streams import close_output

        close_output()
        parser.exit()


def make_parser() -> argparse.ArgumentParser:
    """What reads the command line; it exits with code 2 and one sentence where it cannot."""
    parser = _Parser(
        prog="benchmark",
        allow_abbrev=False,
        usage="python -m benchmark [--table T …] [--dataset D …] [--method M …] [options]",
        description="Run subgraph federated learning benchmarks and compare them with published tables. "
        "Alone it runs the quick table on a generated graph.",
        epilog="Every filter takes several values, separated by spaces or commas; names may carry options: "
        "'fedprox[mu=0.1]', 'metis[recursive=true]', 'community[nodes=2000]'.",
    )
    _add_what_to_run(parser.add_argument_group("what to run"))
    _add_how_to_run(parser.add_argument_group("how to run it"))
    _add_performance(parser.add_argument_group("how fast it is (results/performance.md)"))
    _add_authors(parser.add_argument_group("the authors' own code on our clients (docs/authors.md)"))
    _add_output(parser.add_argument_group("what to show"))
    return parser


def _add_what_to_run(group: _Group) -> None:
    for name, letter, text in (
        ("table", "T", "protocols, one per published table (or the path of a .toml file)"),
        ("dataset", "D", "graphs; without --table they run under the default protocol"),
        ("method", "M", "methods; options in brackets select or add exactly that variant"),
        ("partition", "P", "partition schemes"),
        ("clients", "K", "numbers of clients"),
        ("backbone", "B", "gcn, sgc, graphsage or mlp"),
        ("seeds", "N", "how many seeds, 0…N−1; or the seeds themselves: 0,3-5"),
        ("set", "NAME=VALUE", "replace settings of the protocol: learning_rate=0.001 hidden=64,64"),
    ):
        group.add_argument(f"--{name}", **_SEVERAL, metavar=letter, help=text)
    group.add_argument("--rounds", type=_positive, metavar="N", help="rounds of training")
    group.add_argument("--task", metavar="TASK", help="node-classification or link-prediction[width=N,…]")
    group.add_argument("--all", action="store_true", help="run every table on all data at hand")
    group.add_argument(
        "--campaign",
        action="store_true",
        help="run what answers printed figures, what decides most per second first",
    )
    group.add_argument(
        "--hours",
        type=partial(_above_zero, wanted="a number of hours above 0"),
        default=math.inf,
        metavar="H",
        help="with --campaign: begin no cell after H hours",
    )
    group.add_argument(
        "--shard",
        type=_shard,
        metavar="I/N",
        help="the I-th of N parts of the cells, the same on every machine",
    )


def _add_how_to_run(group: _Group) -> None:
    group.add_argument(
        "--workers", type=_positive, metavar="N", help="processes (default: one a core; one on a GPU)"
    )
    group.add_argument("--threads", type=_positive, default=1, metavar="N", help="threads per process")
    group.add_argument(
        "--engine", default="process", help="process (default), ray, slurm, in-process (to debug)"
    )
    group.add_argument(
        "--slurm-config",
        type=Path,
        metavar="FILE",
        help="with --engine slurm: YAML of submitit's parameters, slurm_partition: gpu",
    )
    group.add_argument("--kernel", choices=("auto", "dgl", "torch"), help="behind message passing")
    group.add_argument("--device", metavar="DEVICE", help="cpu (default) or cuda")
    group.add_argument("--data", type=Path, metavar="DIR", help="folder of graph archives (FEDSUB_DATA)")
    group.add_argument(
        "--save",
        **_SEVERAL,
        metavar="WHAT",
        help="predictions, model, embeddings of every cell, in RESULTS/saved/KEY",
    )
    group.add_argument("--rerun", action="store_true", help="run finished cells again")
    group.add_argument(
        "--timeout",
        type=_duration,
        metavar="T",
        help="stop a cell after that long, 90s, 30m or 2h: it has failed",
    )
    group.add_argument(
        "--checkpoint",
        type=_interval,
        default=600.0,
        metavar="T",
        help="keep a cell's state that often, to go on from (default: 10m); 0 never",
    )
    group.add_argument(
        "--pdb", action="store_true", help="debug a cell where it raises (runs in this process)"
    )


def _add_performance(group: _Group) -> None:
    group.add_argument("--peers", action="store_true", help="time this suite and openfgl-lib, interleaved")
    group.add_argument(
        "--performance",
        nargs="*",
        action="extend",
        metavar="PART",
        help="measure what the page lacks, or some of its parts: roofline, peers, trained",
    )
    group.add_argument(
        "--pairs", type=_positive, default=5, metavar="N", help="pairs of blocks that are timed (default: 5)"
    )
    group.add_argument(
        "--peer-python",
        type=Path,
        metavar="FILE",
        help="interpreter that has openfgl-lib (FEDSUB_PEER_PYTHON)",
    )
    group.add_argument(
        "--peer-checkout",
        type=Path,
        metavar="PATH",
        help="a clone of SuperYeYu/FedGB, to be timed too (FEDSUB_FEDGB)",
    )


def _add_authors(group: _Group) -> None:
    group.add_argument(
        "--authors",
        **_SEVERAL,
        metavar="NAME=PATH",
        help="run checkouts of public code: fedpub=PATH, fedspray=PATH, fedstruct=PATH",
    )
    group.add_argument(
        "--authors-python",
        type=Path,
        metavar="FILE",
        help="interpreter that has what they import (FEDSUB_AUTHORS_PYTHON)",
    )


def _add_output(group: _Group) -> None:
    group.add_argument("--results", type=Path, default=Path("results"), metavar="DIR", help="results folder")
    group.add_argument("--format", choices=("table", "json"), default="table", help="of standard output")
    group.add_argument("--wide", action="store_true", help="every column, also where a terminal is narrower")
    group.add_argument("--list", action="store_true", help="list methods, graphs, partitions and tables")
    group.add_argument("--version", action=_Version, help="print the version")
    group.add_argument(
        "--print-completion",
        action=_Completion,
        choices=("bash", "zsh", "tcsh"),
        help="print the script with which the shell completes fedsub",
    )
    group.add_argument("--dry-run", action="store_true", help="list the cells and run none")
    group.add_argument(
        "--verify",
        type=_positive,
        metavar="N",
        help="run N stored records again, of those that the filters choose, and compare every figure",
    )
    group.add_argument(
        "--max-seconds",
        type=partial(_above_zero, wanted="a number of seconds above 0"),
        default=math.inf,
        metavar="S",
        help="with --verify: of records that took at most S seconds",
    )
    group.add_argument(
        "--export", type=Path, metavar="FILE", help="a table of the records: .tex, .md, .csv or .parquet"
    )
    group.add_argument("--rows", default="method", metavar="NAME", help="with --export (default: method)")
    group.add_argument(
        "--columns", default="dataset", metavar="NAME", help="with --export (default: dataset)"
    )
    group.add_argument("--forget", **_SEVERAL, metavar="KEY", help="take records out")
    group.add_argument("--report", action="store_true", help="remake every page of the results folder")


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
