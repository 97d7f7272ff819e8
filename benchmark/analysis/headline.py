"""What the records say as a whole: the few numbers that come first on the site and in `results/README.md`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from fedsub.benchmark.analysis.findings import Finding
from fedsub.benchmark.analysis.public_code import Comparison
from fedsub.benchmark.analysis.scores import Block
from fedsub.benchmark.analysis.standing import Contender, above_local
from fedsub.benchmark.spec.schema import read_as


class _Shown(msgspec.Struct, forbid_unknown_fields=True):
    """What headline.toml chooses."""

    table: str
    block: Block
    costs: tuple[str, ...]


_SHOWN = read_as(Path(__file__).with_suffix(".toml"), _Shown)
EVERY = _SHOWN.table
"""The table that has every method."""
FIRST = _SHOWN.block
"""The block that stands for the others where one is shown."""


@dataclass(frozen=True)
class Headline:
    """The numbers of the four findings; what records do not give is empty."""

    above: Mapping[str, tuple[int, int]]
    """Method → blocks of `EVERY` on which it is surely above Local, and blocks where both were run."""
    authors: Comparison | None
    """A method of a paper and its authors' own code: the one over most draws."""
    claims: Counter[str]
    """Verdict → claims of the papers."""
    levels: Counter[str]
    """Verdict → printed figures."""
    costs: Sequence[Contender]
    """Methods whose bytes are compared, on `FIRST` of `EVERY`."""


def headline(
    tables: Mapping[str, Mapping[Block, Sequence[Contender]]],
    comparisons: Sequence[Comparison],
    findings: Iterable[Finding],
    words: Iterable[str],
) -> Headline:
    """The headline of all tables' standings, the comparisons with the authors' code, the papers' claims and
    the `words` of all printed figures."""
    every = tables.get(EVERY, {})
    first = {each.row.method: each for each in every.get(FIRST, ())}
    overall = [
        each
        for each in comparisons
        if each.place is None and not each.deviations and each.method.partition("[")[0] == each.code
    ]
    return Headline(
        above_local(every.values()),
        max(overall, key=lambda each: len(each.pairs), default=None),
        Counter(finding.word for finding in findings),
        Counter(words),
        [first[name] for name in _SHOWN.costs if name in first],
    )
