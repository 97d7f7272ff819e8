"""The state of a run as plain data, from which the run can go on where it stood.

A run goes on in two steps: its method is built again, which gives everything that follows from data and seed,
and then what training has changed since is put on top. What has changed is found by a walk over the method's
attributes, so that a method need not say what its state is:

- a tensor that the set-up made and nobody wrote to since (its version tells) is left out; of one that was
  written to, the values are kept and later written into the tensor that the new set-up made, so that whoever
  holds it (an optimiser, a closure) holds the restored one;
- numbers, texts and containers are kept whole, random generators by their state, objects by their attributes;
- functions, and what the method was given, must be what the set-up left there.

Of everything left out a digest is kept: if another set-up gives other values, the checkpoint is refused. Any
other kind of state raises `UnsavableError`, so that nothing is lost in silence.

A class says in `LEFT_OUT` which attributes follow from others and are best made anew; those of a
`cached_property` are always.
"""

from __future__ import annotations

import copyreg
import hashlib
import sys
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, partial, singledispatchmethod
from pathlib import PurePath
from typing import Any, Protocol

import dgl
import numpy as np
import torch
from torch import Tensor

from datasets.errors import UserError
from datasets.federation import Federation
from datasets.graph import Dataset
from methods.core.base import Options
from methods.core.schedule import Schedule
from methods.core.setting import Setting
from methods.stacked.architecture import Architecture
from methods.stacked.propagation import kernel_of, use_kernel

LEFT_OUT = "LEFT_OUT_OF_CHECKPOINTS"
"""Name of the class attribute that names attributes, a tuple of texts."""
_PLAIN = (type(None), bool, int, float, str)
_FACTORIES = {kind.__name__: kind for kind in (dict, list, set, int, float)}
"""What a defaultdict may begin its values with."""
_BIT_GENERATORS = ("SFC64", "PCG64", "PCG64DXSM", "MT19937", "Philox")
_DIGEST_BYTES = 16

Code = Any
"""A value as it is written: a plain one itself, any other `(place,)`, its place among the nodes."""


class UnsavableError(UserError):
    """A kind of state that no checkpoint can hold."""


class CheckpointError(UserError):
    """A checkpoint from which this run cannot go on."""


class Checkpoint(Protocol):
    """Where a run keeps its state."""

    def restore(self, state: State) -> None:
        """Bring a run that was just set up to where it was kept, if it was. Raises CheckpointError where it
        cannot; the run must then be set up again."""
        ...

    def after_round(self, state: State) -> None:
        """Told after every round but the last: keep the state if it is time to."""
        ...


class State:
    """The state of what `parts` hold, to be made when their set-up is over."""

    def __init__(self, **parts: Any) -> None:
        self._parts = parts
        self.built = _Built()
        self._problem: UnsavableError | None = None
        try:
            self._codes(_Writing(self.built, by_set_up=True))
        except UnsavableError as error:
            # Most runs are over before anyone wants to keep them.
            self._problem = error

    def save(self) -> dict[str, Any]:
        """What `torch.save` takes and `torch.load` reads with `weights_only=True`; tensors are those of the
        run, not copies. Raises UnsavableError, with the attribute, for a kind of state that is not known."""
        if self._problem is not None:
            raise self._problem
        writing = _Writing(self.built)
        parts = self._codes(writing)
        same = [(number, _digest(self.built[number])) for number in writing.same]
        return {"built": self.built.signature, "parts": parts, "nodes": writing.nodes, "same": same}

    def _codes(self, writing: _Writing) -> dict[str, Code]:
        return {name: writing.code(part, name) for name, part in self._parts.items()}

    def load(self, saved: Any) -> None:
        """Bring the parts, which must have been set up and nothing else, to what was saved.

        Raises CheckpointError if it is not of such a run; the parts cannot be used then.
        """
        if self._problem is not None:
            raise CheckpointError(str(self._problem))
        try:
            if saved["built"] != self.built.signature:
                raise CheckpointError("the set-up makes other objects than it did")
            for number, digest in saved["same"]:
                if _digest(self.built[number]) != digest:
                    raise CheckpointError("the set-up gives other values than it did")
            reading = _Reading(self.built, saved["nodes"])
            for name, part in self._parts.items():
                if reading.value(saved["parts"][name]) is not part:
                    raise CheckpointError(f"it holds another {name}")
        except CheckpointError:
            raise
        except Exception as error:
            # Whatever a broken file may lead to.
            raise CheckpointError(f"it cannot be read ({type(error).__name__}: {error})") from error


