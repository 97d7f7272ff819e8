"""The command line, read without importing anything heavy: thread limits must be set before that."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from fedsub.benchmark.cli.parser import make_parser
from fedsub.benchmark.spec.request import Request


@dataclass(frozen=True)
class Arguments(Request):
    """What the command line asks for: cells, and what to do with them."""

    data: Path | None = None
    format: str = "table"
    wide: bool = False
    list: bool = False
    dry_run: bool = False
    report: bool = False
    verify: int | None = None
    """How many stored records to run again and compare."""
    max_seconds: float = math.inf
    """The longest that those may have taken."""
    performance: tuple[str, ...] | None = None
    """Parts of the performance page to measure, all if empty; None without `--performance`."""
    pairs: int = 5
    peer_python: Path | None = None
    peer_checkout: Path | None = None
    campaign: bool = False
    hours: float = math.inf
    """After how long a campaign begins no further cell."""
    export: Path | None = None
    rows: str = "method"
    columns: str = "dataset"
    forget: tuple[str, ...] = ()
    """Keys of records."""
    authors: tuple[str, ...] = ()
    """Public codes to run, each `NAME=PATH`."""
    authors_python: Path | None = None


_TASKS = (
    ("list",),
    ("report",),
    ("export", "forget"),
    ("verify",),
    ("performance", "peers"),
    ("campaign",),
    ("authors",),
)
"""What a command can be asked for in the place of a run; only options of one line go together."""
_RUN_NOTHING = ("list", "report", "export", "forget")
_RUNNING = ("workers", "threads", "engine", "slurm_config", "save", "rerun", "timeout", "checkpoint", "pdb")
"""How cells are run."""
_GRID = ("table", "dataset", "partition", "clients", "method", "backbone")
_SETTINGS = ("seeds", "set", "rounds", "task", "kernel", "device")
_CHOOSING = (*_GRID, *_SETTINGS, "shard")
"""What says which cells; `--all` is what other commands than a run take anyway."""
_CHOSEN_BY = {
    "report": ("table",),
    "export": (*_GRID, "seeds"),
    "verify": (*_GRID, "seeds"),
    "performance": ("dataset", "clients", "method"),
    "peers": ("dataset", "clients", "method"),
    # Those of a campaign are refused in words of their own.
    "campaign": (*_GRID, *_SETTINGS),
    "authors": _CHOOSING,
}
"""Command → what it looks at of that; others look at none of it."""
_LISTS = (*_GRID, "save", "forget")
_SPEED = ("peers", "performance")
_NEEDS = {
    "hours": ("campaign",),
    "max_seconds": ("verify",),
    "rows": ("export",),
    "columns": ("export",),
    "pairs": _SPEED,
    "peer_python": _SPEED,
    "peer_checkout": _SPEED,
    "authors_python": ("authors",),
}
"""Option → those without which it says nothing."""


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


def _items(parser: argparse.ArgumentParser, name: str, values: Sequence[str]) -> tuple[str, ...]:
    """The items of an option's lists. Ends the program where it is given and names nothing, as a variable of
    the shell that is empty: left out, it would stand for everything."""
    items = tuple(item for value in values for item in split_list(value))
    if values and not items:
        parser.error(f"{_spelt(name)} names nothing: give it a value or leave it out")
    return items


def _device_of(settings: Sequence[str]) -> str:
    """The device that they name last, as `--set` or by its own option."""
    named = [value.strip() for key, _, value in (text.partition("=") for text in settings) if key == "device"]
    return named[-1] if named else "cpu"


def parse_seeds(values: Sequence[str]) -> tuple[int, ...]:
    """`N` is the seeds 0…N−1; several values, or a list with commas, are the seeds themselves, `A-B` all from
    A to B.

    Raises ValueError, in words, for anything else.
    """
    items = [item for value in values for item in split_list(value)]
    ranges = [item.split("-") for item in items]
    if not items or not all(len(ends) <= 2 and all(map(str.isdecimal, ends)) for ends in ranges):
        wanted = "a count, or a list of whole numbers and of ranges such as 3-9"
        raise ValueError(f"--seeds takes {wanted}, not {' '.join(values)!r}")
    if len(items) == 1 and items[0].isdecimal() and "," not in values[0]:
        if int(items[0]) < 1:
            raise ValueError("--seeds takes a count of at least 1: 1 is seed 0 alone, and 3, is seed 3")
        return tuple(range(int(items[0])))
    found: dict[int, None] = {}
    for item, ends in zip(items, ranges, strict=True):
        first, last = int(ends[0]), int(ends[-1])
        if first > last:
            raise ValueError(f"--seeds takes ranges from the lower seed to the higher, not {item!r}")
        found |= dict.fromkeys(range(first, last + 1))
    return tuple(found)


def parse(argv: Sequence[str]) -> Arguments:
    """Read the command line. Exits with code 2 and one sentence if it cannot be understood."""
    parser = make_parser()
    given = parser.parse_args(argv)
    _check_together(parser, given)
    listed = {name: _items(parser, name, getattr(given, name)) for name in _LISTS}
    for item in listed["clients"]:
        if not item.isdecimal() or int(item) < 1:
            parser.error(f"--clients takes whole numbers of at least 1, not {item!r}")
    try:
        seeds = parse_seeds(given.seeds) if given.seeds else ()
    except ValueError as error:
        parser.error(str(error))
    settings = list(given.set)
    for name in ("rounds", "kernel", "device", "task"):
        value = getattr(given, name)
        if value is None:
            continue
        if another := next((text for text in given.set if text.partition("=")[0].strip() == name), None):
            parser.error(f"--{name} {value} and --set {another} both set {name}: give one of them")
        settings.append(f"{name}={value}")
    values: dict[str, Any] = {item.name: getattr(given, item.name, None) for item in fields(Arguments)}
    values |= listed
    values["authors"] = tuple(given.authors)
    values["clients"] = tuple(map(int, listed["clients"]))
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
        values["workers"] = len(os.sched_getaffinity(0)) if _device_of(settings) == "cpu" else 1
    if given.performance is not None:
        values["performance"] = _items(parser, "performance", given.performance)
    elif given.peers:
        values["performance"] = ("peers",)
    return Arguments(**values)


def _check_together(parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    """Ends the program where one of the options given would be passed over."""
    named = [name for name, value in vars(given).items() if value != parser.get_default(name)]
    for name, needed in _NEEDS.items():
        if name in named and not {*needed} & {*named}:
            parser.error(f"{_spelt(name)} needs {' or '.join(map(_spelt, needed))}")
    asked = [[name for name in task if name in named] for task in _TASKS]
    alone = [names[0] for names in asked if names]
    if len(alone) > 1:
        parser.error(f"{_spelt(alone[0])} and {_spelt(alone[1])} are two commands: give one of them")
    commands = [name for names in asked for name in names]
    heard = {option for name in commands for option in _CHOSEN_BY.get(name, ())}
    if commands and (unheard := [name for name in _CHOOSING if name in named and name not in heard]):
        parser.error(f"{_spelt(commands[0])} does not choose by {_spelt(unheard[0])}: drop one of them")
    if "all" in named and "table" in named and not commands:
        parser.error("--all takes every table: drop it or --table")
    if idle := [name for name in _RUN_NOTHING if name in named]:
        if "dry_run" in named:
            parser.error(f"{_spelt(idle[0])} runs no cell, which --dry-run could list: drop one of them")
        if vain := [name for name in _RUNNING if name in named]:
            parser.error(
                f"{_spelt(idle[0])} runs no cell, which {_spelt(vain[0])} is about: drop one of them"
            )


def _spelt(name: str) -> str:
    return f"--{name.replace('_', '-')}"
