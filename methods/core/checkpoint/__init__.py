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

from typing import Any, Protocol

from fedsub.methods.core.checkpoint.built import Built
from fedsub.methods.core.checkpoint.kinds import CheckpointError, Code, UnsavableError, digest
from fedsub.methods.core.checkpoint.reading import Reading
from fedsub.methods.core.checkpoint.writing import Writing

__all__ = ["Checkpoint", "CheckpointError", "State", "UnsavableError"]


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
        self.built = Built()
        self._problem: UnsavableError | None = None
        try:
            self._codes(Writing(self.built, by_set_up=True))
        except UnsavableError as error:
            # Most runs are over before anyone wants to keep them.
            self._problem = error

    def save(self) -> dict[str, Any]:
        """What `torch.save` takes and `torch.load` reads with `weights_only=True`; tensors are those of the
        run, not copies. Raises UnsavableError, with the attribute, for a kind of state that is not known."""
        if self._problem is not None:
            raise self._problem
        writing = Writing(self.built)
        parts = self._codes(writing)
        same = [(number, digest(self.built[number])) for number in writing.same]
        return {"built": self.built.signature, "parts": parts, "nodes": writing.nodes, "same": same}

    def _codes(self, writing: Writing) -> dict[str, Code]:
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
            for number, expected in saved["same"]:
                if digest(self.built[number]) != expected:
                    raise CheckpointError("the set-up gives other values than it did")
            reading = Reading(self.built, saved["nodes"])
            for name, part in self._parts.items():
                if reading.value(saved["parts"][name]) is not part:
                    raise CheckpointError(f"it holds another {name}")
        except CheckpointError:
            raise
        except Exception as error:
            # Whatever a broken file may lead to.
            raise CheckpointError(f"it cannot be read ({type(error).__name__}: {error})") from error
