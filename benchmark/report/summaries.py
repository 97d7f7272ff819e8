"""Pages over all records: `README.md`, `reproduction.md`, `claims.md` and `authors.md`, with their data."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from fedsub.benchmark.analysis import agreement, summary
from fedsub.benchmark.analysis.agreement import CANNOT, DIFFERS, GAINS, NEEDS_RUNS, NOT_MEASURED, VERDICTS
from fedsub.benchmark.analysis.claims import ON_AVERAGE, Contrast
from fedsub.benchmark.analysis.figures import Entry
from fedsub.benchmark.analysis.findings import Finding, discoveries
from fedsub.benchmark.analysis.paired import EQUAL, FAILS, HIGHER, HOLDS
from fedsub.benchmark.analysis.public_code import CODES, TOLERANCE, Runs, WithAuthors
from fedsub.benchmark.analysis.sequential import DRAWS, LEVEL
from fedsub.benchmark.report.leaderboard import CHOSEN
from fedsub.benchmark.report.wording import block_title, ends, heading_of, markdown_table, span, title_of
from fedsub.benchmark.report.writing import write_list, write_template

CLAIMS = (HOLDS, FAILS, NEEDS_RUNS, NOT_MEASURED, CANNOT)
"""Verdicts on claims, in the order in which they are shown."""
BY_CODE = "The authors' own code gives another figure on the same clients (results/authors.md)"


def write_overview(results: Path, found: summary.Headline, arena: Mapping[str, Any] | None) -> Path:
    """Write `README.md`: the findings on one screen, without those that records do not support."""
    timed = (results / "performance.md").exists()
    shown = {"timed": timed, "every": summary.EVERY, "discovery_rate": agreement.FALSE_DISCOVERIES}
    return write_template(results, "README.md", found=found, arena=arena, **shown)


def write_reproduction(results: Path, entries: Sequence[Entry]) -> list[Path]:
    """Write `reproduction.json` and `reproduction.md`: one line per table, then differing levels and vanished
    differences to the baseline, grouped by cause."""
    counted = summary.count_tables(entries)
    tables = [(f"{paper}, {each.table}", each) for paper, counts in counted.items() for each in counts]
    whole = summary.count("all", entries)
    tolerances = []
    for points, share, *words in summary.by_tolerance(entries):
        rule = " (the rule)" if (points, share) == (agreement.POINTS, agreement.SHARE) else ""
        tolerances.append([f"{points:g} points, {share:.0%}{rule}", *map(str, words)])
    data = write_list(results / "reproduction.json", (entry.to_dict() for entry in entries))
    page = write_template(
        results,
        "reproduction.md",
        rule=agreement,
        level=LEVEL,
        chosen=CHOSEN,
        head=("table", "printed", "measurable", "measured", *VERDICTS, "differences to the baseline", *GAINS),
        lines=[[name, *_numbers(each)] for name, each in (*tables, ("all", whole))],
        tolerances=tolerances,
        discoveries=summary.discoveries(entries),
        whole=whole,
        basis=summary.basis(entries),
        near=TOLERANCE,
        authors=summary.by_authors(entries),
        differing=_grouped((entry, *_difference(entry)) for entry in entries if entry.answer[0] == DIFFERS),
        vanished=_grouped(
            (entry, entry.gain_cause, "{:+.2f}, {:+.2f}".format(*entry.gain.compared))
            for entry in entries
            if entry.gain and entry.gain.compared and entry.gain_cause
        ),
        not_measured=_reasons(entries, NOT_MEASURED),
        cannot=_reasons(entries, CANNOT),
    )
    return [data, page]


def _numbers(found: summary.Count) -> list[str]:
    chosen = {word: f" ({number} {CHOSEN})" for word, number in found.chosen.items()}
    levels = [f"{found.levels[word]}{chosen.get(word, '')}" for word in VERDICTS]
    gains = [found.gains_judged, *(found.gains[word] for word in GAINS)]
    return [*map(str, (found.printed, found.measurable, found.measured)), *levels, *map(str, gains)]


def _grouped(listed: Iterable[tuple[Entry, str, str]]) -> str:
    """Return one list item per cause: the cause, and its figures by table."""
    groups: dict[str, dict[str, list[str]]] = {}
    for entry, cause, shown in listed:
        _, _, dataset, partition, clients, method, backbone, _ = entry.figure.place
        heading = "" if entry.metric == "accuracy" else heading_of(entry.metric)
        named = (dataset, partition, clients, method, backbone, heading, CHOSEN if entry.chosen else "")
        name = f"{' '.join(filter(None, named))} ({shown})"
        groups.setdefault(cause, {}).setdefault(entry.figure.source, []).append(name)
    lines = []
    for cause, tables in groups.items():
        named_tables = (f"**{table}**: {', '.join(names)}" for table, names in tables.items())
        lines.append(f"- {cause}. {'; '.join(named_tables)}.")
    return "\n".join(lines) or "None."


def _difference(entry: Entry) -> tuple[str, str]:
    """Return cause and size of a difference from the authors' code if that decides, else from the paper."""
    if entry.authors is not None and entry.answer[1]:
        return entry.cause or BY_CODE, f"{entry.authors.verdict.shown} from the code"
    return entry.cause, entry.level.shown


