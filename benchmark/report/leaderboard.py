"""Leaderboards of a protocol: measured and printed figures, footnotes, provenance."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from fedsub.benchmark.analysis.agreement import (
    DIFFERS,
    FACTOR,
    MATCHES,
    NEEDS_RUNS,
    POINTS,
    SHARE,
    UNSETTLED,
    VERDICTS,
    Verdict,
)
from fedsub.benchmark.analysis.judged import gain_of, level_of
from fedsub.benchmark.analysis.metrics import heading_of, with_spread
from fedsub.benchmark.analysis.public_code import Comparison, on_same_clients
from fedsub.benchmark.analysis.public_records import Run
from fedsub.benchmark.analysis.published import answerable, grid_points
from fedsub.benchmark.analysis.scores import Leaderboard, Row, Score, best_of, blocks_of, metrics_of
from fedsub.benchmark.analysis.sequential import LEVEL
from fedsub.benchmark.records.record import ALONE, OK, Record
from fedsub.benchmark.report.tables import escape, markdown_table
from fedsub.benchmark.report.wording import block_title, graph_title, network_title, sentence_list, title_of
from fedsub.benchmark.spec.plan import outdated_parts
from fedsub.benchmark.spec.protocol import Protocol

PRIVACY = "†"
"""Mark of a method that breaks privacy."""
CROWDED = (
    f"In {{}} of {{}} runs the process had less than {100 * ALONE:g} % of a core: their seconds are too long."
)
CHOSEN = "‡"
"""Mark of a method with settings chosen on the table itself."""
_BEST = (
    f"Best of a block in bold ({PRIVACY} methods, deviations from the protocol, methods that in some run "
    "were no more than FedAvg, and those that left nodes exposed do not compete). ± is the sample "
    "standard deviation over seeds."
)
_VERDICTS = (
    f"Difference is measured minus published. It {MATCHES} where its {LEVEL:.0%} interval lies inside ±δ, "
    f"and {DIFFERS} where the 95% interval leaves out 0 and the difference exceeds δ. Else it {NEEDS_RUNS}, "
    f"or {UNSETTLED}, where no number of our seeds decides. δ is {POINTS:g} points for accuracies and areas, "
    f"{SHARE:.0%} of the published figure for all else, and a factor of {FACTOR:g} for seconds, which are "
    "compared as ratios to those of a reference (`reproduction.md` has the rule, and how gains are judged). "
    "A gain over the table's baseline is paired by seed, with the number of pairs in brackets where that is "
    "not the row's number of seeds."
)
_COSTS = (
    "Seconds per round are training and evaluation, total seconds include set-up; megabytes (10⁶ bytes) "
    "are summed over clients: up and down in the mean of the rounds, and once, both ways, what is exchanged "
    "outside them, such as neighbours' features, structure and the training of generators."
)
LEGEND = f"{_BEST} {_VERDICTS} {_COSTS}"
NONE_PUBLISHED = "No published figure answers these cells."
COSTS = ("s/round", "s total", "MB up/round", "MB down/round", "MB once", "seeds")
"""The last columns of every table."""
GAINS = "gain of printed"
THEIRS = "authors' code here"
THEIR_SECONDS = "authors' s/round"
ABOUT_THEIRS = (
    f"{THEIRS.capitalize()}: the public code on the clients and splits of the row's own runs, or of some of "
    "them, how many in brackets; [authors.md](../authors.md) compares the two on the same ones. Its seconds "
    "may be of a core that was shared."
)


def full_tables(
    leaderboard: Leaderboard, theirs: Mapping[str, Sequence[Run]] = MappingProxyType({}), top: str = "##"
) -> str:
    """All blocks with all columns, footnotes and provenance, as Markdown. `theirs` are
    the runs of the authors' code by the work of our cell."""
    protocol, rows = leaderboard.protocol, leaderboard.rows
    parts = []
    for block, listed in blocks_of(rows):
        parts.append(f"{top} {escape(block_title(block))}")
        parts.append(markdown_table(*table_of(protocol, listed, theirs=theirs)))
    about = [ABOUT_THEIRS] if any(THEIRS in part for part in parts) else []
    return "\n\n".join([*parts, *remarks(leaderboard), *about]) + "\n"


