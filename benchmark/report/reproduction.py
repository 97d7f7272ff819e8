"""`reproduction.md`, which counts the verdicts by table and groups what differs, and `reproduction.json`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from fedsub.benchmark.analysis.agreement import (
    CANNOT,
    DIFFERS,
    FACTOR,
    FALSE_DISCOVERIES,
    GAINS,
    KEPT,
    MATCHES,
    NEEDS_RUNS,
    NOT_MEASURED,
    NOTHING,
    OPEN,
    POINTS,
    SHARE,
    UNSETTLED,
    VANISHED,
    VERDICTS,
)
from fedsub.benchmark.analysis.figures import Entry
from fedsub.benchmark.analysis.metrics import heading_of
from fedsub.benchmark.analysis.sequential import LEVEL
from fedsub.benchmark.analysis.summary import (
    Count,
    by_authors,
    by_tolerance,
    count,
    count_tables,
    discoveries,
)
from fedsub.benchmark.report.leaderboard import CHOSEN
from fedsub.benchmark.report.tables import markdown_table
from fedsub.benchmark.report.writing import write_list, write_page

HEAD = (
    "table", "printed", "measurable", "measured", *VERDICTS, "gains", *GAINS,
)  # fmt: skip
RULE = (
    f"**{MATCHES}**: the {LEVEL:.0%} Welch interval of measured − printed lies inside ±δ. **{DIFFERS}**: the "
    f"95% interval leaves out 0, and the difference exceeds δ. **{NEEDS_RUNS}**: more seeds may decide. "
    f"**{UNSETTLED}**: no number of our seeds decides, because the paper drew its clients once, prints a "
    f"wide spread, or prints none. δ is {POINTS:g} points for accuracies and areas, {SHARE:.0%} of the "
    f"printed figure for bytes, sizes and the rest, and a factor of {FACTOR:g} for seconds, which are "
    "compared as ratios to a reference of the same table. Where a paper prints no spread, ours stands in. "
    "Where it drew its clients once, our spread between draws is added once.\n\n"
    f"A gain over the table's baseline is paired by seed. **{KEPT}**: its {LEVEL:.0%} interval lies on the "
    f"printed side of 0 and does not exclude half the printed gain. **{VANISHED}**: the interval lies within "
    f"±{NOTHING:g} point of 0, or on the other side of 0. **{OPEN}**: all else.\n\n"
    "Figures are looked at with 3, 5 and 10 seeds, and no more are run once one is decided. The intervals "
    "allow for that (`benchmark/analysis/sequential.py`): each wrong verdict has a probability of 5% at most "
    "over all looks. Where the authors' own code ran on our clients and decides, its verdict counts "
    "([authors.md](authors.md)): it needs no allowance for what a paper leaves unsaid. All counts of this "
    "page, of [README.md](README.md) and of the site follow this rule."
)
BY_CODE = "The authors' own code gives another figure on the same clients (results/authors.md)"


def markdown(entries: Sequence[Entry]) -> str:
    """The page: a line a table, then what differs and which gains vanished, grouped by cause."""
    tables = [
        (f"{paper}, {each.table}", each) for paper, counts in count_tables(entries).items() for each in counts
    ]
    lines = [[name, *_numbers(each)] for name, each in tables]
    parts = [
        "# What the papers print, and what is measured here",
        RULE,
        markdown_table(HEAD, [*lines, ["all", *_numbers(count("all", entries))]]),
        f"{CHOSEN} marks, in brackets, those with a setting that was chosen on their table. Every figure "
        "with its interval, records, cause and command: [reproduction.json](reproduction.json). What the "
        "papers say in words: [claims.md](claims.md).",
        "## How sure this is",
        *_sureness(entries),
        "## Levels that differ",
        _grouped((entry, *_difference(entry)) for entry in entries if entry.answer[0] == DIFFERS),
        "## Gains that vanished",
        "In brackets the measured gain and the printed one.",
        _grouped((entry, entry.gain_cause, _gain(entry)) for entry in entries if entry.gain_cause),
        "## Not measured",
        _reasons(entries, NOT_MEASURED),
        "## Cannot be measured here",
        _reasons(entries, CANNOT),
    ]
    return "\n\n".join(parts) + "\n"


def _numbers(found: Count) -> list[str]:
    levels = [_with_chosen(found, word) for word in VERDICTS]
    gains = [str(found.gains[word]) for word in GAINS]
    before = map(str, (found.printed, found.measurable, found.measured))
    return [*before, *levels, str(found.gains_judged), *gains]


def _with_chosen(found: Count, word: str) -> str:
    chosen = found.chosen[word]
    return f"{found.levels[word]} ({chosen} {CHOSEN})" if chosen else str(found.levels[word])


def _sureness(entries: Sequence[Entry]) -> list[str]:
    """How the counts depend on δ, multiple testing, choices, and facts not stated in print."""
    found, kept = count("all", entries), discoveries(entries)
    authors = by_authors(entries)
    lines = []
    for points, share, *words in by_tolerance(entries):
        rule = " (the rule)" if (points, share) == (POINTS, SHARE) else ""
        lines.append([f"{points:g} points, {share:.0%}{rule}", *map(str, words)])
    stay = "; ".join(f"{many} {word}, of which {left} stay" for word, (many, left) in kept.items())
    matching = found.levels[MATCHES]
    return [
        "Against print alone, by tolerance:",
        markdown_table(["δ", MATCHES, DIFFERS, "neither"], lines),
        f"With the rate of false discoveries at {FALSE_DISCOVERIES:.0%} over all levels judged against print "
        f"(Benjamini and Hochberg): {stay}.",
        f"Of {matching} levels that match, {found.chosen[MATCHES]} have a setting that was chosen on their "
        f"table ({CHOSEN}), {matching - found.chosen[MATCHES]} have none.",
        f"The authors' own code ran on the clients of {_words(authors['all'])}. Of the levels that cannot be "
        f"settled from print alone it ran on {_words(authors[UNSETTLED])}.",
    ]


def _words(counts: dict[str, int]) -> str:
    said = ", ".join(f"{counts[word]} {word}" for word in VERDICTS if counts.get(word))
    return f"{sum(counts.values())} levels{f' ({said})' if said else ''}"


def _grouped(listed: Iterable[tuple[Entry, str, str]]) -> str:
    """A paragraph for each cause: the cause, and the figures by table."""
    groups: dict[str, dict[str, list[str]]] = {}
    for entry, cause, shown in listed:
        name = f"{_place(entry)} ({shown})"
        groups.setdefault(cause, {}).setdefault(entry.table, []).append(name)
    lines = []
    for cause, tables in groups.items():
        named = (f"**{table}**: {', '.join(names)}" for table, names in tables.items())
        lines.append(f"- {cause}. {'; '.join(named)}.")
    return "\n".join(lines) or "None."


def _place(entry: Entry) -> str:
    _, _, dataset, partition, clients, method, backbone, _ = entry.figure.place
    heading = heading_of(entry.metric)
    named = [dataset, partition, clients, method, backbone, "" if entry.metric == "accuracy" else heading]
    text = " ".join(filter(None, named))
    return f"{text} {CHOSEN}" if entry.chosen else text


def _difference(entry: Entry) -> tuple[str, str]:
    """Cause and size of a difference: from the authors' code where that decides, else from print."""
    if entry.authors is not None and entry.answer[1]:
        return entry.cause or BY_CODE, f"{entry.authors.verdict.shown} from the code"
    return entry.cause, entry.level.shown


def _gain(entry: Entry) -> str:
    if entry.gain is None or entry.gain.compared is None:
        return ""
    measured, printed = entry.gain.compared
    return f"{measured:+.2f}, {printed:+.2f}"


def _reasons(entries: Sequence[Entry], word: str) -> str:
    """Reason → number of figures by table."""
    found: dict[str, dict[str, int]] = {}
    for entry in entries:
        if entry.level.word == word:
            tables = found.setdefault(entry.level.reason or "no record", {})
            tables[entry.table] = tables.get(entry.table, 0) + 1
    lines = [
        [reason, str(sum(tables.values())), "; ".join(f"{table}: {many}" for table, many in tables.items())]
        for reason, tables in found.items()
    ]
    return markdown_table(["reason", "figures", "tables"], lines) if lines else "None."


def write_reproduction(results: Path, entries: Sequence[Entry]) -> list[Path]:
    """Write `reproduction.json` and `reproduction.md` into the results folder; returns their paths."""
    data, page = results / "reproduction.json", results / "reproduction.md"
    write_list(data, (entry.to_dict() for entry in entries))
    write_page(page, markdown(entries).encode())
    return [data, page]
