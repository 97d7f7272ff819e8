"""Counts of verdicts: by table, by tolerance, with the false discovery rate controlled, and the headline of
the site and of `results/README.md`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from fedsub.benchmark.analysis import agreement
from fedsub.benchmark.analysis.figures import Entry
from fedsub.benchmark.analysis.findings import Finding
from fedsub.benchmark.analysis.findings import discoveries as of_claims
from fedsub.benchmark.analysis.public_code import WithAuthors
from fedsub.benchmark.analysis.standing import Contender, above_local, by_method
from fedsub.benchmark.spec.cell import Block


@dataclass(frozen=True)
class Count:
    """Counts of figures by verdict, for one printed table or several."""

    table: str
    printed: int
    measurable: int
    levels: Counter[str]
    chosen: Counter[str]
    """Counts of levels with a setting chosen on their table."""
    gains: Counter[str]
    """Counts of differences to the baseline by verdict."""
    protocols: tuple[str, ...]
    """Protocols that measure some of the figures."""

    @property
    def measured(self) -> int:
        """Number of figures with a verdict on their level."""
        return sum(self.levels[word] for word in agreement.VERDICTS)

    @property
    def gains_judged(self) -> int:
        """Number of differences to the baseline with a verdict."""
        return sum(self.gains[word] for word in agreement.GAINS)


def count(name: str, entries: Sequence[Entry]) -> Count:
    """Count the verdicts on these figures; those of the authors' code take precedence (`Entry.answer`)."""
    levels = Counter(entry.answer[0] for entry in entries)
    return Count(
        name,
        len(entries),
        len(entries) - levels[agreement.CANNOT],
        levels,
        Counter(entry.answer[0] for entry in entries if entry.chosen),
        Counter(entry.gain.word for entry in entries if entry.gain is not None),
        tuple(dict.fromkeys(entry.protocol for entry in entries if entry.row is not None)),
    )


def count_tables(entries: Sequence[Entry]) -> dict[str, list[Count]]:
    """Return paper → a count for each of its tables, papers by name and tables by number."""
    found: dict[str, list[Count]] = {}
    ordered = sorted(entries, key=lambda entry: _order(*entry.figure.place[:2]))
    for (paper, table), group in groupby(ordered, key=lambda entry: entry.figure.place[:2]):
        found.setdefault(str(paper), []).append(count(table_name(str(table)), [*group]))
    return found


def _order(paper: str | None, table: str | None) -> tuple[str, bool, int, str]:
    digits = "".join(letter for letter in str(table) if letter.isdigit())
    return str(paper), not str(table).isdigit(), int(digits or 0), str(table)


def table_name(table: str) -> str:
    """`Table 2`, `Figure 12`, or the place in the text."""
    if table.isdigit() or not table.strip("IVX"):
        return f"Table {table}"
    return f"Figure {table.removeprefix('Fig')}" if table.startswith("Fig") else table


def by_tolerance(entries: Iterable[Entry]) -> list[tuple[float, float, int, int, int]]:
    """For each of `DELTAS`: points, share, and the numbers of measured levels that match, differ and do
    neither, compared with the printed figures only."""
    judged = [entry for entry in entries if entry.level.word in agreement.VERDICTS]
    found = []
    for points, share in agreement.DELTAS:
        words = Counter(
            entry.level.decided(agreement.tolerance_of(entry.metric, entry.figure.mean, points, share))
            for entry in judged
        )
        found.append((points, share, words[agreement.MATCHES], words[agreement.DIFFERS], words[""]))
    return found


def discoveries(entries: Iterable[Entry]) -> dict[str, tuple[int, int]]:
    """Verdict → number of levels with it, compared with the printed figures only, and number that keep it
    with the false discovery rate controlled over all levels that have a p-value."""
    levels = [entry.level for entry in entries if entry.level.p_differs is not None]
    p_values = {
        agreement.MATCHES: [level.p_matches or 0.0 for level in levels],
        agreement.DIFFERS: [level.p_differs or 0.0 for level in levels],
    }
    return agreement.discoveries([level.word for level in levels], p_values)


