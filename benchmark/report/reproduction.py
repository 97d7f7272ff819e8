"""`reproduction.md`, which counts the verdicts by table and lists what differs, and `reproduction.json`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from fedsub.benchmark.analysis.agreement import (
    AGREES,
    CANNOT,
    DIFFERS,
    FACTOR,
    JUDGED,
    LEVEL,
    NOT_MEASURED,
    ONE_DRAW,
    POINTS,
    SHARE,
    UNDECIDED,
    Verdict,
)
from fedsub.benchmark.analysis.codes import CODES
from fedsub.benchmark.analysis.figures import Entry
from fedsub.benchmark.analysis.metrics import heading_of, with_spread
from fedsub.benchmark.analysis.public_records import Run
from fedsub.benchmark.report.leaderboard import CHOSEN
from fedsub.benchmark.report.tables import markdown_table
from fedsub.benchmark.report.writing import write_page

HEAD = (
    "table", "printed", "measurable", "measured", "agree", "differ", "undecided", "more seeds decide",
    "gains judged", "agree", "differ", "undecided", "hours",
)  # fmt: skip
_JUDGED = ("seeds", "difference", f"{LEVEL:.0%} interval")
"""Columns of what differs that levels and gains share."""
RULE = (
    f"A figure **agrees** where the {LEVEL:.0%} Welch interval of measured − printed lies inside ± δ, "
    "**differs** where the interval leaves out 0 and the difference exceeds δ, and is **undecided** "
    "otherwise: an interval as wide as noise makes it cannot agree. δ was fixed before anything was "
    f"measured: {POINTS:g} points for accuracies, areas under the curve and gains, {SHARE:.0%} of the "
    f"printed figure for bytes, sizes and the rest, a factor of {FACTOR:g} for seconds, which are "
    "compared as ratios to a reference of the same table. Where a paper prints no spread, ours stands "
    "in for it. Where it drew its clients once, its mean carries what that draw is off, and our spread "
    "between draws is added once: what that leaves open is called one draw in print; there the public code "
    "on the same clients decides, where it has been run ([authors.md](authors.md)). A **gain** is what "
    "a method has over the table's baseline (both named in the protocol), paired by seed and judged "
    "alike. Three seeds come first; then as many are added, up to ten, as would decide, and all ten where "
    "the difference lies too near δ. Seeds that stop where they decide favour decisions: of figures that are "
    "off by δ itself, two to three times as many come out as agreeing as by ten seeds fixed before "
    "(`tests/benchmark/test_verdict.py`). Rows that are one run, as of FedAvg and a FedProx that does no "
    "more, may have different numbers of seeds, each as many as its own figure asked for. A figure that a "
    "paper prints in several tables counts in each."
)


def markdown(entries: Sequence[Entry], runs: Mapping[str, Sequence[Run]]) -> str:
    """The page: a line per table, then what differs, and what is not measured. `runs` are those of the
    authors' code, by the work of our cell."""
    once = [entry for entry in entries if entry.level.reason.endswith(ONE_DRAW)]
    gains = [entry for entry in entries if entry.gain and entry.gain.reason.endswith(ONE_DRAW)]
    answered = sum(entry.authors(runs) is not None for entry in once)
    able = sum(_is_in_public_code(entry) and entry.authors(runs) is None for entry in once)
    tables = [(table, [*group]) for table, group in groupby(sorted(entries, key=_table), key=_table)]
    lines = [[table, *_counts(group)] for table, group in tables]
    parts = [
        "# What the papers print, and what is measured here",
        RULE,
        f"One draw in print leaves {len(once)} levels and {len(gains)} gains open; on the clients of "
        f"{answered} of these levels the public code was run; it has method and graph of {able} more. "
        f"{_if_draws_cancelled(gains)}",
        markdown_table(HEAD, [*lines, ["all", *_counts(entries)]]),
        "More seeds decide: those of the undecided which some number of seeds would decide if difference "
        "and spreads stay what they are. Hours are those of the records, one thread each; a record that "
        "answers several tables counts in each. Every figure with its interval, its records and the command "
        "that runs them: [reproduction.json](reproduction.json). What the papers say in words: "
        f"[claims.md](claims.md). {CHOSEN} marks a figure with a setting that was chosen on its table.",
        "## Levels that differ",
        "Seconds are compared as ratios to a reference of the same table: in brackets, and so is their "
        "difference. The authors' code is their public code on the same clients. Where no cause was found, "
        "what was run in the figure's place with other settings or options stands with its mean and how far "
        "it is from the row on the same seeds; for a gain, with the gain over the baseline under the same "
        "settings.",
        _levels(entries, runs),
        "## Gains that differ",
        _gains(entries),
        "## Undecided, and why more seeds alone would not do, or were not run",
        _left_open(entries),
        "## Not measured",
        "What a seed takes is what the campaign (`--campaign`) reckons by other records: of one core, of all "
        "the cells that the figure needs and that are not on record.",
        _missing(entries),
        "## Cannot be measured here",
        _not_measurable(entries),
    ]
    return "\n\n".join(parts) + "\n"


def _is_in_public_code(entry: Entry) -> bool:
    return any(code.has(entry.protocol, entry.point) for code in CODES.values())


def _if_draws_cancelled(gains: Sequence[Entry]) -> str:
    """What the gains that one draw in print leaves open would be, were that draw no part of them."""
    found = Counter(entry.gain_of_draws.word for entry in gains if entry.gain_of_draws is not None)
    return (
        "What a draw does to all methods alike cancels in a gain; what it does to one of them and not to the "
        "baseline does not, so that a gain too has the spread between draws added once. Without that "
        f"{found[AGREES]} of these gains would agree, {found[DIFFERS]} differ, {found[UNDECIDED]} stay open."
    )


