"""Public codes of papers that run on our clients (codes.toml)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from fedsub.benchmark.spec.schema import read_as


class PublicCode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The public code of a paper."""

    name: str
    """Name on the command line and in records."""
    title: str
    repository: str
    """Its address on GitHub."""
    entry: str
    """A file that every checkout has."""
    methods: tuple[str, ...]
    """As the tables spell them."""
    datasets: tuple[str, ...]
    tables: dict[str, tuple[int, ...]]
    """Each with the numbers of clients that are run, all that it lists if empty."""
    lacks: str = ""
    """Parts of its paper's tables that it cannot run here, and why."""

    def __hash__(self) -> int:
        return hash(self.name)

    def has(self, table: str, point: Mapping[str, Any]) -> bool:
        """Whether it can run the cell at this place of a table's grid."""
        numbers = self.tables.get(table)
        return (
            numbers is not None
            and (not numbers or point["clients"] in numbers)
            and point["method"] in self.methods
            and point["dataset"] in self.datasets
        )


class _File(msgspec.Struct, forbid_unknown_fields=True):
    code: tuple[PublicCode, ...]


CODES = {code.name: code for code in read_as(Path(__file__).with_suffix(".toml"), _File).code}
"""By name."""
