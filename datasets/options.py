"""Names with options in brackets: `fedprox[mu=0.01]`, `metis[recursive=true]`."""

import inspect
import re
import sys
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from fedsub.datasets.errors import UserError, unknown
from fedsub.datasets.hints import hints_of
from fedsub.datasets.limits import check_limit

OptionValue = bool | int | float | str

_NAME = re.compile(r"(?P<name>[^\[\]]+?)\s*(?:\[(?P<options>[^\[\]]*)\])?")

_KINDS = {bool: "true or false", int: "a whole number", float: "a finite number", str: "text"}


@dataclass(frozen=True)
class Spec:
    """A parsed name with options.

    Two are equal if they are spelt alike, because records and their keys hold the spelling.
    """

    text: str
    """The original text, `name[key=value,…]`."""
    name: str = field(init=False, compare=False)
    """Name without options: a registered name, or the path of a file."""
    written: Mapping[str, str] = field(init=False, compare=False, repr=False)
    """The options as text, in their order, so that `007` of an option of type text does not become 7."""

    def __post_init__(self) -> None:
        """Raises UserError if the brackets or an option are malformed, or an option is repeated."""
        if not isinstance(self.text, str):
            raise UserError(f"give a name or a path, not {self.text!r:.80}")
        match = _NAME.fullmatch(self.text.strip())
        if match is None:
            raise UserError(f"cannot read {self.text!r}: write name[key=value,key=value]")
        written: dict[str, str] = {}
        for part in filter(None, (match["options"] or "").split(",")):
            key, equals, value = part.partition("=")
            if not equals or not key.strip() or not value.strip():
                raise UserError(f"cannot read option {part!r} of {self.text!r}: write key=value")
            name = key.strip().replace("-", "_")
            if name in written:
                raise UserError(f"{self.text!r} gives {name} twice: write each option once")
            written[name] = value.strip()
        object.__setattr__(self, "name", match["name"].strip())
        object.__setattr__(self, "written", MappingProxyType(written))

    @property
    def options(self) -> dict[str, OptionValue]:
        """The options as read by `parse_value`, in their written order."""
        return {key: parse_value(value) for key, value in self.written.items()}

    def __str__(self) -> str:
        return self.text

    def __reduce__(self) -> "tuple[type[Spec], tuple[str]]":
        return Spec, (self.text,)

    @classmethod
    def of(cls, given: "str | Spec") -> "Spec":
        """Parse a text; return a `Spec` unchanged."""
        return given if isinstance(given, Spec) else cls(given)


def parse_value(text: str) -> OptionValue:
    """Parse `true`/`false` as bool, else as int, else as float, else return the text itself."""
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text


def format_value(value: OptionValue) -> str:
    """Return the text that `parse_value` reads back as `value`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def parse_name(text: str) -> tuple[str, dict[str, OptionValue]]:
    """Split `name[key=value,…]` into the name and its options.

    Raises UserError as `Spec` does.
    """
    spec = Spec(text)
    return spec.name, spec.options


def format_name(name: str, options: Mapping[str, OptionValue]) -> str:
    """Invert `parse_name`, with options in alphabetical order."""
    if not options:
        return name
    return f"{name}[{','.join(f'{key}={format_value(options[key])}' for key in sorted(options))}]"


def defaults_of(target: Callable[..., Any], given: int = 0) -> dict[str, Any]:
    """Return the options of a function, or the fields of a dataclass, with their defaults.

    The first `given` parameters are no options; an option without a default is left out.
    """
    parameters = list(inspect.signature(target).parameters.values())[given:]
    return {each.name: each.default for each in parameters if each.default is not each.empty}


def defaults_in_words(defaults: Mapping[str, Any]) -> str:
    """Return options with their defaults as text: `mu=0.01, recursive=false`."""
    return ", ".join(f"{key}={format_value(value)}" for key, value in defaults.items())


def checked_options(
    owner: str, target: Callable[..., Any], values: Mapping[str, OptionValue], given: int = 0
) -> dict[str, Any]:
    """Return `values` in the types of the parameters of `target`, a function or a dataclass.

    Text is read by `parse_value` unless the type is str; an int is accepted as a float. A parameter without a
    type hint has the type of its default. A type other than bool, int, float, str and Literal accepts any
    value, and so does `**options`. `owner` names the owner of the options in errors.
    Raises UserError for an unknown option, a value of another type, a value outside the choices of a Literal
    or the limits of its type, a number that is not finite, and a type that cannot be resolved.
    """
    taken = list(inspect.signature(target).parameters.values())[given:]
    parameters = {each.name: each for each in taken if each.kind is not each.VAR_KEYWORD}
    checked = {}
    hints = hints_of(target, tuple(parameters))
    for key, value in values.items():
        if key in parameters:
            hint = hints.get(key, type(parameters[key].default))
            checked[key] = _checked(owner, key, value, hint)
            check_limit(f"{owner}'s {key}", checked[key], hint)
        elif len(taken) > len(parameters):
            checked[key] = parse_value(value) if isinstance(value, str) else value
        elif parameters:
            raise unknown(f"option of {owner}", key, parameters)
        else:
            raise UserError(f"{owner} takes no options: leave {key} out")
    return checked


def _checked(owner: str, key: str, value: OptionValue, hint: Any) -> Any:
    kind = hint.__origin__ if typing.get_origin(hint) is typing.Annotated else hint
    if typing.get_origin(kind) is typing.Literal:
        choices = typing.get_args(kind)
        found = value if value in choices or not isinstance(value, str) else parse_value(value)
        if found not in choices:
            raise unknown(f"value of {owner}'s {key}", str(value), map(str, choices))
        return found
    if kind is str:
        return value if isinstance(value, str) else str(value)
    if isinstance(value, str):
        value = parse_value(value)
    if kind is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        # Unlike float(), the comparison does not fail for an integer that is too large for a float.
        if abs(value) <= sys.float_info.max:
            return float(value)
    elif type(value) is kind:
        return value
    if kind in _KINDS:
        raise UserError(f"{owner}'s {key} must be {_KINDS[kind]}, not {value!r}")
    return value
