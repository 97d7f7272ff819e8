"""Type hints of functions' parameters and dataclasses' fields."""

import inspect
import sys
import typing
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from fedsub.datasets.errors import UserError


@lru_cache(maxsize=256)
def hints_of(target: Callable[..., Any], names: tuple[str, ...]) -> Mapping[str, Any]:
    """Return the type hints of these parameters or fields, with their `Annotated` metadata.

    A name without a type is left out; the types of other names need not exist at run time.
    Raises UserError for a type that cannot be resolved.
    """
    target = inspect.unwrap(target)
    found = {}
    for owner in reversed(target.__mro__) if inspect.isclass(target) else [target]:
        for name, hint in inspect.get_annotations(owner).items():
            if name in names:
                found[name] = _resolved(owner, name, hint)
    return found


def _resolved(owner: Any, name: str, hint: Any) -> Any:
    space = (
        vars(sys.modules[owner.__module__]) if inspect.isclass(owner) else getattr(owner, "__globals__", {})
    )
    alone = type("Alone", (), {"__annotations__": {name: hint}})
    try:
        return typing.get_type_hints(alone, space, include_extras=True)[name]
    except Exception as error:
        raise UserError(
            f"the type {hint!r} of {owner.__qualname__}'s {name} cannot be resolved ({error}): import "
            "its names outside of TYPE_CHECKING"
        ) from error
