"""Names with options: parsed once, checked against what takes them."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsub.datasets.errors import UserError
from fedsub.datasets.limits import Positive, Size
from fedsub.datasets.options import Spec, checked_options, defaults_of, format_name


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
        ("count", 1.5, "a whole number, not 1.5"),
        ("switch", 1, "true or false, not 1"),
        ("cuont", 1, "unknown option of own 'cuont': did you mean count"),
    ],
)
def test_what_cannot_be_is_one_sentence(target: Any, key: str, value: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        checked_options("own", target, {key: value})


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
    def scheme(dataset: Missing, *, alpha: Positive = 1.0, index: Size = 0) -> None:  # type: ignore[name-defined]  # noqa: F821
        """Parameters before the options may have any type."""

    assert checked_options("mine", scheme, {"alpha": "2", "index": 0}, given=1) == {"alpha": 2.0, "index": 0}
    with pytest.raises(UserError, match=r"mine's alpha must be positive, and finite; it is 0.0"):
        checked_options("mine", scheme, {"alpha": 0}, given=1)
    with pytest.raises(UserError, match=r"mine's index must be a whole number, not 1.5"):
        checked_options("mine", scheme, {"index": 1.5}, given=1)