def remarks(leaderboard: Leaderboard, with_provenance: bool = True) -> list[str]:
    """Footnotes, counts of verdicts, and where a table's records were made."""
    protocol, rows = leaderboard.protocol, leaderboard.rows
    said = ["No finished cell yet."]
    if rows:
        notes = [escape(note) for note in footnotes(rows, _without_links)]
        said = [*notes, verdicts_in_words(protocol, rows)]
        said += [escape(provenance(rows))] if with_provenance else []
    failures = sum(record.status != OK and not outdated_parts(record.cell) for record in leaderboard.records)
    if failures:
        said.append(f"Failed cells: {failures} (see `runs/{protocol.name}.jsonl` in the results folder).")
    return said


def table_of(
    protocol: Protocol,
    rows: Sequence[Row],
    bold: str = "**",
    theirs: Mapping[str, Sequence[Run]] = MappingProxyType({}),
) -> tuple[list[str], list[list[str]]]:
    """Heading and cells of a block's table, as text; the best scores stand between `bold`."""
    several = len({row.backbone for row in rows}) > 1
    columns = [["method", *(row_name(row, several) for row in rows)]]
    seconds: dict[int, float] = {}
    compared = [
        metric
        for metric in metrics_of(protocol, rows)
        if any(metric in row.scores and row.scores[metric].published is not None for row in rows)
    ]
    for metric in metrics_of(protocol, rows):
        best = best_of(rows, metric)
        scores = [row.scores.get(metric) for row in rows]
        measured = [
            _measured(score, bold if row is best else "") for row, score in zip(rows, scores, strict=True)
        ]
        columns.append([heading_of(metric), *measured])
        # Where several scores are in print, a heading says of which it is.
        of = f", {heading_of(metric)}" if len(compared) > 1 else ""
        answers = [on_same_clients(row.records, metric, theirs) for row in rows]
        if any(answers):
            columns.append([f"{THEIRS}{of}", *map(authors_shown, answers)])
        seconds |= {place: found.seconds_per_round for place, found in enumerate(answers) if found}
        if metric in compared:
            columns.append([f"published{of}", *map(_published, scores)])
            levels = [_level(protocol, row, metric) for row in rows]
            gains = [_gain(protocol, row, rows, metric) for row in rows]
            columns.append([f"difference{of}", *map(_verdict, levels)])
            if any(gain is not None for gain in gains):
                columns.append([f"{GAINS}{of}", *map(_gained, gains, scores)])
    if seconds:
        listed = (seconds.get(place) for place in range(len(rows)))
        columns.append([THEIR_SECONDS, *("–" if each is None else f"{each:.4f}" for each in listed)])
    head, *cells = (list(line) for line in zip(*columns, strict=True))
    return [*head, *COSTS], [[*line, *_costs(row)] for line, row in zip(cells, rows, strict=True)]


def authors_shown(found: Comparison | None) -> str:
    """Mean, spread and draws of the authors' code, and whether ours agrees."""
    if found is None:
        return "–"
    scores = found.theirs
    spread = statistics.stdev(scores) if scores[1:] else None
    return f"{with_spread(statistics.fmean(scores), spread)} ({len(scores)}) {found.verdict.word}"


def row_name(row: Row, several_backbones: bool, idle: bool = True) -> str:
    """A row's name with its marks and deviating settings, and with how many of its runs did nothing beyond
    FedAvg."""
    # Two states of one's own method or graph have the same name: the digest of their files tells them apart.
    files = f"files {row.cell.files[:8]}" if row.cell.files else ""
    marks = [mark for mark, holds in ((PRIVACY, row.privacy), (CHOSEN, row.chosen)) if holds]
    network = network_title(row.backbone) if several_backbones else ""
    parts = (network, row.deviations, files, _idle(row) if idle else "")
    return " · ".join(filter(None, (" ".join((title_of(row.method), *marks)), *parts)))


