"""Why a measured figure is not the printed one (causes.toml): what was measured, or what was tried in vain.

An entry names printed figures by patterns on their places (`*` stands for anything); the first that fits
counts, so that particular figures come before whole tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from benchmark.published import PLACE, Place
from benchmark.typed import checked
from datasets.errors import UserError, unknown
from datasets.files import read_toml

FILE = Path(__file__).parent / "causes.toml"
KINDS = ("level", "gain")
NOTHING_TRIED = "no cause found; tried: nothing yet"
_KEYS = (*PLACE, "of", "cause", "tried", "evidence")


@dataclass(frozen=True)
class Cause:
    """What is known of some figures that differ."""

    where: Mapping[str, tuple[str, ...]]
    """Part of a place → patterns, of which one fits; a part that is missing may be anything."""
    kinds: tuple[str, ...]
    """`level`, `gain` or both."""
    cause: str
    """What a measurement showed it to be; empty where none was found."""
    tried: str
    """What was tried where no cause was found."""
    evidence: tuple[str, ...]
    """Files in the tree, or commands, behind it."""

    @property
    def text(self) -> str:
        """One sentence for the page."""
        said = self.cause or f"no cause found; tried: {self.tried}"
        return f"{said.rstrip('.')} ({'; '.join(self.evidence)})" if self.evidence else said

    def fits(self, place: Place, kind: str) -> bool:
        """Whether it speaks of the level or the gain of the figure at `place`."""
        found = dict(zip(PLACE, place, strict=True))
        return kind in self.kinds and all(
            any(fnmatchcase(found[part] or "", pattern) for pattern in patterns)
            for part, patterns in self.where.items()
        )


def cause_of(place: Place, kind: str) -> Cause | None:
    """The first entry on the `level` or `gain` of the figure at `place`."""
    return next((cause for cause in causes() if cause.fits(place, kind)), None)


def text_of(place: Place, kind: str) -> str:
    """What the page says of a figure that differs."""
    found = cause_of(place, kind)
    return NOTHING_TRIED if found is None else found.text


@cache
def causes() -> tuple[Cause, ...]:
    """All entries, in the order in which they count."""
    return load_causes(FILE)


def load_causes(path: Path) -> tuple[Cause, ...]:
    """The entries of a file. Raises UserError for one that cannot be understood."""
    blocks = checked("cause", read_toml(path).get("cause"), list[dict[str, Any]])
    return tuple(_cause(block) for block in blocks)


def _cause(block: Mapping[str, Any]) -> Cause:
    for key in block:
        if key not in _KEYS:
            raise unknown("key of a cause", key, _KEYS)
    kinds, said = _texts(block.get("of", [*KINDS])), [key for key in ("cause", "tried") if key in block]
    if len(said) != 1 or not set(kinds) <= set(KINDS):
        raise UserError(f"a cause has either cause or tried, and is of {' or '.join(KINDS)}: {dict(block)}")
    return Cause(
        where={part: _texts(block[part]) for part in PLACE if part in block},
        kinds=kinds,
        cause=" ".join(checked("cause", block.get("cause", ""), str).split()),
        tried=" ".join(checked("tried", block.get("tried", ""), str).split()),
        evidence=_texts(block.get("evidence", [])),
    )


def _texts(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(checked("a list", value, list[str]))
