"""Pages of papers: one card per paper, its claims by verdict, and the authors' own code on our clients."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from fedsub.benchmark.analysis.agreement import CANNOT, DIFFERS, NOT_MEASURED, VERDICTS
from fedsub.benchmark.analysis.figures import Entry
from fedsub.benchmark.analysis.public_code import CODES
from fedsub.benchmark.analysis.summary import count_tables
from fedsub.benchmark.report.site.check import figure_title, table_address
from fedsub.benchmark.report.site.data import Facts, Page, slug
from fedsub.benchmark.report.summaries import CLAIMS, contrast_in_words
from fedsub.benchmark.report.wording import heading_of, sentence_list

WORDS = {"claim_words": CLAIMS, "level_words": VERDICTS, "unmeasured_words": (CANNOT, NOT_MEASURED)}


def pages(facts: Facts) -> Iterator[Page]:
    """Yield the list of papers, a page for each, and the comparison with the authors' code."""
    counts = count_tables(facts.entries)
    overall = [each for each in facts.comparisons if each.place is None]
    cards = []
    for paper in dict.fromkeys((*counts, *(finding.claim.paper for finding in facts.findings))):
        own = [(entry, address) for entry, address in facts.figures if entry.figure.paper == paper]
        findings = [each for each in facts.findings if each.claim.paper == paper]
        card: dict[str, Any] = {
            "paper": paper,
            "address": f"papers/{slug(paper)}",
            "findings": sorted(findings, key=lambda each: CLAIMS.index(each.word)),
            "claims": Counter(each.word for each in findings),
            "levels": Counter(entry.answer[0] for entry, _ in own),
            "code": [each for each in overall if CODES[each.code].title == paper and not each.deviations],
        }
        cards.append(card)
        values = {
            **card,
            **WORDS,
            "tables": [(table_address(paper, each.table), each) for each in counts.get(paper, [])],
            "causes": _by_cause(own),
            "test": contrast_in_words,
            "scores_of": lambda claim: sentence_list(
                [*dict.fromkeys(heading_of(name) for each in claim.contrasts for name in each.metric)]
            ),
        }
        yield Page(card["address"], paper, "paper.html", values)
    yield Page("papers", "Papers", "papers.html", {"cards": cards, **WORDS, "total": facts.headline.claims})
    places = [each for each in facts.comparisons if each.place is not None]
    ran = [code for code in CODES.values() if any(each.code == code.name for each in overall)]
    values = {"overall": overall, "places": places, "codes": ran, "by_name": CODES}
    yield Page("codes", "The authors' own code on our clients", "codes.html", values)


def _by_cause(own: Sequence[tuple[Entry, str]]) -> dict[str, list[tuple[str, str, str]]]:
    """Return cause → its differing figures: title, address, difference."""
    found: dict[str, list[tuple[str, str, str]]] = {}
    for entry, address in own:
        if entry.level.word == DIFFERS:
            found.setdefault(entry.cause, []).append((figure_title(entry), address, entry.level.shown))
    return found
