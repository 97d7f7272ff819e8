"""What papers and their public code state of the settings of their runs (stated.toml)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

from fedsub.benchmark.spec.schema import read_as


class Stated(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One setting; empty where a source does not state it, or was not read."""

    paper: str = ""
    code: str = ""


@cache
def stated() -> Mapping[str, Mapping[str, Stated]]:
    """Paper → setting, or `method: option`, → what is stated of it."""
    return read_as(Path(__file__).with_name("stated.toml"), dict[str, dict[str, Stated]])
