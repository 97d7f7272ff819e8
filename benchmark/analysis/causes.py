"""Why figures differ and gains vanished (causes.toml)."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from fedsub.benchmark.analysis.published import PLACE, Place
from fedsub.benchmark.spec.schema import read_as
from fedsub.datasets.errors import UserError, unknown

FILE = Path(__file__).parent / "causes.toml"
KINDS = ("level", "gain")
NO_CAUSE = "No cause found"


class Cause(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is known of some figures that differ."""

    where: Mapping[str, str | tuple[str, ...]]
    """Part of a place → patterns, one of which must fit; a part that is missing may be anything."""
    of: Literal["level", "gain"] | None = None
    """None: of both."""
    cause: str = ""
    """What records showed it to be; empty where none was found."""
    open: str = ""
    """What was tried and what else is known, where no cause was found."""
    evidence: tuple[str, ...] = ()
    """Files in the tree, or commands, behind it."""

    def __post_init__(self) -> None:
        """Raises UserError for a part that no place has, and unless it has either a cause or what is open."""
        for part in self.where:
            if part not in PLACE:
                raise unknown("part of a place", part, PLACE)
        if bool(self.cause) == bool(self.open):
            raise UserError(f"an entry has either cause or open: {dict(self.where)}")

    @property
    def text(self) -> str:
        """The sentence of the page."""
        said = self.cause or f"{NO_CAUSE}. {self.open}"
        return f"{said} ({'; '.join(self.evidence)})" if self.evidence else said

    def fits(self, place: Place, kind: str) -> bool:
        """Whether it speaks of the level or the gain of the figure at `place`."""
        found = dict(zip(PLACE, place, strict=True))

        def meets(part: str, wanted: str | tuple[str, ...]) -> bool:
            patterns = (wanted,) if isinstance(wanted, str) else wanted
            return any(fnmatchcase(found[part] or "", pattern) for pattern in patterns)

        return self.of in (None, kind) and all(meets(*each) for each in self.where.items())


class _File(msgspec.Struct, forbid_unknown_fields=True):
    cause: tuple[Cause, ...]


def cause_of(place: Place, kind: str) -> Cause | None:
    """The first entry on the `level` or `gain` of the figure at `place`."""
    return next((cause for cause in causes() if cause.fits(place, kind)), None)


def text_of(place: Place, kind: str) -> str:
    """The sentence of the page on a level that differs or a gain that vanished."""
    found = cause_of(place, kind)
    return NO_CAUSE if found is None else found.text


@cache
def causes() -> tuple[Cause, ...]:
    """All entries, in the order in which they count."""
    return load_causes(FILE)


def load_causes(path: Path) -> tuple[Cause, ...]:
    """The entries of a file. Raises UserError for one that cannot be understood."""
    return read_as(path, _File).cause
