from dataclasses import dataclass, fields

import pytest

from fedsub.datasets.ranges import ranges_of, tunable


@dataclass(frozen=True)
class _Options:
    rate: float = tunable(0.01, log=(1e-4, 1.0))
    share: float = tunable(0.5, linear=(0.0, 0.8))
    order: int = tunable(3, linear=(2, 5))
    kind: str = tunable("a", choices=("a", "b"))
    fixed: int = 7


def test_a_tunable_field_keeps_its_default_and_states_its_range() -> None:
    assert _Options() == _Options(0.01, 0.5, 3, "a", 7)
    assert [name for name, _ in ranges_of(_Options)] == ["rate", "share", "order", "kind"]
    assert len(fields(_Options)) == 5


@pytest.mark.parametrize(
    ("name", "shares", "values"),
    [
        ("rate", (0.0, 0.25, 0.5, 0.75), (1e-4, 1e-3, 1e-2, 0.1)),
        ("share", (0.0, 0.5, 0.999), (0.0, 0.4, 0.799)),
        ("order", (0.0, 0.25, 0.5, 0.999), (2, 3, 4, 5)),
        ("kind", (0.0, 0.49, 0.5, 0.999), ("a", "a", "b", "b")),
    ],
)
def test_a_share_of_a_range_is_a_value(
    name: str, shares: tuple[float, ...], values: tuple[object, ...]
) -> None:
    found = dict(ranges_of(_Options))[name]
    assert tuple(found.at(share) for share in shares) == values


@pytest.mark.parametrize(
    "given", [{}, {"log": (1.0, 2.0), "choices": (1, 2)}, {"log": (1.0, 2.0)}, {"choices": (1, 2)}]
)
def test_a_range_is_one_and_holds_the_default(given: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"exactly one|outside"):
        tunable(0.5, **given)  # type: ignore[arg-type]