def _table(entry: Entry) -> str:
    return entry.table


def _counts(entries: Sequence[Entry]) -> list[str]:
    levels = Counter(entry.level.word for entry in entries)
    gains = Counter(entry.gain.word for entry in entries if entry.gain is not None)
    measured = sum(levels[word] for word in JUDGED)
    open_ = sum(entry.level.word == UNDECIDED and entry.level.seeds is not None for entry in entries)
    numbers = [len(entries), len(entries) - levels[CANNOT], measured]
    numbers += [levels[AGREES], levels[DIFFERS], levels[UNDECIDED], open_]
    numbers += [sum(gains[word] for word in JUDGED)]
    numbers += [gains[AGREES], gains[DIFFERS], gains[UNDECIDED]]
    records = {record.stored_key: record for entry in entries if entry.row for record in entry.row.records}
    hours = sum(sum(record.seconds.values()) for record in records.values()) / 3600
    return [*map(str, numbers), f"{hours:.2f}"]


def _levels(entries: Iterable[Entry], runs: Mapping[str, Sequence[Run]]) -> str:
    lines = []
    for entry in entries:
        if entry.level.word != DIFFERS or entry.row is None:
            continue
        score, theirs = entry.row.scores[entry.metric], entry.authors(runs)
        ratios = [f" (×{value:.2f})" if entry.level.is_ratio else "" for value in entry.level.compared or ()]
        shown = with_spread(score.mean, score.std), with_spread(entry.figure.mean, entry.figure.std)
        measured, printed = map("".join, zip(shown, ratios, strict=True))
        beside = "–"
        if theirs is not None:
            beside = f"{with_spread(theirs['mean'], theirs['std'])} ({theirs['seeds']})"
        seeds = len(score.by_seed)
        lines.append([_name(entry), printed, measured, *_judged(seeds, entry.level), beside, entry.cause])
    head = ["figure", "printed", "measured", *_JUDGED, "authors' code (draws)", "cause"]
    return markdown_table(head, lines) if lines else "None."


def _gains(entries: Iterable[Entry]) -> str:
    lines = []
    for entry in entries:
        gain = entry.gain
        if gain is None or gain.word != DIFFERS or gain.compared is None:
            continue
        measured, printed = (f"{value:+.2f}" for value in gain.compared)
        over = f"{_name(entry)} over {entry.figure.baseline}"
        lines.append([over, printed, measured, *_judged(gain.count, gain), entry.gain_cause])
    return markdown_table(["gain", "printed", "measured", *_JUDGED, "cause"], lines) if lines else "None."


def _judged(seeds: int, verdict: Verdict) -> tuple[str, str, str]:
    return str(seeds), verdict.shown, verdict.shown_interval


def _name(entry: Entry) -> str:
    *place, _ = entry.figure.place
    name = " · ".join(filter(None, [*place, heading_of(entry.metric)]))
    return f"{name} {CHOSEN}" if entry.chosen else name


def _missing(entries: Iterable[Entry]) -> str:
    """Table, graph and clients, and the reason → methods whose figure has no record."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for entry in entries:
        if entry.level.word == NOT_MEASURED:
            _, _, *where, method, backbone, _ = entry.figure.place
            name = " ".join(filter(None, [method, backbone]))
            place = " · ".join(filter(None, where))
            found.setdefault((entry.table, place, entry.level.reason), []).append(name)
    lines = [
        [table, where, str(len(methods)), ", ".join(dict.fromkeys(methods)), reason]
        for (table, where, reason), methods in found.items()
    ]
    return markdown_table(["table", "place", "figures", "methods", "reason"], lines) if lines else "None."


def _left_open(entries: Sequence[Entry]) -> str:
    levels = _reasons((entry.table, entry.level) for entry in entries)
    gains = _reasons((entry.table, entry.gain) for entry in entries if entry.gain is not None)
    lines = [
        [table, str(levels[table, reason]), str(gains[table, reason]), reason]
        for table, reason in sorted(levels | gains)
    ]
    return markdown_table(["table", "levels", "gains", "reason"], lines) if lines else "None."


def _not_measurable(entries: Sequence[Entry]) -> str:
    reasons = _reasons(((entry.table, entry.level) for entry in entries), CANNOT)
    lines = [[table, str(count), reason] for (table, reason), count in sorted(reasons.items())]
    return markdown_table(["table", "figures", "reason"], lines) if lines else "None."


def _reasons(verdicts: Iterable[tuple[str, Verdict]], word: str = UNDECIDED) -> Counter[tuple[str, str]]:
    """How often a table's verdicts of that word have each reason."""
    return Counter((table, each.reason) for table, each in verdicts if each.word == word and each.reason)


def write_reproduction(
    results: Path, entries: Sequence[Entry], runs: Mapping[str, Sequence[Run]]
) -> list[Path]:
    """Write `reproduction.json` and `reproduction.md` into the results folder; returns their paths. `runs`
    are those of the authors' code, by the work of our cell."""
    listed = ",\n".join(json.dumps(entry.to_dict(runs), ensure_ascii=False) for entry in entries)
    data, page = results / "reproduction.json", results / "reproduction.md"
    write_page(data, f"[\n{listed}\n]\n".encode())
    write_page(page, markdown(entries, runs).encode())
    return [data, page]
