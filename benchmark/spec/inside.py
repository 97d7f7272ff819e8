"""What decides what a class, a function or another object does: its code, and the content of all it holds.

What it looks up in its own module is read: functions, classes and values. What it takes from other modules
counts by its name. What it holds is read too: defaults, closures, the arguments of a partial, an object's
attributes. Of an object that is what a copy by pickle would be made of; of an array or a tensor its numbers.
"""

from __future__ import annotations

import copyreg
import dis
import functools
import hashlib
import inspect
import sys
import threading
import types
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsub.datasets.errors import UserError

_LEFT_BY_PYTHON = (
    "__doc__",
    "__module__",
    "__dict__",
    "__weakref__",
    "__firstlineno__",
    "__slotnames__",
    "__static_attributes__",
    "_abc_impl",
)
"""Attributes of a class that say nothing of what it does; some come only when it is used, as by copyreg."""
_SAYS_ALL = (bool, int, float, complex, str, bytes, type(None), range, type(...))
"""Types whose text says all of a value."""
_SAYS_NOTHING = (
    type(threading.Lock()),
    type(threading.RLock()),
    weakref.ref,
    weakref.WeakKeyDictionary,
    weakref.WeakValueDictionary,
    weakref.WeakSet,
)
"""Types whose values decide no figure: locks, and tables of what is held elsewhere."""
_LOOK_UP = ("LOAD_GLOBAL", "LOAD_NAME")
"""Instructions that look a name up beyond a function; the second in the body of a class inside it."""
_PROGRAM = "__main__"


def seen_in(found: Any) -> Iterator[Any]:
    """All that decides what `found` does, in a fixed order; each item's text says all of it.

    Raises UserError for something inside that cannot be read, as an open file.
    """
    try:
        yield from _Reading(found).seen(found, _module(found))
    except RecursionError:
        raise UserError(
            f"{_name(found)} holds too much inside one another to tell it from others: have it hold less"
        ) from None


