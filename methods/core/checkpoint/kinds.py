"""What a checkpoint may hold, and how kinds and values are told apart."""

from __future__ import annotations

import hashlib
import sys
from collections import deque
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsub.datasets.errors import UserError

LEFT_OUT = "LEFT_OUT_OF_CHECKPOINTS"
"""Name of the class attribute that names attributes, a tuple of texts."""
PLAIN = (type(None), bool, int, float, str)
FACTORIES = {kind.__name__: kind for kind in (dict, list, set, int, float)}
"""What a defaultdict may begin its values with."""
BIT_GENERATORS = ("SFC64", "PCG64", "PCG64DXSM", "MT19937", "Philox")
DIGEST_BYTES = 16

Code = Any
"""A value as it is written: a plain one itself, any other `(place,)`, its place among the nodes."""
SEQUENCES = {kind.__name__: kind for kind in (list, tuple, set, frozenset, deque)}


class UnsavableError(UserError):
    """A kind of state that no checkpoint can hold."""


class CheckpointError(UserError):
    """A checkpoint from which this run cannot go on."""


def class_name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def find_class(name: str) -> type | None:
    """A class of the methods, of which objects may be made; None for any other."""
    module, _, path = name.partition(":")
    if not module.startswith("fedsub.methods."):
        return None
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) and found.__module__ == module else None


def left_out_of(kind: type) -> set[str]:
    """Names of the attributes that are made anew."""
    cached = (
        name
        for each in kind.__mro__
        for name, value in vars(each).items()
        if isinstance(value, cached_property)
    )
    return {*getattr(kind, LEFT_OUT, ()), *cached}


def components(tensor: Tensor) -> tuple[Tensor, ...]:
    """The dense tensors that a tensor consists of."""
    tensor = tensor.detach()
    if tensor.layout is torch.sparse_csr:
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    return (tensor,)


def version(tensor: Tensor) -> tuple[Any, ...]:
    """Changes when somebody writes to a tensor or has it learned."""
    return tensor._version, tensor.requires_grad, *(part.data_ptr() for part in components(tensor))


def storage(tensor: Tensor) -> Any:
    """What tensors that share memory have in common."""
    if tensor.layout is not torch.strided or not tensor.numel():
        return id(tensor)
    return tensor.device, tensor.untyped_storage().data_ptr()


def digest(value: Tensor | np.ndarray) -> str:
    """Of the values of an array."""
    parts = components(value) if isinstance(value, Tensor) else (torch.from_numpy(as_bytes(value)),)
    whole = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        if part.is_meta:
            continue
        whole.update(part.cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return whole.hexdigest()


def as_bytes(value: np.ndarray) -> np.ndarray:
    flat = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    return flat if flat.flags.writeable else flat.copy()