@dataclass(frozen=True)
class _Mark:
    """An object as the set-up left it."""

    get: Callable[[], Any]
    """None once it is gone."""
    kind: str
    version: tuple[Any, ...]
    """Of a tensor."""


class _Built:
    """What the set-up made, numbered in the order of the walk; held so that it can go when it is replaced."""

    def __init__(self) -> None:
        self._marks: list[_Mark] = []
        self._numbers: dict[int, int] = {}

    def add(self, value: Any) -> int:
        """The number of a new one."""
        try:
            get: Callable[[], Any] = weakref.ref(value)
        except TypeError:
            get = partial(_identity, value)
        is_tensor = isinstance(value, Tensor)
        kind = _class_name(type(value)) + (f"{tuple(value.shape)}{value.dtype}" if is_tensor else "")
        self._numbers[id(value)] = len(self._marks)
        self._marks.append(_Mark(get, kind, _version(value) if is_tensor else ()))
        return len(self._marks) - 1

    def number(self, value: Any) -> int | None:
        """The number of what the set-up made; None of anything else."""
        number = self._numbers.get(id(value))
        return number if number is not None and self._marks[number].get() is value else None

    def is_unwritten(self, number: int, tensor: Tensor) -> bool:
        """Whether nobody has written to a tensor since."""
        return self._marks[number].version == _version(tensor)

    def tensors(self) -> Iterator[Tensor]:
        """Those that are still there."""
        return (value for mark in self._marks if isinstance(value := mark.get(), Tensor))

    def __getitem__(self, number: int) -> Any:
        value = self._marks[number].get()
        if value is None:
            raise CheckpointError("what the set-up made is gone")
        return value

    @property
    def signature(self) -> str:
        """Two set-ups with the same one made objects of the same kinds in the same order."""
        text = "\n".join(mark.kind for mark in self._marks)
        return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()


