"""Why a measured figure is not the printed one (causes.toml): what was measured, or what was tried in vain.

Of a figure without a cause an entry says what was tried elsewhere (`tried`) and what else is known (`known`);
what was run in its own place is read off the records. An entry names printed figures by patterns on their
places (`*` stands for anything); the first that fits counts, so that particular figures come before whole
tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from fedsub.benchmark.analysis.published import PLACE, Place
from fedsub.benchmark.spec.schema import checked
from fedsub.datasets.errors import UserError, unknown
from fedsub.datasets.files import read_toml

FILE = Path(__file__).parent / "causes.toml"
KINDS = ("level", "gain")
NOTHING_TRIED = "nothing on this row"
_KEYS = (*PLACE, "of", "cause", "tried", "known", "evidence")


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
    """What was tried where no cause was found, besides what the records of the same place show."""
    known: str
    """What else is known of a figure for which no cause was found."""
    evidence: tuple[str, ...]
    """Files in the tree, or commands, behind it."""

    def text(self, trials: Sequence[str] = ()) -> str:
        """What the page says; `trials` are what was run in the figure's place and what it gave."""
        return f"{self._said(trials)} ({'; '.join(self.evidence)})" if self.evidence else self._said(trials)

    def _said(self, trials: Sequence[str]) -> str:
        if self.cause:
            return self.cause.rstrip(".")
        tried = "; ".join(filter(None, (self.tried.rstrip("."), *trials))) or NOTHING_TRIED
        return ". ".join(filter(None, (f"no cause found; tried: {tried}", self.known.rstrip("."))))

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


def text_of(place: Place, kind: str, trials: Sequence[str] = ()) -> str:
    """What the page says of a figure that differs; `trials` as for `Cause.text`."""
    found = cause_of(place, kind) or Cause({}, KINDS, "", "", "", ())
    return found.text(trials)


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
    kinds, of_none = _texts(block.get("of", [*KINDS])), block.keys() & {"tried", "known"}
    if ("cause" in block) == bool(of_none) or not set(kinds) <= set(KINDS):
        raise UserError(
            "an entry has either cause, or tried, known or both,"
            f" and is of {' or '.join(KINDS)}: {dict(block)}"
        )
    texts = {key: checked(key, block.get(key, ""), str) for key in ("cause", "tried", "known")}
    return Cause(
        where={part: _texts(block[part]) for part in PLACE if part in block},
        kinds=kinds,
        **{key: " ".join(text.split()) for key, text in texts.items()},
        evidence=_texts(block.get("evidence", [])),
    )


def _texts(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(checked("a list", value, list[str]))
