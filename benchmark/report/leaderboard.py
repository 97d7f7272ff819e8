"""Leaderboards of a protocol: measured and printed figures, footnotes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from fedsub.benchmark.analysis.agreement import (
    MATCHES,
    VERDICTS,
    Verdict,
)
from fedsub.benchmark.analysis.judged import gain_of, level_of
from fedsub.benchmark.analysis.metrics import heading_of, with_spread
from fedsub.benchmark.analysis.published import answerable, grid_points
from fedsub.benchmark.analysis.scores import Leaderboard, Row, Score, metrics_of
from fedsub.benchmark.records.record import OK
from fedsub.benchmark.report.wording import (
    block_title,
    escape,
    graph_title,
    network_title,
    sentence_list,
    title_of,
)
from fedsub.benchmark.spec.plan import outdated_parts
from fedsub.benchmark.spec.protocol import Protocol

PRIVACY = "†"
"""Mark of a method that breaks privacy."""
CHOSEN = "‡"
"""Mark of a method with settings chosen on the table itself."""
NONE_PUBLISHED = "No published figure answers these cells."
COSTS = ("s/round", "s total", "MB up/round", "MB down/round", "MB once", "seeds")
"""The last columns of every table."""
GAINS = "gain of printed"


def remarks(leaderboard: Leaderboard) -> list[str]:
    """Footnotes, counts of verdicts and of failures."""
    protocol, rows = leaderboard.protocol, leaderboard.rows
    said = ["No finished cell yet."]
    if rows:
        notes = [escape(note) for note in footnotes(rows, _without_links)]
        said = [*notes, verdicts_in_words(protocol, rows)]
    failures = sum(record.status != OK and not outdated_parts(record.cell) for record in leaderboard.records)
    if failures:
        said.append(f"Failed cells: {failures} (their records in `runs/` say why).")
    return said


def table_of(protocol: Protocol, rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Heading and cells of a block's table, as text."""
    several = len({row.backbone for row in rows}) > 1
    columns = [["method", *(row_name(row, several) for row in rows)]]
    compared = [
        metric
        for metric in metrics_of(protocol, rows)
        if any(metric in row.scores and row.scores[metric].published is not None for row in rows)
    ]
    for metric in metrics_of(protocol, rows):
        scores = [row.scores.get(metric) for row in rows]
        columns.append([heading_of(metric), *map(_measured, scores)])
        # Where several scores are in print, a heading says of which it is.
        of = f", {heading_of(metric)}" if len(compared) > 1 else ""
        if metric in compared:
            columns.append([f"published{of}", *map(_published, scores)])
            levels = [_level(protocol, row, metric) for row in rows]
            gains = [_gain(protocol, row, rows, metric) for row in rows]
            columns.append([f"difference{of}", *map(_verdict, levels)])
            if any(gain is not None for gain in gains):
                columns.append([f"{GAINS}{of}", *map(_gained, gains, scores)])
    head, *cells = (list(line) for line in zip(*columns, strict=True))
    return [*head, *COSTS], [[*line, *_costs(row)] for line, row in zip(cells, rows, strict=True)]


def row_name(row: Row, several_backbones: bool, whole: bool = True) -> str:
    """A row's name with its marks and deviating settings; unless `whole` without what holds for one block
    alone: that settings were chosen, and how many of its runs did nothing beyond FedAvg."""
    # Two states of one's own method or graph have the same name: the digest of their files tells them apart.
    files = f"files {row.cell.files[:8]}" if row.cell.files else ""
    marks = [mark for mark, holds in ((PRIVACY, row.privacy), (CHOSEN, whole and row.chosen)) if holds]
    network = network_title(row.backbone) if several_backbones else ""
    parts = (network, row.deviations, files, _idle(row) if whole else "")
    return " · ".join(filter(None, (" ".join((title_of(row.method), *marks)), *parts)))


def _idle(row: Row) -> str:
    runs = len(row.records)
    return f"did nothing beyond FedAvg in {row.same_as_fedavg} of {runs} runs" if row.same_as_fedavg else ""


def _costs(row: Row) -> list[str]:
    megabytes = [f"{row.mean('bytes', kind) / 1e6:.3f}" for kind in ("up", "down", "once")]
    return [f"{row.seconds_per_round:.4f}", f"{row.seconds:.1f}", *megabytes, str(len(row.records))]


def _measured(score: Score | None) -> str:
    return "–" if score is None else with_spread(score.mean, score.std)


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
