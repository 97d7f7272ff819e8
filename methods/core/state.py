"""The state of a run as plain data and tensors, from which it can resume; and the global random generators.

A class names its state: a method in `client_state` and `server_state`, any other class in `state`. The names
of base classes are added. Everything else follows from the set-up, which a resumed run repeats.
"""

import random
from collections import deque
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from fedsub.datasets.errors import UserError

LISTS = ("client_state", "server_state", "state")
OWN = "fedsub."
"""Prefix of the names of the benchmark's modules."""
SET_UP = {"architecture", "federation", "inputs", "shares"}
"""Annotated attributes of a method that only its set-up makes."""
ARRAY = "fedsub.array"
"""Key under which the data type, shape and values of a numpy array are saved."""


class CheckpointError(UserError):
    """Raised for a checkpoint from which this run cannot resume."""


class Checkpoint(Protocol):
    """Storage of a run's state."""

    def restore(self, state: "State") -> None:
        """Restore the saved state, if there is one, into a run that was just set up. Raises CheckpointError
        if that fails; the run must then be set up again."""

    def after_round(self, state: "State") -> None:
        """Save the state if it is time to; called after every round except the last."""


class State:
    """The state of named objects; make it when their set-up is complete."""

    def __init__(self, **parts: Any) -> None:
        self._parts, self._marks = parts, marks(*parts.values())

    def save(self) -> dict[str, Any]:
        """Return data for `torch.save` that `torch.load` reads with `weights_only=True`; tensors are not
        copied. Raises UserError if an attribute of a user's class has changed that no class names as state:
        a resumed run would differ."""
        for name, mark in marks(*self._parts.values()).items():
            if name not in self._marks or self._marks[name] != mark:
                raise UserError(f"{name} changes in a round: name it in client_state or server_state")
        return {"draws": draws()} | {name: saved(part) for name, part in self._parts.items()}

    def load(self, kept: Any) -> None:
        """Restore the objects from saved data. Raises CheckpointError if it is not of such a run; the objects
        are then unusable."""
        try:
            for name, part in self._parts.items():
                restored(part, kept[name])
            set_draws(kept["draws"])
        except Exception as error:
            # A broken file may lead to any error.
            raise CheckpointError(f"it cannot be read ({type(error).__name__}: {error})") from error


def names_of(kind: type, groups: tuple[str, ...] = LISTS) -> tuple[str, ...]:
    """Attributes that a class and its base classes name as state."""
    named = (
        name for each in reversed(kind.__mro__) for group in groups for name in vars(each).get(group, ())
    )
    return tuple(dict.fromkeys(named))


def marks(*owners: Any) -> dict[str, Any]:
    """Class and attribute → a mark that changes when the attribute is set or written to. Only attributes of
    users' classes that no class names as state and the benchmark's classes do not annotate; none of the
    benchmark's own classes, whose lists tests check."""
    found: dict[str, Any] = {}
    for owner in owners:
        kind = type(owner)
        if kind.__module__.startswith(OWN):
            continue
        above = [each for each in kind.__mro__ if each.__module__.startswith(OWN)]
        annotated = {name for each in above for name in vars(each).get("__annotations__", ())}
        unnamed = sorted(vars(owner).keys() - names_of(kind) - (annotated - SET_UP))
        found |= {f"{kind.__name__}.{name}": plain(getattr(owner, name), _mark) for name in unnamed}
    return found


class _Same:
    """Mark that equals another mark of the same object, as long as nothing was written to it. It holds the
    object, so that no other object can take its memory address."""

    def __init__(self, value: Any) -> None:
        self.value, self.version = value, value._version if isinstance(value, Tensor) else 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value and self.version == other.version


def _mark(value: Any) -> Any:
    return (value.shape, value.tobytes()) if isinstance(value, np.ndarray) else _Same(value)


