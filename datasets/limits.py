"""Limits of numbers, as annotated types of fields and options, and ranges over which they are tuned.

mu: NonNegative = tunable(0.01, log=(1e-4, 10))
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Annotated, Any, TypeVar

from fedsub.datasets.errors import UserError
from fedsub.datasets.hints import hints_of

Kind = TypeVar("Kind")
_KEY = "range"
_DIGITS = 3
"""Significant digits of a tuned number, few so that a name with its options stays readable."""


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


@dataclass(frozen=True)
class Range:
    """An interval with a linear or logarithmic scale, or a list of choices."""

    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False
    """Whether values are whole numbers."""
    choices: tuple[Any, ...] = ()

    def at(self, share: float) -> Any:
        """Return the value at a share in [0, 1) of the range."""
        if self.choices:
            return self.choices[int(share * len(self.choices))]
        if self.whole:
            return int(self.low + share * (self.high - self.low + 1))
        if self.log:
            value = self.low * (self.high / self.low) ** share
        else:
            value = self.low + share * (self.high - self.low)
        return float(f"{value:.{_DIGITS}g}")


def tunable(
    default: Kind,
    *,
    log: tuple[float, float] | None = None,
    linear: tuple[float, float] | None = None,
    choices: tuple[Any, ...] = (),
) -> Kind:
    """Return a dataclass field with this default, tuned over an interval or over choices.

    For whole numbers both `linear` bounds are included. Raises ValueError unless exactly one range is given,
    and for a default outside it.
    """
    if sum((log is not None, linear is not None, bool(choices))) != 1:
        raise ValueError("give exactly one of log, linear and choices")
    low, high = log or linear or (0.0, 0.0)
    whole = linear is not None and isinstance(default, int)
    if default not in choices if choices else not low <= default <= high:  # type: ignore[operator]
        raise ValueError(f"the default {default!r} lies outside its range")
    found = Range(low, high, log is not None, whole, choices)
    return field(default=default, metadata={_KEY: found})


def ranges_of(kind: Any) -> Iterator[tuple[str, Range]]:
    """Yield name and range of every tunable field of a dataclass, in the order of its fields."""
    for item in fields(kind):
        if _KEY in item.metadata:
            yield item.name, item.metadata[_KEY]
