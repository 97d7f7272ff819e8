"""Names with options: parsed once, checked against what takes them, its limits and its ranges."""

import pickle
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsub.datasets.errors import UserError, unknown
from fedsub.datasets.hints import hints_of
from fedsub.datasets.limits import Positive, Size, ranges_of, tunable
from fedsub.datasets.options import Spec, checked_options, defaults_of, format_name
from fedsub.datasets.partition import SCHEMES as PARTITIONS
from fedsub.datasets.splits import SCHEMES as SPLITS
from fedsub.datasets.synthetic import GENERATORS


@dataclass(frozen=True)
class Given:
    number: float = 1.0
    count: int = 1
    text: str = ""
    choice: Literal["one", "two"] = "one"
    width: Literal[15, 73] = 15
    switch: bool = False


def function(
    number: float = 1.0,
    count: int = 1,
    text: str = "",
    choice: Literal["one", "two"] = "one",
    width: Literal[15, 73] = 15,
    switch: bool = False,
) -> None:
    """The options of `Given` as a function."""


def untyped(number=1.0, count=1, text="", choice="one", width=15, switch=False):
    """The options of `Given` without type hints: the defaults give the types."""


@pytest.fixture(params=[Given, function, untyped])
def target(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_text_is_read_as_the_type_that_is_wanted(target: Any) -> None:
    spec = Spec("own[number=2,count=3,text=007,choice=two,width=73,switch=true]")
    expected = {"number": 2.0, "count": 3, "text": "007", "choice": "two", "width": 73, "switch": True}
    found = checked_options("own", target, spec.written)
    assert found == expected
    assert [type(value) for value in found.values()] == [type(value) for value in expected.values()]
    assert defaults_of(target) == vars(Given())


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("number", "much", "own's number must be a finite number, not 'much'"),
        ("number", float("nan"), "a finite number, not nan"),
        ("number", True, "a finite number, not True"),
        ("count", 1.5, "a whole number, not 1.5"),
        ("switch", 1, "true or false, not 1"),
        ("cuont", 1, "unknown option of own 'cuont': did you mean count"),
    ],
)
def test_what_cannot_be_is_one_sentence(target: Any, key: str, value: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        checked_options("own", target, {key: value})


@pytest.mark.parametrize("name", ["FED-PUB", "FedPub", "fed_pub"])
def test_a_name_as_papers_spell_it_is_near(name: str) -> None:
    assert str(unknown("method", name, ["gcfl", "fedpub"])).endswith("did you mean fedpub?")


def test_choices() -> None:
    for target in (Given, function):
        with pytest.raises(UserError, match="unknown value of own's choice 'tow': did you mean two"):
            checked_options("own", target, {"choice": "tow"})
        with pytest.raises(UserError, match="unknown value of own's width '16': did you mean 15"):
            checked_options("own", target, {"width": "16"})
    with pytest.raises(UserError, match="own takes no options: leave choice out"):
        checked_options("own", lambda: None, {"choice": "one"})


words = st.text("abcxyz-", min_size=1, max_size=8).filter(lambda text: text.strip("-") == text)


@given(words, st.dictionaries(words.map(lambda key: key.replace("-", "_")), st.integers() | st.booleans()))
def test_a_spec_is_its_spelling(name: str, options: dict[str, int | bool]) -> None:
    spec = Spec(format_name(name, options))
    assert (spec.name, spec.options) == (name, options)
    assert Spec.of(str(spec)) == spec == pickle.loads(pickle.dumps(spec))
    assert Spec.of(spec) is spec


@pytest.mark.parametrize("text", ["own[mu=0.1,mu=0.2]", "own[mu=0.1,mu=0.1]", "own[a_b=1,mu=0.1,a-b=2]"])
def test_a_repeated_option_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"gives (mu|a_b) twice: write each option once"):
        Spec(text)


def test_limits_and_types_of_options_are_those_that_the_function_states() -> None:
    def scheme(dataset: "Missing", *, alpha: Positive = 1.0, index: Size = 0) -> None:  # type: ignore[name-defined]  # noqa: F821
        """Parameters before the options may have any type."""

    assert checked_options("mine", scheme, {"alpha": "2", "index": 0}, given=1) == {"alpha": 2.0, "index": 0}
    with pytest.raises(UserError, match=r"mine's alpha must be positive, and finite; it is 0.0"):
        checked_options("mine", scheme, {"alpha": 0}, given=1)
    with pytest.raises(UserError, match=r"mine's index must be a whole number, not 1.5"):
        checked_options("mine", scheme, {"index": 1.5}, given=1)


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
