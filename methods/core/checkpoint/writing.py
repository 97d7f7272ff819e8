"""The walk that writes: what a run holds becomes nodes of plain data and tensors."""

from __future__ import annotations

import copyreg
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable
from enum import Enum
from functools import partial, singledispatchmethod
from pathlib import PurePath
from typing import Any

import dgl
import numpy as np
import torch
from torch import Tensor

from fedsub.datasets.federation import Federation
from fedsub.datasets.graph import Dataset
from fedsub.methods.core.base import Options
from fedsub.methods.core.checkpoint.built import Built
from fedsub.methods.core.checkpoint.kinds import (
    BIT_GENERATORS,
    FACTORIES,
    LEFT_OUT,
    PLAIN,
    SEQUENCES,
    Code,
    UnsavableError,
    as_bytes,
    class_name,
    find_class,
    left_out_of,
    storage,
)
from fedsub.methods.core.schedule import Schedule
from fedsub.methods.core.setting import Setting
from fedsub.methods.stacked.architecture import Architecture
from fedsub.methods.stacked.propagation import kernel_of


class Writing:
    """One walk: values become nodes, `(kind, …)`, of plain data and tensors."""

    def __init__(self, built: Built, by_set_up: bool = False) -> None:
        """`by_set_up`: everything met was made by the set-up, and is to be numbered."""
        self._built, self._by_set_up = built, by_set_up
        self.nodes: list[tuple[Any, ...]] = []
        self.same: list[int] = []
        """Numbers of the arrays and tensors that are as the set-up left them."""
        self._places: dict[int, int] = {}
        self._met: list[Any] = []
        """Keeps what is met, so that no two have one id."""
        self._storages = {} if by_set_up else {storage(each): each for each in built.tensors()}

    def code(self, value: Any, path: str) -> Code:
        """The code of a value that stands at `path`."""
        if type(value) in PLAIN:
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
        number, left_out = self._number(value), left_out_of(kind)
        if number is None and (find_class(class_name(kind)) is not kind or hasattr(kind, LEFT_OUT)):
            raise _unsavable(value, path, " that its set-up did not make")
        kept = {name: each for name, each in vars(value).items() if name not in left_out}
        attributes = [(name, self.code(each, f"{path}.{name}")) for name, each in kept.items()]
        return "object", number, class_name(kind), attributes

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
        if number is None and (base := self._storages.get(storage(value))) is not None:
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
        if type(value).__name__ not in BIT_GENERATORS:
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
        if type(value) not in SEQUENCES.values():
            raise _unsavable(value, path)
        if isinstance(value, (set, frozenset)):
            if not all(type(each) in PLAIN for each in value):
                raise _unsavable(value, path)
            return type(value).__name__, list(value)
        length = [value.maxlen] if isinstance(value, deque) else []
        return type(value).__name__, self._codes(value, path), *length

    @_node.register(dict)
    def _(self, value: dict[Any, Any], path: str) -> tuple[Any, ...]:
        factory = getattr(value, "default_factory", None)
        name = getattr(factory, "__name__", None)
        if type(value) not in (dict, OrderedDict, defaultdict) or (name and FACTORIES.get(name) != factory):
            raise _unsavable(value, path)
        items = [
            (self.code(key, f"{path} key"), self.code(each, f"{path}[{key if type(key) in PLAIN else '…'}]"))
            for key, each in value.items()
        ]
        return type(value).__name__, items, name

    @_node.register
    def _(self, value: types.FunctionType, path: str) -> tuple[Any, ...]:
        number = self._number_of_fixed(value, path)
        return "function", number, [self._cell(cell, path) for cell in value.__closure__ or ()]

    def _cell(self, cell: types.CellType, path: str) -> list[Code]:
        try:
            value = cell.cell_contents
        except ValueError:
            # A name that is bound later.
            return []
        return [self.code(value, f"{path} closure")]

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


def _unsavable(value: Any, path: str, which: str = "") -> UnsavableError:
    return UnsavableError(f"no checkpoint can hold {path}, a {type(value).__name__}{which}")


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
    except Exception:
        # It is the object that says no, in its own words: torch's scripts raise PickleError.
        return False


def _array(value: np.ndarray, path: str) -> tuple[str, tuple[int, ...], Tensor]:
    if value.dtype.kind not in "biufcSU" or type(value) is not np.ndarray:
        raise _unsavable(value, path, f" of {value.dtype}")
    return value.dtype.str, value.shape, torch.from_numpy(as_bytes(value).copy())
