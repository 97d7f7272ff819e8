"""Reading and type-checking of JSON and TOML."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from fedsub.datasets.errors import UserError
from fedsub.datasets.files import read_toml

Kind = TypeVar("Kind")

LARGEST = 1e200
"""Largest accepted number; beyond it sums, squares and ratios overflow."""
_BOUNDS: Mapping[type, float] = {int: 2**63 - 1, float: LARGEST}
"""Type of a number → how large it may be: tables hold whole ones in 64 bits."""
_WORDS: Mapping[Any, str] = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a finite number",
    list[int]: "a list of whole numbers",
    dict: "a table",
    list[dict]: "a list of tables",
}


def parse_line(line: bytes) -> dict[str, Any] | None:
    """The JSON object in a line, or None if there is none that could be written again."""
    try:
        values = json.loads(line, parse_constant=_refuse)
        if b"\\ud" in line.lower():
            # Half of a surrogate pair is read without complaint and cannot be written.
            json.dumps(values, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def checked(name: str, value: Any, hint: Any) -> Any:
    """Return `value` if it has the type `hint`. Raises UserError, naming `name`, if it has not."""
    if not fits(value, hint):
        raise UserError(f"{name} must be {_WORDS.get(hint, hint)}, not {repr(value)[:80]}")
    return value


def fits(value: Any, hint: Any) -> bool:
    """Whether a value from JSON has the type of a field."""
    if not isinstance(value, (dict, list)):
        # NaN, which JSON has not, is never within the bounds.
        within = type(value) not in _BOUNDS or abs(value) <= _BOUNDS[type(value)]
        return within and (hint is Any or type(value) in _scalars(hint))
    origin, arguments = _parts(hint)
    if origin is dict:
        if not isinstance(value, dict):
            return False
        return all(isinstance(key, str) for key in value) and _all_fit(value.values(), arguments[1])
    if origin is list:
        return isinstance(value, list) and _all_fit(value, arguments[0])
    return hint is Any or type(value) in _scalars(hint)


def _all_fit(values: Collection[Any], hint: Any) -> bool:
    if _parts(hint)[0] in (dict, list):
        return all(fits(value, hint) for value in values)
    found = set(map(type, values))
    known = hint is Any or found <= _scalars(hint)
    return known and (
        found.isdisjoint(_BOUNDS)
        or all(abs(value) <= _BOUNDS[type(value)] for value in values if type(value) in _BOUNDS)
    )


@cache
def _parts(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    return typing.get_origin(hint), typing.get_args(hint)


@cache
def _scalars(hint: Any) -> frozenset[type]:
    """The types that a value of a hint without brackets may have; whole numbers are floats too."""
    origin, arguments = _parts(hint)
    if origin in (types.UnionType, typing.Union):
        return frozenset().union(*map(_scalars, arguments))
    return frozenset(_BOUNDS if hint is float else (hint,))


def read_as(path: Path, kind: type[Kind]) -> Kind:
    """Read a TOML file into a msgspec Struct. Raises UserError, naming the entry, if it does not fit."""
    try:
        return msgspec.convert(read_toml(path), kind)
    except msgspec.ValidationError as error:
        raise UserError(f"{path}: {error}") from error
