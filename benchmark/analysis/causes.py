"""Knowledge on printed figures that is not in the records.

Causes of differences (causes.toml), settings that papers and their public code state (stated.toml), and what
cannot be measured (unmeasured.toml).
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from fedsub.benchmark.analysis.published import PLACE, Place
from fedsub.benchmark.spec.schema import read_as

FILE = Path(__file__).parent / "causes.toml"
NO_CAUSE = "No cause found"


class Cause(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The cause of a group of differing figures, or what was tried."""

    where: Mapping[str, str | tuple[str, ...]]
    """Part of a place → patterns, one of which must match; a missing part matches anything."""
    of: Literal["level", "gain"] | None = None
    """Verdict that it explains; None for both."""
    cause: str = ""
    """The cause shown by records; empty if none was found."""
    open: str = ""
    """Attempts and observations, if no cause was found."""
    evidence: tuple[str, ...] = ()
    """Supporting files of the repository, or commands."""

    @property
    def text(self) -> str:
        """Sentence for the page, with the evidence in brackets."""
        said = self.cause or f"{NO_CAUSE}. {self.open}"
        return f"{said} ({'; '.join(self.evidence)})" if self.evidence else said

    def fits(self, place: Place, kind: str) -> bool:
        """Whether it applies to the level or the gain of the figure at `place`."""
        found = dict(zip(PLACE, place, strict=True))

        def meets(part: str, wanted: str | tuple[str, ...]) -> bool:
            patterns = (wanted,) if isinstance(wanted, str) else wanted
            return any(fnmatchcase(found[part] or "", pattern) for pattern in patterns)

        return self.of in (None, kind) and all(meets(*each) for each in self.where.items())


class _File(msgspec.Struct, forbid_unknown_fields=True):
    cause: tuple[Cause, ...]


@cache
def load_causes(path: Path = FILE) -> tuple[Cause, ...]:
    """All entries of a file, in the order in which they count. Raises UserError for an invalid one."""
    return read_as(path, _File).cause


def cause_of(place: Place, kind: str) -> Cause | None:
    """The first entry on the `level` or `gain` of the figure at `place`."""
    return next((cause for cause in load_causes() if cause.fits(place, kind)), None)


def text_of(place: Place, kind: str) -> str:
    """Return the page's sentence on a differing level or a vanished difference to the baseline."""
    found = cause_of(place, kind)
    return NO_CAUSE if found is None else found.text


class Stated(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One setting as stated by paper and code; empty if the source does not state it or was not read."""

    paper: str = ""
    code: str = ""


@cache
def stated() -> Mapping[str, Mapping[str, Stated]]:
    """Return paper → setting or `method: option` → stated values."""
    return read_as(Path(__file__).with_name("stated.toml"), dict[str, dict[str, Stated]])


@cache
def unmeasured() -> Mapping[str, Mapping[str, str]]:
    """Return `graph` and `method` → printed name → why records in git lack it; records of it still count."""
    return read_as(Path(__file__).with_name("unmeasured.toml"), dict[str, dict[str, str]])