class _Reading:
    """One pass over an object. What is met again counts by its place, which ends circles."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self.met: dict[int, tuple[int, Any]] = {}
        """Identity → place, and the object itself, so that no later one has its identity."""

    def seen(self, value: Any, module: str) -> Iterator[Any]:
        """What `value` says to the code of `module`."""
        kind = type(value)
        if kind in _SAYS_ALL:
            yield value
        elif kind in _SAYS_NOTHING:
            yield (kind.__qualname__,)
        elif kind is tuple:
            yield from self._each(value, module)
        elif kind in (set, frozenset):
            yield (kind.__qualname__, *sorted(self._apart(each, module) for each in value))
        elif isinstance(value, np.ndarray):
            yield from self._array(value, module)
        elif isinstance(value, Tensor):
            yield from self._tensor(value)
        elif isinstance(value, types.ModuleType):
            yield ("module", value.__name__)
        elif id(value) in self.met:
            yield ("again", self.met[id(value)][0])
        else:
            self.met[id(value)] = (len(self.met), value)
            yield from self._read(value, module)

    def _read(self, value: Any, module: str) -> Iterator[Any]:
        kind = type(value)
        if kind is list:
            yield from self._each(value, module)
        elif kind in (dict, types.MappingProxyType):
            yield from self._each([part for pair in value.items() for part in pair], module, "dict")
        elif kind in (staticmethod, classmethod):
            yield from self._each([value.__func__], module, kind.__qualname__)
        elif kind is property:
            yield from self._each([value.fget, value.fset, value.fdel], module, "property")
        elif kind is functools.cached_property:
            yield from self._each([value.func], module, "cached_property")
        elif kind is types.MethodType:
            yield from self._each([value.__func__, value.__self__], module, "method")
        elif kind is types.CodeType:
            yield from self._code(value, module)
        elif kind is types.FunctionType:
            yield from self._function(value, module)
        elif isinstance(value, type):
            yield from self._class(value, module)
        else:
            yield from self._object(value, module)

    def _each(self, values: Iterable[Any], module: str, kind: str = "") -> Iterator[Any]:
        values = values if isinstance(values, (tuple, list)) else list(values)
        # How many there are, so that a value counts to the right one of two neighbours.
        yield (kind or type(values).__qualname__, len(values))
        for each in values:
            yield from self.seen(each, module)

    def _apart(self, value: Any, module: str) -> str:
        """A digest that does not depend on what else was met, nor on the order in which it was."""
        inner = _Reading(self.root)
        inner.met = dict(self.met)
        return hashlib.sha256(repr([*inner.seen(value, module)]).encode()).hexdigest()

    # --------------------------------------------------------------------- code

    def _function(self, found: types.FunctionType, module: str) -> Iterator[Any]:
        own = _is_own(found, module)
        if not own:
            yield (found.__module__, found.__qualname__)
            if _is_found_by_name(found, found.__qualname__):
                return
            # What it was made with may differ.
        module = found.__module__
        yield from self._each((found.__defaults__, found.__kwdefaults__), module)
        yield from self._code(found.__code__, module)
        cells = zip(found.__code__.co_freevars, found.__closure__ or (), strict=True)
        # The cell of `__class__` leads to the class that is being read.
        closed = {name: _inside(cell) for name, cell in cells if name != "__class__"}
        names = sorted(_names(found.__code__) & found.__globals__.keys()) if own else []
        for name in names:
            if name not in closed:
                yield name
                yield from self.seen(found.__globals__[name], module)
        for name, value in sorted(closed.items()):
            yield name
            yield from self.seen(value, module)

    def _code(self, code: types.CodeType, module: str) -> Iterator[Any]:
        counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        yield (code.co_code, code.co_names, code.co_varnames, code.co_freevars, counts)
        # Which statements a `try` covers.
        yield code.co_exceptiontable
        for each in code.co_consts[1:] if _has_text(code) else code.co_consts:
            yield from self.seen(each, module)

    def _class(self, found: type, module: str) -> Iterator[Any]:
        if not _is_own(found, module) and _is_found_by_name(found, found.__qualname__):
            yield (found.__module__, found.__qualname__)
            return
        yield found.__qualname__
        module = found.__module__
        yield from self._each(found.__bases__, module)
        for name, value in sorted(vars(found).items()):
            if name not in _LEFT_BY_PYTHON:
                yield name
                yield from self.seen(value, module)

    # ------------------------------------------------------------------ content

    def _array(self, value: np.ndarray, module: str) -> Iterator[Any]:
        yield (type(value).__qualname__, str(value.dtype), value.shape)
        if isinstance(value, np.ma.MaskedArray):
            yield from self._array(np.ma.getmaskarray(value), module)
            value = value.filled()
        if value.dtype.hasobject:
            yield from self.seen(value.tolist(), module)
        else:
            yield hashlib.sha256(value.tobytes()).hexdigest()

    def _tensor(self, value: Tensor) -> Iterator[Any]:
        yield (str(value.dtype), str(value.layout), tuple(value.shape))
        try:
            value = value.detach().cpu()
            parts = [value]
            if value.layout is not torch.strided:
                value = value.to_sparse_coo().coalesce()
                parts = [value.indices(), value.values()]
            for part in parts:
                plain = part.resolve_conj().resolve_neg().contiguous().reshape(-1)
                yield hashlib.sha256(plain.view(torch.uint8).numpy().tobytes()).hexdigest()
        except (RuntimeError, TypeError, NotImplementedError) as error:
            raise self._unread(value) from error

    def _object(self, value: Any, module: str) -> Iterator[Any]:
        kind = type(value)
        if kind.__module__.partition(".")[0] == "numba" and hasattr(value, "py_func"):
            # A copy of it carries a number that is drawn anew in every process.
            yield from self._each([value.py_func, value.targetoptions], module, kind.__qualname__)
            return
        try:
            reduce = copyreg.dispatch_table.get(kind)
            content = value.__reduce_ex__(4) if reduce is None else reduce(value)
        except Exception as error:
            raise self._unread(value) from error
        if isinstance(content, str):
            wrapped = getattr(value, "__wrapped__", None)
            if wrapped is None and not _is_found_by_name(value, content):
                raise self._unread(value)
            yield (kind.__qualname__, _home(value), content)
            yield from self.seen(wrapped, module)
            return
        make, arguments, *further = content
        state, *items = [*further, None, None, None][:3]
        if isinstance(state, dict):
            # Attributes in the order in which they were set say nothing.
            state = dict(sorted(state.items(), key=lambda item: str(item[0])))
        parts = (make, arguments, state, *(each if each is None else list(each) for each in items))
        yield from self._each(parts, module, kind.__qualname__)

    def _unread(self, value: Any) -> UserError:
        held = "" if value is self.root else f" that {_name(self.root)} holds"
        return UserError(
            f"a {type(value).__qualname__}{held} cannot be told from another one by its content, so that a "
            "record could stand for what was not run: make it where it is used, or hold plain values"
        )


def _module(found: Any) -> str:
    """The module whose names `found` looks up."""
    while isinstance(found, functools.partial):
        found = found.func
    if isinstance(found, (type, types.FunctionType, types.MethodType)) or hasattr(found, "__wrapped__"):
        return str(found.__module__)
    return type(found).__module__


def _is_own(found: Any, module: str) -> bool:
    """Whether a class or a function of what `module` holds is read with its module, not named."""
    return found.__module__ in (module, _PROGRAM)


def _home(found: Any) -> str:
    """The module that `found`, or else its type, is of."""
    return getattr(found, "__module__", None) or type(found).__module__


def _is_found_by_name(found: Any, name: str) -> bool:
    """Whether `name` leads to `found` from its module."""
    place: Any = sys.modules.get(_home(found))
    for part in name.split("."):
        place = getattr(place, part, None)
    return place is found


def _name(found: Any) -> str:
    for name in ("__qualname__", "__name__"):
        if isinstance(getattr(found, name, None), str):
            return str(getattr(found, name))
    return f"a {type(found).__qualname__}"


def _inside(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        # A name that is bound later.
        return None


def _names(code: types.CodeType) -> set[str]:
    """The names that a function and those inside it look up beyond themselves."""
    # Among `co_names` are attributes too, which a variable of the module may share a name with.
    found = {str(each.argval) for each in dis.get_instructions(code) if each.opname in _LOOK_UP}
    return found.union(*(_names(each) for each in code.co_consts if isinstance(each, types.CodeType)))


def _has_text(code: types.CodeType) -> bool:
    """Whether the first constant is a docstring: no class has it there, nor what is called `<genexpr>`."""
    if not (code.co_consts and isinstance(code.co_consts[0], str)):
        return False
    return bool(code.co_flags & inspect.CO_OPTIMIZED) and not code.co_name.startswith("<")
