"""Reading and type-checking of JSON and TOML."""

import types
import typing
from collections.abc import Mapping
from functools import cache, reduce
from operator import or_
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from fedsub.datasets.errors import UserError
from fedsub.datasets.files import read_toml

Kind = TypeVar("Kind")

LARGEST = 1e200
"""Largest accepted number; beyond it sums, squares and ratios overflow."""
_WHOLE = Annotated[int, msgspec.Meta(ge=-(2**63 - 1), le=2**63 - 1)]
"""TOML stores whole numbers in 64 bits."""
_FINITE = Annotated[float, msgspec.Meta(ge=-LARGEST, le=LARGEST)]
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
    """Return the JSON object in a line, or None if the line holds no valid one."""
    try:
        values = msgspec.json.decode(line)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None


def checked(name: str, value: Any, hint: Any) -> Any:
    """Return `value` if it has the type `hint`. Raises UserError, naming `name`, if it does not."""
    if not fits(value, hint):
        raise UserError(f"{name} must be {_WORDS.get(hint, hint)}, not {repr(value)[:80]}")
    return value


def fits(value: Any, hint: Any) -> bool:
    """Whether a value from JSON has the type of a field."""
    try:
        msgspec.convert(value, _bounded(hint))
    except msgspec.ValidationError:
        return False
    return True


class Table:
    """The types of a table's entries; each entry may be missing, and unknown entries are ignored."""

    def __init__(self, hints: Mapping[str, Any]) -> None:
        self._hints = dict(hints)
        # msgspec looks up the checks of a class at once, those of a hint only after hashing all its parts.
        entries = [(name, _bounded(hint), None) for name, hint in hints.items()]
        self._kind = msgspec.defstruct("Entries", entries)

    def check(self, values: Mapping[str, Any]) -> None:
        """Raises UserError, as `checked` does, for an entry of another type."""
        try:
            msgspec.convert(values, self._kind)
        except msgspec.ValidationError:
            for name in self._hints.keys() & values.keys():
                checked(name, values[name], self._hints[name])
            raise


@cache
def _bounded(hint: Any) -> Any:
    """Return the hint with bounds for its numbers; whole numbers also pass as floats."""
    if hint is Any:
        hint = int | float | str | bool | list | dict | None
    parts = tuple(map(_bounded, typing.get_args(hint)))
    origin = typing.get_origin(hint)
    if not parts:
        return {int: _WHOLE, float: _WHOLE | _FINITE}.get(hint, hint)
    return reduce(or_, parts) if origin in (types.UnionType, typing.Union) else origin[parts]


def read_as(path: Path, kind: type[Kind]) -> Kind:
    """Read a TOML file into a msgspec Struct. Raises UserError, naming the entry, if it does not fit."""
    try:
        return msgspec.convert(read_toml(path), kind)
    except msgspec.ValidationError as error:
        raise UserError(f"{path}: {error}") from error