class _Writing:
    """One walk: values become nodes, `(kind, …)`, of plain data and tensors."""

    def __init__(self, built: _Built, by_set_up: bool = False) -> None:
        """`by_set_up`: everything met was made by the set-up, and is to be numbered."""
        self._built, self._by_set_up = built, by_set_up
        self.nodes: list[tuple[Any, ...]] = []
        self.same: list[int] = []
        """Numbers of the arrays and tensors that are as the set-up left them."""
        self._places: dict[int, int] = {}
        self._met: list[Any] = []
        """Keeps what is met, so that no two have one id."""
        self._storages = {} if by_set_up else {_storage(each): each for each in built.tensors()}

    def code(self, value: Any, path: str) -> Code:
        """The code of a value that stands at `path`."""
        if type(value) in _PLAIN:
            return value
        if id(value) not in self._places:
            place = self._places[id(value)] = len(self.nodes)
            self._met.append(value)
            self.nodes.append(())
            self.nodes[place] = self._node(value, path)
        return (self._places[id(value)],)

    def _number(self, value: Any) -> int | None:
        return self._built.add(value) if self._by_set_up else self._built.number(value)

    def _number_of_fixed(self, value: Any, path: str) -> int:
        number = self._number(value)
        if number is None:
            raise _unsavable(value, path, " that its set-up did not make")
        return number

    def _codes(self, values: Iterable[Any], path: str) -> list[Code]:
        return [self.code(each, f"{path}[{index}]") for index, each in enumerate(values)]

    @singledispatchmethod
    def _node(self, value: Any, path: str) -> tuple[Any, ...]:
        """Any object whose attributes say it all."""
        kind = type(value)
        if not _has_attributes_alone(value):
            raise _unsavable(value, path)
        number, left_out = self._number(value), _left_out(kind)
        if number is None and (_find_class(_class_name(kind)) is not kind or hasattr(kind, LEFT_OUT)):
            raise _unsavable(value, path, " that its set-up did not make")
        kept = {name: each for name, each in vars(value).items() if name not in left_out}
        attributes = [(name, self.code(each, f"{path}.{name}")) for name, each in kept.items()]
        return "object", number, _class_name(kind), attributes

    @_node.register
    def _(self, value: Tensor, path: str) -> tuple[Any, ...]:
        number = self._number(value)
        gradient = value.grad if value.is_leaf else None
        if number is not None and self._built.is_unwritten(number, value) and gradient is None:
            self.same.append(number)
            return "same", number
        if type(value) not in (Tensor, torch.nn.Parameter):
            raise _unsavable(value, path)
        content = value.detach()
        if number is None and (base := self._storages.get(_storage(value))) is not None:
            place = tuple(content.size()), content.stride(), content.storage_offset()
            return "view", self.code(base, path), *place
        learned = value.requires_grad and value.is_leaf
        is_parameter = isinstance(value, torch.nn.Parameter)
        return "tensor", number, content, learned, is_parameter, self.code(gradient, f"{path}.grad")

    @_node.register
    def _(self, value: np.ndarray, path: str) -> tuple[Any, ...]:
        number = self._number(value)
        if number is not None:
            self.same.append(number)
            return "same", number
        return "array", *_array(value, path)

    @_node.register
    def _(self, value: np.generic, path: str) -> tuple[Any, ...]:
        return "number", *_array(np.asarray(value), path)

    @_node.register
    def _(self, value: torch.Generator, path: str) -> tuple[Any, ...]:
        return "torch generator", self._number(value), value.get_state()

    @_node.register
    def _(self, value: np.random.BitGenerator, path: str) -> tuple[Any, ...]:
        if type(value).__name__ not in _BIT_GENERATORS:
            raise _unsavable(value, path)
        return "bit generator", self._number(value), self.code(value.state, path)

    @_node.register
    def _(self, value: np.random.Generator, path: str) -> tuple[Any, ...]:
        return "generator", self._number(value), self.code(value.bit_generator, path)

    @_node.register(list)
    @_node.register(tuple)
    @_node.register(set)
    @_node.register(frozenset)
    @_node.register(deque)
    def _(self, value: Any, path: str) -> tuple[Any, ...]:
        if type(value) not in _SEQUENCES.values():
            raise _unsavable(value, path)
        if isinstance(value, (set, frozenset)):
            if not all(type(each) in _PLAIN for each in value):
                raise _unsavable(value, path)
            return type(value).__name__, list(value)
        length = [value.maxlen] if isinstance(value, deque) else []
        return type(value).__name__, self._codes(value, path), *length

    @_node.register(dict)
    def _(self, value: dict[Any, Any], path: str) -> tuple[Any, ...]:
        factory = getattr(value, "default_factory", None)
        name = getattr(factory, "__name__", None)
        if type(value) not in (dict, OrderedDict, defaultdict) or (name and _FACTORIES.get(name) != factory):
            raise _unsavable(value, path)
        items = [
            (self.code(key, f"{path} key"), self.code(each, f"{path}[{key if type(key) in _PLAIN else '…'}]"))
            for key, each in value.items()
        ]
        return type(value).__name__, items, name

    @_node.register
    def _(self, value: types.FunctionType, path: str) -> tuple[Any, ...]:
        number = self._number_of_fixed(value, path)
        return "function", number, [self._cell(cell, path) for cell in value.__closure__ or ()]

    def _cell(self, cell: types.CellType, path: str) -> list[Code]:
        try:
            return [self.code(cell.cell_contents, f"{path} closure")]
        except ValueError:
            # A name that is bound later.
            return []

    @_node.register
    def _(self, value: types.MethodType, path: str) -> tuple[Any, ...]:
        return "method", self._number_of_fixed(value, path), self.code(value.__self__, path)

    @_node.register(partial)
    def _(self, value: partial[Any], path: str) -> tuple[Any, ...]:
        number = self._number_of_fixed(value, path)
        parts = (value.func, value.args, value.keywords, vars(value))
        return "partial", number, self._codes(parts, path)

    @_node.register
    def _(self, value: dgl.DGLGraph, path: str) -> tuple[Any, ...]:
        number = self._number(value)
        if number is not None:
            return "fixed", number
        if not value.is_homogeneous or value.is_block or {**value.ndata, **value.edata}:
            raise _unsavable(value, path, " with data of its own")
        return "graph", *value.edges(), int(value.num_nodes()), kernel_of(value)

    @_node.register(Setting)
    @_node.register(Federation)
    @_node.register(Dataset)
    @_node.register(Options)
    @_node.register(Schedule)
    @_node.register(Architecture)
    @_node.register(types.BuiltinFunctionType)
    @_node.register(types.ModuleType)
    @_node.register(type)
    @_node.register(torch.device)
    @_node.register(torch.dtype)
    @_node.register(torch.layout)
    @_node.register(np.dtype)
    @_node.register(PurePath)
    @_node.register(Enum)
    def _(self, value: Any, path: str) -> tuple[Any, ...]:
        return "fixed", self._number_of_fixed(value, path)


