"""Limits of numbers, as annotated types of fields and options: `mu: NonNegative = 0.01`."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any

from fedsub.datasets.errors import UserError
from fedsub.datasets.hints import hints_of


@dataclass(frozen=True)
class Limit:
    """A limit of a finite number."""

    words: str
    """Text after 'must' in the error."""
    holds: Callable[[float], bool]


NonNegative = Annotated[float, Limit("not be negative", lambda value: value >= 0)]
Positive = Annotated[float, Limit("be positive", lambda value: value > 0)]
Share = Annotated[float, Limit("be in [0, 1]", lambda value: 0 <= value <= 1)]
ShareBelowOne = Annotated[float, Limit("be in [0, 1)", lambda value: 0 <= value < 1)]
PositiveShare = Annotated[float, Limit("be in (0, 1]", lambda value: 0 < value <= 1)]
Cosine = Annotated[float, Limit("be in [-1, 1]", lambda value: -1 <= value <= 1)]
Size = Annotated[int, Limit("not be negative", lambda value: value >= 0)]
Count = Annotated[int, Limit("be at least 1", lambda value: value >= 1)]


def check_limits(owner: str, checked: object) -> None:
    """Raises UserError for a field of a dataclass that is not finite or outside the limit of its type, and
    for a type that cannot be resolved.

    `owner` precedes the field's name in the error and may be empty.
    """
    kind: Any = type(checked)
    for name, hint in _limited(kind).items():
        check_limit(owner + name, getattr(checked, name), hint)


@cache
def _limited(kind: Any) -> Mapping[str, Any]:
    """Return field → type, for the fields of a dataclass whose types state limits."""
    names = tuple(each.name for each in fields(kind))
    return {name: hint for name, hint in hints_of(kind, names).items() if limits_in(hint)}


def check_limit(what: str, value: Any, hint: Any) -> None:
    """Raises UserError for a value that is not finite or outside the limits of its type.

    `what` begins the error's sentence.
    """
    for limit in limits_in(hint):
        if not (limit.holds(value) and value < math.inf):
            raise UserError(f"{what} must {limit.words}, and finite; it is {value}")


def limits_in(hint: Any) -> list[Limit]:
    """Return the limits that a type states."""
    return [each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Limit)]
