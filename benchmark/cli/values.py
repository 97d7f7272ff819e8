"""Parsing of option values: lists, seeds, counts, times."""

import argparse
import math
import re
from collections.abc import Sequence
from pathlib import Path

from fedsub.benchmark.spec.request import MOST_SEEDS

_UNITS = {"s": 1, "m": 60, "h": 3600}
"""Unit of time → seconds."""


def split_list(text: str) -> list[str]:
    """Return the items of a comma-separated list; commas inside brackets belong to an item."""
    return [item.strip() for item in re.split(r",(?![^\[\]]*\])", text) if item.strip()]


def parse_seeds(values: Sequence[str]) -> tuple[int, ...]:
    """Parse seeds: `N` means 0…N−1; several values, or a list with commas, are seeds; `A-B` is a range.

    Raises ValueError for anything else.
    """
    items = [item for value in values for item in split_list(value)]
    ranges = [item.split("-") for item in items]
    if not items or not all(len(ends) <= 2 and all(map(str.isdecimal, ends)) for ends in ranges):
        wanted = "a count, or a list of whole numbers and of ranges such as 3-9"
        raise ValueError(f"--seeds takes {wanted}, not {' '.join(values)!r}")
    if len(items) == 1 and items[0].isdecimal() and "," not in values[0]:
        if not 1 <= int(items[0]) <= MOST_SEEDS:
            raise ValueError(f"--seeds takes a count from 1 to {MOST_SEEDS}: 1 is seed 0, and '3,' is seed 3")
        return tuple(range(int(items[0])))
    found: dict[int, None] = {}
    for item, ends in zip(items, ranges, strict=True):
        first, last = int(ends[0]), int(ends[-1])
        if not first <= last < first + MOST_SEEDS:
            raise ValueError(
                f"--seeds takes ranges of at most {MOST_SEEDS} seeds, the lower one first, not {item!r}"
            )
        found |= dict.fromkeys(range(first, last + 1))
    return tuple(found)


def positive(text: str) -> int:
    """Parse a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, not {text!r}")
    return int(text)


def bundle(text: str) -> int | Path:
    """Parse a number of records, or the path of a bundle."""
    return positive(text) if text.isdecimal() else Path(text)


def duration(text: str) -> float:
    """Parse `90s`, `30m` or `2h` into seconds."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS else (text, "s")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not value > 0:
        raise argparse.ArgumentTypeError(f"expected a time such as 90s, 30m or 2h, not {text!r}")
    return _UNITS[unit] * value


def interval(text: str) -> float:
    """Parse a duration, or 0 for never."""
    return 0.0 if text == "0" else duration(text)


def shard(text: str) -> tuple[int, int]:
    """Parse the number of a shard and the number of shards, `3/16`."""
    part, slash, parts = text.partition("/")
    if not (part.isdecimal() and slash and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise argparse.ArgumentTypeError(
            f"expected a part and the number of parts, such as 3/16, not {text!r}"
        )
    return int(part), int(parts)


def title(text: str) -> tuple[str, str]:
    """Parse a name and its title, `NAME=TITLE`; brackets in either may contain `=`."""
    name, *given = map(str.strip, re.split(r"=(?![^\[\]]*\])", text, maxsplit=1))
    if not (name and "".join(given)):
        raise argparse.ArgumentTypeError(f"expected NAME=TITLE, not {text!r}")
    return name, given[0]
