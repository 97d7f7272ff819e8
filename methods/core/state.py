"""The state of a run as plain data and tensors, from which it can resume; and the global random generators.

A class names its state: a method in `client_state` and `server_state`, any other class in `state`. The names
of base classes are added. Everything else follows from the set-up, which a resumed run repeats.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
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

    def restore(self, state: State) -> None:
        """Restore the saved state, if there is one, into a run that was just set up. Raises CheckpointError
        if that fails; the run must then be set up again."""
        ...

    def after_round(self, state: State) -> None:
        """Save the state if it is time to; called after every round except the last."""
        ...


class State:
    """The state of named objects; make it when their set-up is complete."""

    def __init__(self, **parts: Any) -> None:
        self._parts = parts
        self._set_up = {name: marks(part) for name, part in parts.items()}

    def save(self) -> dict[str, Any]:
        """Return data for `torch.save` that `torch.load` reads with `weights_only=True`; tensors are not
        copied. Raises UserError if an attribute of a user's class has changed that no class names as state:
        a resumed run would differ."""
        for part, before in self._set_up.items():
            for name, mark in marks(self._parts[part]).items():
                if before.get(name) != mark:
                    owner = type(self._parts[part]).__name__
                    raise UserError(
                        f"{owner}.{name} changes in a round: name it in client_state or server_state"
                    )
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


def marks(owner: Any) -> dict[str, Any]:
    """Attribute → a mark that changes when the attribute is set or written to. Only attributes of a user's
    class that no class names as state and the benchmark's classes do not annotate; empty for the benchmark's
    own classes, whose lists tests check."""
    if type(owner).__module__.startswith(OWN):
        return {}
    above = [each for each in type(owner).__mro__ if each.__module__.startswith(OWN)]
    annotated = {name for each in above for name in vars(each).get("__annotations__", ())}
    aside = {*names_of(type(owner)), *(annotated - SET_UP)}
    return {name: _mark(value) for name, value in vars(owner).items() if name not in aside}


@dataclass(frozen=True, eq=False)
class _Same:
    """Mark that equals another mark of the same object, as long as nothing was written to it. It holds the
    object, so that no other object can take its memory address."""

    value: Any
    version: int = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and (self.value is other.value, self.version) == (True, other.version)


def _mark(value: Any) -> Any:
    if isinstance(value, Tensor):
        return _Same(value, value._version)
    if isinstance(value, Mapping):
        return {key: _mark(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, deque)):
        return [_mark(each) for each in value]
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, torch.Generator):
        return value.get_state().numpy().tobytes()
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, np.ndarray):
        return value.shape, value.tobytes()
    if isinstance(value, (nn.Module, Optimizer)):
        return _mark(value.state_dict(keep_vars=True) if isinstance(value, nn.Module) else value.state)
    return frozenset(value) if isinstance(value, set) else _Same(value)


def saved(value: Any) -> Any:
    """Convert a value to plain data and tensors, which are not copied. Raises UserError for an object whose
    class names no state."""
    if isinstance(value, Tensor):
        return value.detach()
    if isinstance(value, torch.Generator):
        return value.get_state()
    if isinstance(value, (Optimizer, nn.Module)):
        return value.state_dict()
    if isinstance(value, np.ndarray):
        return {ARRAY: [value.dtype.str, list(value.shape), value.tolist()]}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.random.Generator):
        value = value.bit_generator
    if isinstance(value, np.random.BitGenerator):
        return saved(value.state)
    if isinstance(value, Mapping):
        return {key: saved(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, deque, set)):
        return [saved(each) for each in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if not any(hasattr(value, group) for group in LISTS):
        raise UserError(f"a checkpoint cannot hold a {type(value).__name__}: list its attributes in `state`")
    return {name: saved(getattr(value, name, None)) for name in names_of(type(value))}


def restored(value: Any, kept: Any) -> Any:
    """Return `value` restored from `kept`. Trained tensors, generators and objects are restored in place, as
    others hold references to them. Raises any error where `kept` does not fit."""
    if isinstance(value, np.random.Generator):
        value.bit_generator.state = plain(kept)
    elif isinstance(value, Tensor) and value.requires_grad:
        if value.shape != kept.shape:
            raise ValueError(f"{tuple(kept.shape)} does not fit {tuple(value.shape)}")
        with torch.no_grad():
            value.copy_(kept)
    elif isinstance(value, torch.Generator):
        value.set_state(kept)
    elif isinstance(value, (Optimizer, nn.Module)):
        value.load_state_dict(kept)
    elif isinstance(value, np.random.BitGenerator):
        value.state = plain(kept)
    elif isinstance(value, dict) and ARRAY not in kept:
        found = copy(value)
        found.clear()
        found.update({key: restored(value.get(key), each) for key, each in kept.items()})
        return found
    elif isinstance(value, deque):
        return deque(plain(kept), value.maxlen)
    elif isinstance(value, set):
        return set(plain(kept))
    elif any(hasattr(value, group) for group in LISTS):
        for name in names_of(type(value)):
            old = getattr(value, name, None)
            if (new := restored(old, kept[name])) is not old:
                setattr(value, name, new)
    else:
        return plain(kept)
    return value


def plain(kept: Any) -> Any:
    """Return saved data with its arrays made again."""
    if isinstance(kept, Mapping):
        if ARRAY in kept:
            kind, shape, values = kept[ARRAY]
            return np.asarray(values, kind).reshape(shape)
        return {key: plain(each) for key, each in kept.items()}
    return [plain(each) for each in kept] if isinstance(kept, list) else kept


def draws() -> dict[str, Any]:
    """The state of the global random generators, from which a plug-in may draw."""
    kind, keys, *place = np.random.get_state()  # noqa: NPY002
    numpy = (kind, np.asarray(keys).tolist(), *place)
    return {"torch": torch.get_rng_state(), "numpy": numpy, "python": random.getstate()}


def set_draws(kept: Mapping[str, Any]) -> None:
    """Restore the global random generators to the state that `draws` returned."""
    torch.set_rng_state(kept["torch"])
    np.random.set_state(kept["numpy"])  # noqa: NPY002
    random.setstate(kept["python"])


def seed_draws(seed: int) -> None:
    """Seed the global random generators, so that code that draws from them is repeatable."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    random.seed(seed)