def _reasons(entries: Sequence[Entry], word: str) -> str:
    """Return a table of reasons, each with its number of figures in all and by table."""
    found: dict[str, Counter[str]] = {}
    for entry in entries:
        if entry.level.word == word:
            found.setdefault(entry.level.reason or "no record", Counter())[entry.figure.source] += 1
    lines = [
        [reason, str(tables.total()), "; ".join(f"{table}: {many}" for table, many in tables.items())]
        for reason, tables in found.items()
    ]
    return markdown_table(["reason", "figures", "tables"], lines) if lines else "None."


def write_claims(results: Path, findings: Sequence[Finding]) -> list[Path]:
    """Write `claims.json` and `claims.md`: the rule, the counts, and the claims of each paper."""
    words = Counter(finding.word for finding in findings)
    papers = []
    for paper, group in groupby(findings, key=lambda finding: finding.claim.paper):
        listed = [*enumerate(group, start=1)]
        notes = [(number, found.claim.cannot or found.claim.note) for number, found in listed]
        papers.append((paper, [_line(*each) for each in listed], [each for each in notes if each[1]]))
    data = write_list(results / "claims.json", (finding.to_dict() for finding in findings))
    page = write_template(
        results,
        "claims.md",
        level=LEVEL,
        discovery_rate=agreement.FALSE_DISCOVERIES,
        findings=findings,
        counted=", ".join(f"{words[word]} {word}" for word in CLAIMS if words[word]),
        discoveries=discoveries(findings),
        papers=papers,
    )
    return [data, page]


def _line(number: int, finding: Finding) -> list[str]:
    claim, words = finding.claim, finding.words
    counted = [f"{word} in {words[word]}" for word in CLAIMS if words[word]]
    return [
        f"{number}. {claim.says}",
        claim.place,
        "; and ".join(map(contrast_in_words, claim.contrasts)),
        span(finding.printed, "+.2f"),
        span(finding.differences, "+.2f"),
        ", ".join(counted),
        span(finding.seeds),
        f"**{finding.word}**",
    ]


def contrast_in_words(contrast: Contrast) -> str:
    """Return the contrast in words."""
    margin = f"{abs(contrast.margin):g}"
    above, below = ("above", "below") if contrast.direction == HIGHER else ("below", "above")
    if contrast.direction == EQUAL:
        relation = f"within {margin} of"
    elif contrast.margin < 0:
        relation = f"no more than {margin} {below}"
    else:
        relation = f"more than {margin} {above}" if contrast.margin else above
    columns = "on average" if contrast.rule == ON_AVERAGE else "in every column"
    for axis, values in contrast.only.items():
        columns += f"; {axis} {', '.join(map(str, values))}"
    sides = ", ".join(map(_side, contrast.against))
    names = ", ".join(map(title_of, contrast.method))
    return f"{', '.join(map(heading_of, contrast.metric))}: {names} {relation} {sides}, {columns}"


def _side(change: Mapping[str, Any]) -> str:
    if "value" in change:
        return f"{change['value']:g}"
    own = title_of(str(change.get("method", "")))
    rest = ", ".join(f"{key} {value}" for key, value in change.items() if key != "method")
    return f"{own} ({rest})" if own and rest else own or f"the same with {rest}"


def write_authors_page(results: Path, runs: Runs, comparisons: Sequence[WithAuthors]) -> Path:
    """Write `authors.md`: the authors' code on our clients, ours − theirs, paired by draw."""
    recorded = {pair.record.key for each in comparisons for pair in each.pairs}
    codes = []
    for code in CODES.values():
        own = [run for found in runs.values() for run in found if run.code == code.name]
        waiting = [
            f"{run.method} on {block_title((run.dataset, run.partition, run.clients))}, seed {run.seed}"
            for run in own
            if run.key not in recorded
        ]
        overall = [each for each in comparisons if each.code == code.name and each.place is None]
        if own:
            codes.append((code, own, waiting, [_compared(each) for each in overall]))
    shown = {"level": LEVEL, "looks": DRAWS, "tolerance": TOLERANCE, "codes": codes}
    return write_template(results, "authors.md", **shown)


def _compared(comparison: WithAuthors) -> list[str]:
    verdict, (ours, theirs) = comparison.verdict, comparison.means
    name = title_of(comparison.method, comparison.backbone)
    return [
        ", ".join(filter(None, (name, comparison.deviations))),
        heading_of(comparison.metric),
        str(verdict.count),
        f"{ours:.2f}",
        f"{theirs:.2f}",
        verdict.shown,
        ends(verdict.interval) or "–",
        verdict.word,
        f"{comparison.seconds_per_round:.2f}",
        "–" if comparison.speed is None else f"{comparison.speed:.1f}×",
    ]
