"""The state of a run, and the checkpoint from which it resumes.

A class names its state: a method in `client_state` and `server_state`, any other class in `state`; the names
of base classes are added. Everything else follows from the set-up, which a resumed run repeats.
"""

import io
import json
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import torch

from fedsub.datasets.errors import UserError
from fedsub.datasets.files import write_atomically

LISTS = ("client_state", "server_state", "state")


class Checkpoint:
    """A file with the state of a run as plain data and tensors; reading it runs no code."""

    def __init__(self, path: Path, every: float, stamp: Callable[[], Mapping[str, Any]]) -> None:
        """`every`: seconds between two checkpoints. `stamp` returns what the run's figures depend on."""
        self.path, self.every, self.stamp = path, every, stamp
        self.due = time.monotonic() + every

    def restore(self, run: Any) -> str:
        """Restore the saved state, if there is one, into a run that was just set up. Returns why a file is of
        no use, and removes it; the run must then be set up again."""
        if not self.path.exists():
            return ""
        try:
            # torch.load does not compare the checksums that torch.save writes.
            with ZipFile(self.path) as file:
                damaged, found = file.testzip(), torch.load(self.path, weights_only=True)
            if other := [name for name, value in self.stamp().items() if found["stamp"].get(name) != value]:
                raise UserError(f"it was made with a different {other[0]}")
            if damaged:
                raise UserError("it is damaged")
            restored(run, found["state"])
        except Exception as error:  # A file of another origin may raise any exception.
            self.path.unlink(missing_ok=True)
            said = " ".join(f"{type(error).__name__}: {error}".removeprefix("UserError: ").split())[:200]
            return f"cannot continue from {self.path}: {said}"
        return ""

    def after_round(self, run: Any) -> None:
        """Write the state if it is due. Warns if that fails."""
        if time.monotonic() >= self.due:
            try:
                torch.save({"stamp": self.stamp(), "state": saved(run)}, content := io.BytesIO())
                write_atomically(self.path, content.getbuffer())
            except (OSError, UserError) as error:
                warnings.warn(f"cannot write the checkpoint {self.path}: {error}", stacklevel=2)
            self.due = time.monotonic() + self.every


def names_of(kind: type, groups: tuple[str, ...] = LISTS) -> list[str]:
    """Attributes that a class and its base classes name as state."""
    return [name for each in reversed(kind.__mro__) for group in groups for name in vars(each).get(group, ())]


def saved(value: Any) -> Any:
    """Return a value as plain data and tensors, which are not copied: `torch.load` reads them with
    `weights_only=True`. Raises UserError for an object whose class names no state."""
    match value:
        case np.generic():
            return value.item()
        case None | bool() | int() | float() | str():
            return value
        case torch.Tensor():
            return value.detach()
        case dict():
            return {key: saved(each) for key, each in value.items()}
        case list() | tuple():
            return [saved(each) for each in value]
        case torch.optim.Optimizer() | torch.nn.Module():
            return value.state_dict()
        case torch.Generator():
            return value.get_state()
        case np.random.Generator(bit_generator=bits) | (np.random.BitGenerator() as bits):
            return json.dumps(bits.state, default=np.ndarray.tolist)
    if not any(hasattr(value, group) for group in LISTS):
        raise UserError(f"no checkpoint holds a {type(value).__name__}: keep a tensor, or name its `state`")
    return {name: saved(getattr(value, name, None)) for name in names_of(type(value))}


def restored(value: Any, kept: Any) -> Any:
    """Return `value` with the state `kept`: trained tensors, generators and objects restored in place, as
    others hold references to them; anything else anew. Raises any error where `kept` does not fit."""
    match value:
        case torch.Tensor(requires_grad=True) if kept is not None:
            value.detach().copy_(kept.view_as(value))
        case dict() if isinstance(kept, dict):
            return {key: restored(value.get(key), each) for key, each in kept.items()}
        case torch.optim.Optimizer() | torch.nn.Module():
            value.load_state_dict(kept)
        case torch.Generator():
            value.set_state(kept)
        case np.random.Generator(bit_generator=bits) | (np.random.BitGenerator() as bits):
            bits.state = json.loads(kept)
        case _ if any(hasattr(value, group) for group in LISTS):
            for name in names_of(type(value)):
                setattr(value, name, restored(getattr(value, name, None), kept[name]))
        case _:
            return kept
    return value
