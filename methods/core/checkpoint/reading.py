"""The way back: nodes become values, in what the set-up made where there is that."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable
from typing import Any

import dgl
import numpy as np
import torch
from torch import Tensor

from fedsub.methods.core.checkpoint.built import Built
from fedsub.methods.core.checkpoint.kinds import (
    BIT_GENERATORS,
    FACTORIES,
    SEQUENCES,
    Code,
    class_name,
    find_class,
    left_out_of,
)
from fedsub.methods.stacked.propagation import use_kernel


class Reading:
    """The way back: nodes become values, in what the set-up made where there is that."""

    def __init__(self, built: Built, nodes: list[tuple[Any, ...]]) -> None:
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
        elif kind in SEQUENCES:
            self._read_sequence(place, SEQUENCES[kind], *parts)
        else:
            raise ValueError(f"no kind is called {kind!r}")

    def _values(self, codes: Iterable[Code]) -> list[Any]:
        return [self.value(code) for code in codes]

    def _read_same(self, place: int, number: int) -> None:
        self._done[place] = self._built[number]

    _read_fixed = _read_same

    def _read_object(self, place: int, number: int | None, name: str, attributes: list[Any]) -> None:
        kind = find_class(name) if number is None else type(self._built[number])
        if kind is None or class_name(kind) != name:
            raise ValueError(f"no object of the class {name} is expected")
        found = self._done[place] = object.__new__(kind) if number is None else self._built[number]
        left_out = left_out_of(kind)
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
        if state["bit_generator"] not in BIT_GENERATORS:
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
        begin = None if factory is None else FACTORIES[factory]
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


def _alike(content: Tensor, found: Tensor) -> Tensor:
    """The content, which must fit without being spread or rounded."""
    if content.shape != found.shape or content.dtype != found.dtype:
        raise ValueError(f"{tuple(content.shape)} does not fit {tuple(found.shape)}")
    return content
