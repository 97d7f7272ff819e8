"""Errors caused by the user's input."""

import difflib
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any


class UserError(ValueError):
    """Error whose message is one sentence with cause and fix; command lines print it and exit non-zero."""


def unknown(kind: str, name: str, valid: Iterable[str], place: str = "") -> UserError:
    """Return the error for an unknown name, with the nearest valid names, or all of them if none is near.

    `place` is where the name was read, such as ` in [grid]`.
    """
    choices = sorted(valid)
    # Papers write FED-PUB, METIS and ogbn-arxiv.
    plain = {_plain(choice): choice for choice in reversed(choices)}
    near = [plain[each] for each in difflib.get_close_matches(_plain(name), plain, n=3, cutoff=0.5)]
    hint = f"did you mean {', '.join(near)}?" if near else f"choose from {', '.join(choices)}"
    return UserError(f"unknown {kind} {name!r}{place}: {hint}")


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def check_choice(kind: str, value: Any, choices: tuple[str, ...]) -> None:
    """Raises UserError, with the nearest choices, for a value that is not one of them."""
    if value not in choices:
        raise unknown(kind, str(value), choices)


def broken(what: str, error: BaseException) -> UserError:
    """Return a UserError with cause and line of an `error` that code outside the benchmark raised.

    `what` begins the sentence: 'the plug-in x.py cannot be imported'. Call it where `error` is caught: the
    frames below that one belong to the outside code.
    """
    cause = " ".join(f"{type(error).__name__}: {error}".split())
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__)[1:] if "importlib" not in frame.filename
    ]
    # The deepest line may be in a library, but the user has to fix the plug-in's last line.
    own = [frame for frame in frames if frame.filename == frames[0].filename]
    line = f", {Path(own[-1].filename).name} line {own[-1].lineno}" if own else ""
    return UserError(f"{what} ({cause}{line}): fix the plug-in")
