"""Limits of numbers, stated in the types of a dataclass's fields: `mu: NonNegative = 0.01`."""

from __future__ import annotations

import math
import typing
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Annotated

from datasets.errors import UserError


@dataclass(frozen=True)
class Limit:
    """What a number must be besides finite."""

    words: str
    """After 'must'."""
    holds: Callable[[float], bool]


NonNegative = Annotated[float, Limit("not be negative", lambda value: value >= 0)]
Positive = Annotated[float, Limit("be positive", lambda value: value > 0)]
Share = Annotated[float, Limit("be in [0, 1]", lambda value: 0 <= value <= 1)]
PositiveShare = Annotated[float, Limit("be in (0, 1]", lambda value: 0 < value <= 1)]
Size = Annotated[int, Limit("not be negative", lambda value: value >= 0)]
Count = Annotated[int, Limit("be at least 1", lambda value: value >= 1)]


def check_limits(owner: str, checked: object) -> None:
    """Raises UserError for a field of a dataclass that is outside the limit of its type, or not finite.

    `owner` comes before the field's name in the sentence; it may be empty.
    """
    for name, limit in _limits(type(checked)):  # type: ignore[arg-type]  # mypy: a class is hashable
        value = getattr(checked, name)
        if not (limit.holds(value) and value < math.inf):
            raise UserError(f"{owner}{name} must {limit.words}, and finite; it is {value}")


@cache
def _limits(kind: type) -> tuple[tuple[str, Limit], ...]:
    try:
        hints = typing.get_type_hints(kind, include_extras=True)
    except (NameError, TypeError):
        # a plug-in's hints may name what is imported for type checkers only
        return ()
    found = ((name, getattr(hint, "__metadata__", ())) for name, hint in hints.items())
    return tuple((name, limit) for name, limits in found for limit in limits if isinstance(limit, Limit))