def _idle(row: Row) -> str:
    runs = len(row.records)
    return f"did nothing beyond FedAvg in {row.same_as_fedavg} of {runs} runs" if row.same_as_fedavg else ""


def _costs(row: Row) -> list[str]:
    megabytes = [f"{row.mean('bytes', kind) / 1e6:.3f}" for kind in ("up", "down", "once")]
    return [f"{row.seconds_per_round:.4f}", f"{row.seconds:.1f}", *megabytes, str(len(row.records))]


def _measured(score: Score | None, bold: str) -> str:
    return "–" if score is None else f"{bold}{with_spread(score.mean, score.std)}{bold}"


def _published(score: Score | None) -> str:
    figure = None if score is None else score.published
    return "–" if figure is None else with_spread(figure.mean, figure.std)


def _level(protocol: Protocol, row: Row, metric: str) -> Verdict | None:
    figure = row.scores[metric].published if metric in row.scores else None
    return None if figure is None else level_of(protocol, row, metric, figure)


def _gain(protocol: Protocol, row: Row, rows: Iterable[Row], metric: str) -> Verdict | None:
    figure = row.scores[metric].published if metric in row.scores else None
    return None if figure is None else gain_of(protocol, row, rows, metric, figure)


def _verdict(verdict: Verdict | None) -> str:
    return "–" if verdict is None or verdict.difference is None else f"{verdict.shown} {verdict.word}"


def _gained(gain: Verdict | None, score: Score | None) -> str:
    """The gain and the word, with how many pairs of seeds were compared where `score` has another number."""
    if gain is None or score is None or not gain.shown_gain:
        return "–"
    return f"{gain.shown_gain} {gain.word}{f' ({gain.count})' * (gain.count != len(score.by_seed))}"


def _without_links(text: str) -> str:
    """The text with no link and no image in Markdown."""
    return text.replace("\\", "\\\\").replace("[", "\\[")


def footnotes(rows: Iterable[Row], quoted: Callable[[str], str] = str) -> list[str]:
    """What the marks of the rows mean, and what their datasets need said; `quoted` makes text that may come
    from an archive of anyone's harmless where the notes are shown."""
    breaking: dict[str, dict[str, None]] = {}
    choices: dict[str, dict[str, None]] = {}
    notes: dict[str, None] = {}
    for row in rows:
        if row.privacy:
            breaking.setdefault(row.privacy, {})[title_of(row.method)] = None
        for choice in row.chosen:
            choices.setdefault(choice, {})[title_of(row.method)] = None
        for note in filter(None, (_exposed(row), _epsilon(row))):
            notes[note] = None
        for record in row.records:
            if record.note:
                notes[f"Note on {graph_title(row.block[0])}: {quoted(record.note)}"] = None
    marked = [
        f"{PRIVACY} {sentence_list(list(methods))} break{'s' if len(methods) == 1 else ''} privacy: {why}."
        for why, methods in breaking.items()
    ]
    marked += [
        f"{CHOSEN} {sentence_list(list(methods))}: chosen on this table. {choice}"
        for choice, methods in choices.items()
    ]
    return [*marked, *notes]


def _epsilon(row: Row) -> str | None:
    """How private its updates are, by the least private of its runs; None without noise."""
    # A method of one's own may report anything under that name.
    found = [record.extras for record in row.records if {"epsilon", "epsilon_server"} <= record.extras.keys()]
    if not (row.cell.schedule.privacy_noise and found):
        return None
    averages, server = (max(extras[name] for extras in found) for name in ("epsilon", "epsilon_server"))
    delta = row.cell.schedule.privacy_delta
    return (
        f"{row_name(row, True)} on {block_title(row.block)}: ε = {averages:.2f} against those who see the "
        f"averaged models alone, {server:.2f} against the server, for δ = {delta:g}."
    )