def plain(value: Any, convert: Callable[[Any], Any]) -> Any:
    """Return a value as plain data; `convert` converts the tensors, arrays and objects in it."""
    if isinstance(value, torch.Generator):
        return value.get_state().tolist()
    if isinstance(value, np.random.Generator):
        value = value.bit_generator
    if isinstance(value, np.random.BitGenerator):
        value = value.state
    elif isinstance(value, Optimizer):
        value = value.state_dict()
    elif isinstance(value, nn.Module):
        value = value.state_dict(keep_vars=True)
    elif isinstance(value, np.generic):
        value = value.item()
    elif isinstance(value, set):
        # Equal sets may differ in order.
        value = sorted(value, key=repr)
    if isinstance(value, Mapping):
        return {key: plain(each, convert) for key, each in value.items()}
    if isinstance(value, (list, tuple, deque)):
        return [plain(each, convert) for each in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else convert(value)


def saved(value: Any) -> Any:
    """Convert what `plain` leaves (a tensor, not copied; an array; an object, by its named state) to plain
    data and tensors. Raises UserError for an object whose class names no state."""
    if isinstance(value, Tensor):
        return value.detach()
    if isinstance(value, np.ndarray):
        return {ARRAY: [value.dtype.str, list(value.shape), value.tolist()]}
    if not any(hasattr(value, group) for group in LISTS):
        raise UserError(f"a checkpoint cannot hold a {type(value).__name__}: list its attributes in `state`")
    return {name: plain(getattr(value, name, None), saved) for name in names_of(type(value))}


def restored(value: Any, kept: Any) -> Any:
    """Return `value` restored from `kept`. Trained tensors, generators and objects are restored in place, as
    others hold references to them. For the value None, return the data with its arrays made again. Raises any
    error where `kept` does not fit."""
    if isinstance(value, np.random.Generator):
        restored(value.bit_generator, kept)
    elif isinstance(value, np.random.BitGenerator):
        value.state = restored(None, kept)
    elif isinstance(value, torch.Generator):
        value.set_state(torch.tensor(kept, dtype=torch.uint8))
    elif isinstance(value, (Optimizer, nn.Module)):
        value.load_state_dict(restored(None, kept))
    elif isinstance(value, Tensor) and value.requires_grad:
        if value.shape != kept.shape:
            raise ValueError(f"{tuple(kept.shape)} does not fit {tuple(value.shape)}")
        with torch.no_grad():
            value.copy_(kept)
    elif any(hasattr(value, group) for group in LISTS):
        for name in names_of(type(value)):
            old = getattr(value, name, None)
            if (new := restored(old, kept[name])) is not old:
                setattr(value, name, new)
    elif isinstance(kept, list):
        items = [restored(None, each) for each in kept]
        if isinstance(value, deque):
            return deque(items, value.maxlen)
        return set(items) if isinstance(value, set) else items
    elif isinstance(kept, dict) and ARRAY in kept:
        kind, shape, values = kept[ARRAY]
        return np.asarray(values, kind).reshape(shape)
    elif isinstance(kept, dict):
        old = value if isinstance(value, dict) else {}
        found = copy(old)
        found.clear()
        found.update({key: restored(old.get(key), each) for key, each in kept.items()})
        return found
    else:
        return kept
    return value


def draws() -> dict[str, Any]:
    """The state of the global random generators, from which a plug-in may draw."""
    kind, keys, *place = np.random.get_state()  # noqa: NPY002
    numpy = (kind, np.asarray(keys).tolist(), *place)
    return {"torch": torch.get_rng_state().tolist(), "numpy": numpy, "python": random.getstate()}


def set_draws(kept: Mapping[str, Any]) -> None:
    """Restore the global random generators to the state that `draws` returned."""
    torch.set_rng_state(torch.tensor(kept["torch"], dtype=torch.uint8))
    np.random.set_state(kept["numpy"])  # noqa: NPY002
    random.setstate(kept["python"])


def seed_draws(seed: int) -> None:
    """Seed the global random generators, so that code that draws from them is repeatable."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    random.seed(seed)
