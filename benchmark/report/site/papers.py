"""Papers: a card a paper, its claims with the verdict first, and the authors' own code on our clients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from fedsub.benchmark.analysis.agreement import CANNOT, DIFFERS, MATCHES, NEEDS_RUNS, NOT_MEASURED, VERDICTS
from fedsub.benchmark.analysis.codes import CODES
from fedsub.benchmark.analysis.findings import Finding
from fedsub.benchmark.analysis.metrics import heading_of
from fedsub.benchmark.analysis.paired import FAILS, HOLDS
from fedsub.benchmark.analysis.public_code import Comparison
from fedsub.benchmark.analysis.summary import count_tables
from fedsub.benchmark.report.claims import contrast_in_words, span_of
from fedsub.benchmark.report.site.charts import strip
from fedsub.benchmark.report.site.check import figure_title, table_address
from fedsub.benchmark.report.site.data import Facts, Page, block_name, method_name, slug

CLAIMS = (HOLDS, FAILS, NEEDS_RUNS, NOT_MEASURED, CANNOT)
"""Verdicts on claims, in the order of the cards."""


def pages(facts: Facts) -> Iterator[Page]:
    """The list of papers, a page for each, and the comparison with the authors' code."""
    counts = count_tables(facts.entries)
    names = dict.fromkeys((*counts, *(finding.claim.paper for finding in facts.findings)))
    cards = []
    for paper in names:
        listed = [each for each in facts.findings if each.claim.paper == paper]
        entries = [entry for entry in facts.entries if entry.figure.paper == paper]
        levels = Counter(entry.answer[0] for entry in entries)
        code = next((code for code in CODES.values() if code.title == paper), None)
        overall = [
            each for each in facts.comparisons if code and each.code == code.name and each.place is None
        ]
        card: dict[str, Any] = {
            "paper": paper,
            "address": f"papers/{slug(paper)}",
            "claims": [
                (word, count) for word in CLAIMS if (count := Counter(each.word for each in listed)[word])
            ],
            "levels": [(word, levels[word]) for word in VERDICTS if levels[word]],
            "unmeasured": sum(levels[word] for word in (CANNOT, NOT_MEASURED)),
            "code": [compared(each) for each in overall if not each.deviations],
        }
        cards.append(card)
        ordered = sorted(listed, key=lambda each: CLAIMS.index(each.word))
        differing = [
            (figure_title(facts.entries[place]), address, facts.entries[place])
            for place, address in facts.figure_addresses.items()
            if facts.entries[place].figure.paper == paper and facts.entries[place].level.word == DIFFERS
        ]
        values = {
            **card,
            "listed": [_claim(each) for each in ordered],
            "tables": [(table_address(paper, each.table), each) for each in counts.get(paper, [])],
            "causes": _by_cause(differing),
        }
        yield Page(card["address"], paper, "paper.html", values)
    yield Page(
        "papers", "Papers", "papers.html", {"cards": cards, "words": CLAIMS, "total": facts.headline.claims}
    )
    yield Page(
        "codes",
        "The authors' own code on our clients",
        "codes.html",
        {
            "overall": [compared(each) for each in facts.comparisons if each.place is None],
            "places": [compared(each) for each in facts.comparisons if each.place is not None],
            "codes": [
                code for code in CODES.values() if any(each.code == code.name for each in facts.comparisons)
            ],
            "matches": MATCHES,
        },
    )


def _claim(finding: Finding) -> dict[str, Any]:
    columns = Counter(column.word for column in finding.columns)
    printed = [value for part in finding.parts for value in part.hardest_printed]
    measured = [column.difference for column in finding.columns if column.difference is not None]
    seeds = [item.seeds for column in finding.columns for item in column.comparisons if item]
    return {
        "word": finding.word,
        "says": finding.claim.says,
        "place": finding.claim.place,
        "test": [contrast_in_words(contrast) for contrast in finding.claim.contrasts],
        "note": finding.claim.cannot or finding.claim.note,
        "printed": span_of(printed),
        "measured": span_of(measured),
        "columns": [(word, columns[word]) for word in CLAIMS if columns[word]],
        "away": sum(part.away for part in finding.parts),
        "seeds": sorted({min(seeds), max(seeds)}) if seeds else [],
    }


def compared(found: Comparison) -> dict[str, Any]:
    verdict, (ours, theirs) = found.verdict, found.means
    low, high = verdict.interval or (None, None)
    return {
        "code": CODES[found.code].title,
        "method": method_name(found.method, found.backbone, True),
        "place": "all places" if found.place is None else block_name(found.place),
        "changed": found.deviations,
        "metric": heading_of(found.metric),
        "draws": verdict.count,
        "ours": ours,
        "theirs": theirs,
        "difference": verdict.shown,
        "at": verdict.difference,
        "interval": verdict.shown_interval,
        "strip": strip(
            low, verdict.difference or 0.0, high, 3 * (verdict.tolerance or 1.0), verdict.tolerance or 0.0
        ),
        "word": verdict.word,
        "speed": found.speed,
    }


def _by_cause(differing: list[tuple[str, str, Any]]) -> dict[str, list[tuple[str, str, str]]]:
    """Cause → the figures that differ by it: title, address, difference."""
    found: dict[str, list[tuple[str, str, str]]] = {}
    for title, address, entry in differing:
        found.setdefault(entry.cause, []).append((title, address, entry.level.shown))
    return found