def _exposed(row: Row) -> str | None:
    """The nodes that the method cannot protect."""
    fewest, most, why = row.exposed
    if not most:
        return None
    span = " to ".join(map(str, dict.fromkeys((fewest, most))))
    return f"On {block_title(row.block)}, {title_of(row.method)} leaves {span} {why}."


def verdicts_in_words(protocol: Protocol, rows: Sequence[Row]) -> str:
    """One sentence: the verdicts on the published figures measured here, and how many of those that agree
    are not by the method with the paper's own settings."""
    judged = [
        (row, metric, verdict.word)
        for row in rows
        for metric in row.scores
        if (verdict := _level(protocol, row, metric)) is not None and verdict.difference is not None
    ]
    if not judged:
        return NONE_PUBLISHED
    words = [word for *_, word in judged]
    agreeing = [row for row, _, word in judged if word == MATCHES]
    counts = {
        f"with settings chosen on this table, {CHOSEN}": sum(bool(row.chosen) for row in agreeing),
        "by runs that did nothing beyond FedAvg": sum(
            row.same_as_fedavg == len(row.records) for row in agreeing
        ),
    }
    notes = "; ".join(f"{count} {what}" for what, count in counts.items() if count)
    own = [word for row, metric, word in judged if _source(row, metric) == protocol.own_table]
    theirs = f"; {len(own)} are the table's own: {_counted(own)}" if 0 < len(own) < len(judged) else ""
    counted = f"Against print alone, of the {len(judged)} figure{'s' * (len(judged) > 1)} measured here "
    grid = {*grid_points(protocol)}
    if outside := sum(tuple(row.point.values()) not in grid for row, *_ in judged):
        theirs += f"; {outside} {'is' if outside == 1 else 'are'} of rows outside the table's grid"
    counted += f"{_counted(words, notes)}{theirs}"
    references = dict.fromkeys(heading_of(block.reference) for block in protocol.published if block.reference)
    ratios = f" Other seconds are compared as ratios to {', '.join(references)}." if references else ""
    return f"{counted}; the table's grid answers {answerable(protocol)}.{ratios}"


def _counted(words: Sequence[str], notes: str = "") -> str:
    """Counts of verdicts in words; `notes` on those that match."""
    found = [f"{words.count(word)} {word}" for word in VERDICTS]
    return ", ".join([f"{found[0]}{f' ({notes})' if notes else ''}", *found[1:]])


def _source(row: Row, metric: str) -> str:
    """The printed table that a score is compared with."""
    figure = row.scores[metric].published
    return "" if figure is None else figure.source


def provenance(rows: Sequence[Row]) -> str:
    """One line: machines, versions, commits and seeds."""
    records = [record for row in rows for record in row.records]
    machines = sorted({_machine(record) for record in records})
    versions = sorted({_versions(record) for record in records})
    commits = sorted({_short(record.commit) for record in records})
    seeds = sorted({record.cell.seed for record in records})
    line = (
        f"Made on {'; '.join(machines)}; {'; '.join(versions)}; "
        f"commit {', '.join(commits)}; seeds {', '.join(map(str, seeds))}; {len(records)} runs."
    )
    crowded = sum(
        record.result.core_share is not None and record.result.core_share < ALONE for record in records
    )
    return f"{line} {CROWDED.format(crowded, len(records))}" if crowded else line


def _machine(record: Record) -> str:
    known = record.environment
    parts = [known.get("cpu"), known.get("machine"), known.get("gpu")]
    threads = known.get("threads", "?")
    return f"{', '.join(str(part) for part in parts if part)}, {threads} thread(s) a process"


def _versions(record: Record) -> str:
    known = record.environment
    return " ".join(f"{name} {known[name]}" for name in ("python", "dgl", "torch", "numpy") if name in known)


def _short(commit: str) -> str:
    hash_, dash, rest = commit.partition("-")
    return f"{hash_[:10]}{dash}{rest}"