_SEQUENCES = {kind.__name__: kind for kind in (list, tuple, set, frozenset, deque)}


class _Reading:
    """The way back: nodes become values, in what the set-up made where there is that."""

    def __init__(self, built: _Built, nodes: list[tuple[Any, ...]]) -> None:
        self._built, self._nodes = built, nodes
        self._done: dict[int, Any] = {}

    def value(self, code: Code) -> Any:
        """The value of a code."""
        if not isinstance(code, tuple):
            return code
        (place,) = code
        if place not in self._done:
            kind, *parts = self._nodes[place]
            self._read(place, kind, *parts)
        return self._done[place]

    def _read(self, place: int, kind: str, *parts: Any) -> None:
        read = getattr(self, f"_read_{kind.replace(' ', '_')}", None)
        if read is not None:
            read(place, *parts)
        elif kind in _SEQUENCES:
            self._read_sequence(place, _SEQUENCES[kind], *parts)
        else:
            raise ValueError(f"no kind is called {kind!r}")

    def _values(self, codes: Iterable[Code]) -> list[Any]:
        return [self.value(code) for code in codes]

    def _read_same(self, place: int, number: int) -> None:
        self._done[place] = self._built[number]

    _read_fixed = _read_same

    def _read_object(self, place: int, number: int | None, name: str, attributes: list[Any]) -> None:
        kind = _find_class(name) if number is None else type(self._built[number])
        if kind is None or _class_name(kind) != name:
            raise ValueError(f"no object of the class {name} is expected")
        found = self._done[place] = object.__new__(kind) if number is None else self._built[number]
        left_out = _left_out(kind)
        kept = {name: value for name, value in vars(found).items() if name in left_out}
        restored = {name: self.value(code) for name, code in attributes}
        vars(found).clear()
        vars(found).update(restored | kept)

    def _read_tensor(
        self,
        place: int,
        number: int | None,
        content: Tensor,
        learned: bool,
        is_parameter: bool,
        gradient: Code,
    ) -> None:
        if number is None:
            found = torch.nn.Parameter(content, learned) if is_parameter else content.requires_grad_(learned)
        else:
            found = self._built[number]
            with torch.no_grad():
                found.copy_(_alike(content, found))
            if found.is_leaf:
                found.requires_grad_(learned)
        self._done[place] = found
        if found.is_leaf:
            found.grad = self.value(gradient)

    def _read_view(
        self, place: int, base: Code, size: tuple[int, ...], stride: tuple[int, ...], offset: int
    ) -> None:
        self._done[place] = self.value(base).detach().as_strided(size, stride, offset)

    def _read_array(self, place: int, dtype: str, shape: tuple[int, ...], content: Tensor) -> None:
        self._done[place] = content.numpy().copy().view(np.dtype(dtype)).reshape(shape)

    def _read_number(self, place: int, *parts: Any) -> None:
        self._read_array(place, *parts)
        self._done[place] = self._done[place][()]

    def _read_torch_generator(self, place: int, number: int | None, state: Tensor) -> None:
        found = self._done[place] = torch.Generator() if number is None else self._built[number]
        found.set_state(state)

    def _read_bit_generator(self, place: int, number: int | None, code: Code) -> None:
        state = self.value(code)
        if state["bit_generator"] not in _BIT_GENERATORS:
            raise ValueError(f"no bit generator is called {state['bit_generator']!r}")
        new = getattr(np.random, state["bit_generator"])
        found = self._done[place] = new() if number is None else self._built[number]
        found.state = state

    def _read_generator(self, place: int, number: int | None, code: Code) -> None:
        bits = self.value(code)
        self._done[place] = np.random.Generator(bits) if number is None else self._built[number]

    def _read_sequence(self, place: int, kind: type, codes: list[Code], *length: int | None) -> None:
        if kind is list:
            # A list may hold itself.
            found = self._done[place] = []
            found += self._values(codes)
            return
        values = self._values(codes)
        self._done[place] = deque(values, *length) if kind is deque else kind(values)

    def _read_dict(self, place: int, items: list[Any], factory: str | None, found: Any = None) -> None:
        found = self._done[place] = {} if found is None else found
        found.update({self.value(key): self.value(each) for key, each in items})

    def _read_OrderedDict(self, place: int, items: list[Any], factory: str | None) -> None:
        self._read_dict(place, items, factory, OrderedDict())

    def _read_defaultdict(self, place: int, items: list[Any], factory: str | None) -> None:
        begin = None if factory is None else _FACTORIES[factory]
        self._read_dict(place, items, factory, defaultdict(begin))

    def _read_function(self, place: int, number: int, cells: list[list[Code]]) -> None:
        found = self._done[place] = self._built[number]
        for cell, codes in zip(found.__closure__ or (), cells, strict=True):
            for code in codes:
                cell.cell_contents = self.value(code)

    def _read_method(self, place: int, number: int, owner: Code) -> None:
        self._done[place] = self._built[number]
        self.value(owner)

    def _read_partial(self, place: int, number: int, codes: list[Code]) -> None:
        found = self._done[place] = self._built[number]
        found.__setstate__(tuple(self._values(codes)))

    def _read_graph(self, place: int, source: Tensor, target: Tensor, nodes: int, kernel: str) -> None:
        self._done[place] = use_kernel(dgl.graph((source, target), num_nodes=nodes), kernel)


