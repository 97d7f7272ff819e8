"""Ranges over which settings and options are tuned, stated where they are defined.

mu: NonNegative = tunable(0.01, log=(1e-4, 10))
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from fedsub.datasets.options import format_value

Kind = TypeVar("Kind")
_KEY = "range"
_DIGITS = 3
"""Significant digits of a tuned number, few so that a name with its options stays readable."""


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

    def __str__(self) -> str:
        if self.choices:
            return ", ".join("+".join(map(format_value, _items(each))) for each in self.choices)
        return f"{self.low:g} to {self.high:g}" + (", log-uniform" if self.log else "")


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


def _items(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)
