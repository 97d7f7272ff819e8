"""Limits of numbers in the types of a dataclass's fields."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from fedsub.datasets.errors import UserError
from fedsub.datasets.hints import hints_of
from fedsub.datasets.limits import Count, NonNegative, Positive, PositiveShare, Share, Size, check_limits
from fedsub.datasets.options import defaults_of
from fedsub.datasets.partition import SCHEMES as PARTITIONS
from fedsub.datasets.splits import SCHEMES as SPLITS
from fedsub.datasets.synthetic import GENERATORS


@dataclass(frozen=True)
class Everything:
    """A field of each limit, and one without."""

    strength: NonNegative = 0.0
    rate: Positive = 1e-9
    share: Share = 1.0
    part: PositiveShare = 1.0
    first: Size = 0
    rounds: Count = 1
    free: float = -1.0

    def __post_init__(self) -> None:
        check_limits("its ", self)


def test_values_at_the_limit_are_taken() -> None:
    Everything(share=0.0, part=1e-9, strength=10**400)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"strength": -1e-9}, "its strength must not be negative, and finite; it is -1e-09"),
        ({"strength": float("inf")}, "and finite; it is inf"),
        ({"rate": 0.0}, "rate must be positive"),
        ({"share": 1.1}, r"share must be in \[0, 1\]"),
        ({"part": 0.0}, r"part must be in \(0, 1\]"),
        ({"rounds": 0}, "its rounds must be at least 1"),
    ],
)
def test_what_is_outside_its_limit_is_refused_by_name(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        Everything(**values)


@pytest.mark.parametrize(
    ("taker", "given"),
    [
        *((PARTITIONS.find(name), 3) for name in PARTITIONS.names()),
        *((SPLITS.find(name), 3) for name in SPLITS.names()),
        *((each.options, 0) for each in GENERATORS.values()),
    ],
)
def test_every_option_that_is_a_number_states_its_limits(taker: Callable[..., Any], given: int) -> None:
    hints = hints_of(taker, tuple(defaults_of(taker, given)))
    assert not [name for name, hint in hints.items() if hint in (int, float)]
