"""A second device, emulated on the CPU, to test as much of the CUDA path as possible without a GPU.

Its tensors hold their values in CPU tensors and say that they live on torch's `meta` device. Every
operation on them runs on the CPU, so that results are real, but only after the rules of a second device
have been checked: operands from two devices are refused, numpy sees nothing, what a factory makes lies
where it was asked for. Kernels of the GPU itself are not tested by this.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as functional
from torch import Tensor
from torch.optim.optimizer import _get_fused_kernels_supported_devices as _optimiser_devices
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

NAME = "meta"
"""The device's name for torch: the only one that supports gradients without a backend."""

DEVICES = ["stand-in", *(["cuda"] if torch.cuda.is_available() else [])]
"""Devices on which tests of other devices run."""

_aten = torch.ops.aten
_MOVES = {_aten._to_copy.default, _aten.copy_.default}
"""The only operations that may read from one device and write to the other."""
_INDEXING = {
    _aten.index.Tensor,
    _aten.index_put_.default,
    _aten.index_put.default,
    _aten._index_put_impl_.default,
}
"""CUDA takes indices from the CPU here, and here only."""


class DeviceMismatchError(RuntimeError):
    """An operation was given tensors of both devices."""


class SecondTensor(Tensor):
    """A tensor on the second device; `held` is the CPU tensor with its values."""

    held: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, held: Tensor) -> "SecondTensor":
        """Wrap a CPU tensor, dense or compressed."""
        # Torch's wrappers have no compressed layout on this device: `layout` and `to_dense` provide it.
        strided = held.layout is torch.strided
        tensor: SecondTensor = torch.Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride() if strided else None,
            storage_offset=held.storage_offset() if strided else None,
            dtype=held.dtype,
            device=torch.device(NAME),
        )
        tensor.held = held
        return tensor

    @property
    def layout(self) -> torch.layout:  # type: ignore[override]
        """Layout of the values: torch has none for wrapped compressed tensors."""
        return self.held.layout

    def to_dense(self, *arguments: Any, **options: Any) -> Tensor:
        """Convert here: torch would check the layout before it dispatches the operation."""
        return SecondTensor(self.held.to_dense(*arguments, **options))

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Sequence[type], args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run the operation as in `SecondDevice`, even outside its context."""
        return _run(func, args, dict(kwargs or {}))


class SecondDevice(TorchDispatchMode):
    """Within this context the device exists."""

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return _run(func, args, dict(kwargs or {}))


class _FilledTensors(TorchFunctionMode):
    """`torch.tensor` leaves out the values of what shall lie on `meta`: make it on the CPU and move it.

    So is `one_hot`, which torch 2.2 refuses there.
    """

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.tensor and kwargs.get("device") is not None:
            device = kwargs.pop("device")
            return func(*args, **kwargs).to(device)
        if func is functional.one_hot and isinstance(args[0], SecondTensor):
            return SecondTensor(func(args[0].held, *args[1:], **kwargs))
        return func(*args, **kwargs)


@contextmanager
def second_device() -> Iterator[str]:
    """The device's name, while it can be used."""
    known = _optimiser_devices()
    fused = patch("torch.optim.optimizer._get_fused_kernels_supported_devices", lambda: [*known, NAME])
    with fused, _FilledTensors(), SecondDevice():
        yield NAME


def _run(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    operands: list[Tensor] = []

    def held(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            operands.append(leaf)
        return leaf.held if isinstance(leaf, SecondTensor) else leaf

    given, named = _mapped(held, args), _mapped(held, kwargs)
    second = any(isinstance(each, SecondTensor) for each in operands)
    if any(each.is_meta and not isinstance(each, SecondTensor) for each in operands):
        raise DeviceMismatchError(f"{func} got a tensor without values, made outside the context")
    if second and func not in _MOVES:
        _refuse_mixture(func, args, operands)
    asked = kwargs.get("device")
    if asked is not None:
        second = torch.device(asked).type == NAME
        named["device"] = torch.device("cpu")
    elif func is _aten.copy_.default:
        second = isinstance(args[0], SecondTensor)
    back = {id(each.held): each for each in operands if isinstance(each, SecondTensor)}
    out = func(*given, **named)
    return _mapped(lambda leaf: _wrapped(leaf, back), out) if second else out


def _mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """Apply the function to all that lists, tuples and dictionaries hold, faster than torch's `tree_map`."""
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(function, each) for each in value)
    if isinstance(value, dict):
        return {name: _mapped(function, each) for name, each in value.items()}
    return function(value)


def _wrapped(leaf: Any, back: Mapping[int, SecondTensor]) -> Any:
    """Wrap an operation's result; for an in-place operation return the operand itself."""
    if not isinstance(leaf, Tensor):
        return leaf
    return back[id(leaf)] if id(leaf) in back else SecondTensor(leaf)


def _refuse_mixture(func: Any, args: Any, operands: Sequence[Tensor]) -> None:
    if func in _INDEXING:
        operands = [args[0], *args[2:3]] if len(args) > 2 else [args[0]]
    for each in operands:
        if not isinstance(each, SecondTensor) and each.dim() > 0:
            raise DeviceMismatchError(f"{func} got a tensor of {tuple(each.shape)} from the CPU")


def on_device(device: str) -> AbstractContextManager[str]:
    """Make one of `DEVICES` or the CPU usable; yields its name for a setting."""
    return second_device() if device == "stand-in" else nullcontext(device)
