"""What the set-up of a run made, and what has been written to since."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from fedsub.methods.core.checkpoint.kinds import DIGEST_BYTES, CheckpointError, class_name, version


@dataclass(frozen=True)
class _Mark:
    """An object as the set-up left it."""

    get: Callable[[], Any]
    """None once it is gone."""
    kind: str
    version: tuple[Any, ...]
    """Of a tensor."""


class Built:
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
        kind = class_name(type(value)) + (f"{tuple(value.shape)}{value.dtype}" if is_tensor else "")
        self._numbers[id(value)] = len(self._marks)
        self._marks.append(_Mark(get, kind, version(value) if is_tensor else ()))
        return len(self._marks) - 1

    def number(self, value: Any) -> int | None:
        """The number of what the set-up made; None of anything else."""
        number = self._numbers.get(id(value))
        return number if number is not None and self._marks[number].get() is value else None

    def is_unwritten(self, number: int, tensor: Tensor) -> bool:
        """Whether nobody has written to a tensor since."""
        return self._marks[number].version == version(tensor)

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
        return hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).hexdigest()


def _identity(value: Any) -> Any:
    return value