def by_authors(entries: Iterable[Entry]) -> dict[str, Counter[str]]:
    """Count the verdicts of the authors' code on our clients: on all measured levels, and on those that
    cannot be settled from print."""
    run = [(each.level.word, each.authors.verdict.word) for each in entries if each.authors is not None]
    unsettled = [word for level, word in run if level == agreement.UNSETTLED]
    return {"all": Counter(word for _, word in run), agreement.UNSETTLED: Counter(unsettled)}


@dataclass(frozen=True)
class Basis:
    """What the counts of levels that match and differ rest on."""

    scores: Mapping[str, int]
    """Verdict → number of distinct measured scores."""
    far: int
    """Number of levels that match by the authors' code and are more than δ from print."""
    near: int
    """Number of levels that differ by the authors' code and match print."""


def basis(entries: Sequence[Entry]) -> Basis:
    """Count what the verdicts that count (`Entry.answer`) rest on."""
    scores = {(entry.answer[0], *entry.records, entry.metric) for entry in entries}
    by_code = [(entry.answer[0], entry.level) for entry in entries if entry.answer[1]]
    return Basis(
        Counter(word for word, *_ in scores),
        sum(
            word == agreement.MATCHES and abs(level.difference or 0.0) > (level.tolerance or 0.0)
            for word, level in by_code
        ),
        sum(word == agreement.DIFFERS and level.word == agreement.MATCHES for word, level in by_code),
    )


EVERY = "all-methods"
"""The table that has every method."""
FIRST = ("cora", "metis", 10)
"""The block to show where there is room for one only."""
COSTS = ("fedavg", "fedpub", "fedstruct")
"""Methods whose bytes the headline compares."""


@dataclass(frozen=True)
class Headline:
    """Numbers of the four headline findings; empty where records are missing."""

    above: Mapping[str, tuple[int, int]]
    """Method → blocks of `EVERY` on which it is surely above Local, and blocks where both were run."""
    authors: WithAuthors | None
    """Comparison of a paper's method with its authors' own code: the one over most draws."""
    compared: Counter[str]
    """Verdict → number of comparisons with authors' code, each of a method and a score over all places, with
    the settings of our tables."""
    claims: Counter[str]
    """Verdict → number of claims of the papers."""
    remaining: Mapping[str, tuple[int, int]]
    """`findings.discoveries` of the claims."""
    figures: Count
    """Counts of all printed figures."""
    costs: Sequence[Contender]
    """The methods `COSTS` on `FIRST` of `EVERY`."""

    @property
    def most_above(self) -> tuple[list[str], int, int, int] | None:
        """Of the methods run on the most blocks: those that are surely above Local on the most, this
        number, the number of blocks, and that of such methods; None if no method is above Local."""
        above, of = next(iter(self.above.values()), (0, 0))
        best = [name for name, found in self.above.items() if found == (above, of)]
        return (best, above, of, sum(blocks == of for _, blocks in self.above.values())) if above else None


def headline(
    tables: Mapping[str, Mapping[Block, Sequence[Contender]]],
    comparisons: Sequence[WithAuthors],
    findings: Sequence[Finding],
    entries: Sequence[Entry],
) -> Headline:
    """Make the headline of the site and of `results/README.md`."""
    every = tables.get(EVERY, {})
    first = by_method(every.get(FIRST, ()))
    overall = [each for each in comparisons if each.place is None]
    own = [each for each in overall if not each.deviations and each.method.partition("[")[0] == each.code]
    return Headline(
        above_local(every.values()),
        max(own, key=lambda each: len(each.pairs), default=None),
        Counter(each.verdict.word for each in overall if not each.deviations),
        Counter(finding.word for finding in findings),
        of_claims(findings),
        count("", entries),
        [first[name] for name in COSTS if name in first],
    )
