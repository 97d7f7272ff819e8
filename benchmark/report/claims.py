"""The page `claims.md`: the papers' claims with their verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from fedsub.benchmark.analysis.agreement import CANNOT, FALSE_DISCOVERIES, NEEDS_RUNS, NOT_MEASURED
from fedsub.benchmark.analysis.claims import ALL_BUT, EVERY, ON_AVERAGE, Contrast
from fedsub.benchmark.analysis.findings import Finding, discoveries
from fedsub.benchmark.analysis.paired import EQUAL, FAILS, HIGHER, HOLDS
from fedsub.benchmark.analysis.sequential import LEVEL
from fedsub.benchmark.report.tables import markdown_table
from fedsub.benchmark.report.writing import write_list, write_page

RULE = (
    "Claims that the papers make in words or in bold type, restated in our words. Each compares a score of "
    "one side with that of others in the same place, paired by seed. A comparison **holds** where the "
    f"{LEVEL:.0%} interval of the difference lies on the claimed side of the margin, **fails** where it lies "
    f"on the other, and **{NEEDS_RUNS}** otherwise. A column (a graph and its clients) holds if all its "
    "comparisons do, and fails where one does. A claim says in how many of its columns it must hold. It is "
    "judged at a level that allows for the number of columns (partial conjunction, Benjamini and Heller "
    "2008) and for several looks at the seeds. Columns that are not measured neither carry nor refute it. "
    "Differences are ours minus theirs, to the rival that is hardest to hold against. Every column: "
    "[claims.json](claims.json). What is compared with what: `benchmark/analysis/claims.toml`."
)
_HEAD = ("claim", "place", "tested by", "printed", "measured", "columns", "seeds", "verdict")


def markdown(findings: Sequence[Finding]) -> str:
    """The page: the rule, the counts, and the claims of each paper."""
    words = Counter(finding.word for finding in findings)
    counted = ", ".join(
        f"{words[word]} {word}" for word in (HOLDS, FAILS, NEEDS_RUNS, NOT_MEASURED, CANNOT) if words[word]
    )
    stay = "; ".join(f"{left} of {many} {word}" for word, (many, left) in discoveries(findings).items())
    parts = [
        "# What the papers claim, and whether it holds here",
        RULE,
        f"{len(findings)} claims: {counted}. With the rate of false discoveries at {FALSE_DISCOVERIES:.0%} "
        f"over all of them these stay: {stay}.",
    ]
    for paper, group in groupby(findings, key=lambda finding: finding.claim.paper):
        listed = [*enumerate(group, start=1)]
        parts += [f"## {paper}", markdown_table(_HEAD, [_line(*each) for each in listed])]
        notes = [(number, found.claim.cannot or found.claim.note) for number, found in listed]
        if lines := [f"- {number}: {note}" for number, note in notes if note]:
            parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _line(number: int, finding: Finding) -> list[str]:
    claim, words, away = finding.claim, finding.words, finding.away
    counted = [f"{word} in {words[word]}" for word in (HOLDS, FAILS, NEEDS_RUNS, NOT_MEASURED) if words[word]]
    return [
        f"{number}. {claim.says}",
        claim.place,
        "; and ".join(map(contrast_in_words, claim.contrasts)),
        span_of(finding.printed),
        span_of(finding.differences),
        ", ".join([*counted, *([f"{away} without the graph"] if away else [])]),
        " to ".join(map(str, finding.seeds)) or "–",
        f"**{finding.word}**",
    ]


def contrast_in_words(contrast: Contrast) -> str:
    """The contrast in words."""
    sides = ", ".join(map(_side, contrast.against))
    margin = f"{abs(contrast.margin):g}"
    above, below = ("above", "below") if contrast.direction == HIGHER else ("below", "above")
    if contrast.direction == EQUAL:
        relation = f"within {margin} of"
    elif contrast.margin < 0:
        relation = f"no more than {margin} {below}"
    else:
        relation = f"more than {margin} {above}" if contrast.margin else above
    rule = {EVERY: "in every column", ON_AVERAGE: "on average"}
    columns = rule.get(contrast.rule, f"in all but {contrast.rule.removeprefix(ALL_BUT)} columns")
    for axis, values in contrast.only.items():
        columns += f"; {axis} {', '.join(map(str, values))}"
    return f"{', '.join(contrast.metric)}: {', '.join(contrast.method)} {relation} {sides}, {columns}"


def _side(change: Mapping[str, Any]) -> str:
    if "value" in change:
        return f"{change['value']:g}"
    own = str(change.get("method", ""))
    rest = ", ".join(f"{key} {value}" for key, value in change.items() if key != "method")
    return f"{own} ({rest})" if own and rest else own or f"the same with {rest}"


def span_of(values: Sequence[float]) -> str:
    """The ends of some differences; a dash of none."""
    if not values:
        return "–"
    return " to ".join(dict.fromkeys((f"{min(values):+.2f}", f"{max(values):+.2f}")))


def write_claims(results: Path, findings: Sequence[Finding]) -> list[Path]:
    """Write `claims.json` and `claims.md` into the results folder; returns their paths."""
    data, page = results / "claims.json", results / "claims.md"
    write_list(data, (finding.to_dict() for finding in findings))
    write_page(page, markdown(findings).encode())
    return [data, page]