def _identity(value: Any) -> Any:
    return value


def _unsavable(value: Any, path: str, which: str = "") -> UnsavableError:
    return UnsavableError(f"no checkpoint can hold {path}, a {type(value).__name__}{which}")


def _class_name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _find_class(name: str) -> type | None:
    """A class of the methods, of which objects may be made; None for any other."""
    module, _, path = name.partition(":")
    if not module.startswith("methods."):
        return None
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) and found.__module__ == module else None


def _left_out(kind: type) -> set[str]:
    """Names of the attributes that are made anew."""
    cached = (
        name
        for each in kind.__mro__
        for name, value in vars(each).items()
        if isinstance(value, cached_property)
    )
    return {*getattr(kind, LEFT_OUT, ()), *cached}


def _has_attributes_alone(value: Any) -> bool:
    """Whether an object is its attributes and nothing else, by what it would give to pickle."""
    try:
        how = value.__reduce_ex__(2)
        return (
            how[0] is copyreg.__newobj__  # type: ignore[attr-defined]
            and how[1] == (type(value),)
            and not isinstance(how[2], tuple)
            and all(part is None for part in how[3:])
            and isinstance(vars(value), dict)
        )
    except (TypeError, AttributeError):
        return False


def _components(tensor: Tensor) -> tuple[Tensor, ...]:
    """The dense tensors that a tensor consists of."""
    tensor = tensor.detach()
    if tensor.layout is torch.sparse_csr:
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    return (tensor,)


def _version(tensor: Tensor) -> tuple[Any, ...]:
    """Changes when somebody writes to a tensor or has it learned."""
    return tensor._version, tensor.requires_grad, *(part.data_ptr() for part in _components(tensor))


def _storage(tensor: Tensor) -> Any:
    """What tensors that share memory have in common."""
    if tensor.layout is not torch.strided or not tensor.numel():
        return id(tensor)
    return tensor.device, tensor.untyped_storage().data_ptr()


def _digest(value: Tensor | np.ndarray) -> str:
    """Of the values of an array."""
    parts = _components(value) if isinstance(value, Tensor) else (torch.from_numpy(_bytes(value)),)
    whole = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        whole.update(part.cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return whole.hexdigest()


def _bytes(value: np.ndarray) -> np.ndarray:
    flat = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    return flat if flat.flags.writeable else flat.copy()


def _array(value: np.ndarray, path: str) -> tuple[str, tuple[int, ...], Tensor]:
    if value.dtype.kind not in "biufcSU" or type(value) is not np.ndarray:
        raise _unsavable(value, path, f" of {value.dtype}")
    return value.dtype.str, value.shape, torch.from_numpy(_bytes(value).copy())


def _alike(content: Tensor, found: Tensor) -> Tensor:
    """The content, which must fit without being spread or rounded."""
    if content.shape != found.shape or content.dtype != found.dtype:
        raise ValueError(f"{tuple(content.shape)} does not fit {tuple(found.shape)}")
    return content
