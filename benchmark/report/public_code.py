"""The page `authors.md`: the authors' code on our clients, ours − theirs, paired by draw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from fedsub.benchmark.analysis.codes import CODES
from fedsub.benchmark.analysis.metrics import heading_of
from fedsub.benchmark.analysis.public_code import TOLERANCE, Comparison, compare
from fedsub.benchmark.analysis.public_records import Run, load
from fedsub.benchmark.analysis.scores import Row, make_rows
from fedsub.benchmark.analysis.sequential import LEVEL
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.report.leaderboard import block_title
from fedsub.benchmark.report.tables import escape, markdown_table
from fedsub.benchmark.report.wording import sentence_list
from fedsub.benchmark.report.writing import write_page
from fedsub.benchmark.spec.plan import grid_cells
from fedsub.benchmark.spec.protocol import load_protocol, names

HEAD = (
    "place",
    "method",
    "metric",
    "draws",
    "ours",
    "theirs",
    "ours − theirs",
    f"{LEVEL:.0%} interval",
    "verdict",
    "their s/round",
    "speed",
)
INTRODUCTION = (
    "The public code of a paper, with its own client, server and training, on the graph, clients and split "
    "of our cells (`docs/authors.md` says how, and what is replaced). Ours − theirs in points, paired by "
    f"draw of clients and split; the {LEVEL:.0%} interval is Student's over the draws. Over several places "
    "(a graph and its clients) it is that of the mean of their means: each counts the same, for those that "
    "spread most were drawn most often, and one that was drawn once is left out. It matches where the "
    f"interval lies inside ±{TOLERANCE:g}, differs where the 95% interval leaves out 0 and the difference "
    f"exceeds {TOLERANCE:g}, and needs more runs otherwise. Their seconds per round are of one thread, on a "
    "core that a run may have shared; speed is theirs over ours, over the pairs in which both had a core of "
    "their own."
)


def write_authors_page(results: Path, records: Records) -> Path | None:
    """Write the page of a results folder and the records in it; its path, or None where the authors' code has
    not been run."""
    runs = load(results)
    if not runs:
        return None
    tables = {run.protocol for found in runs.values() for run in found} & set(names())
    ours = [
        row
        for protocol in map(load_protocol, sorted(tables))
        for row in make_rows(protocol, records.of_table(protocol.name, grid_cells(protocol)))
    ]
    path = results / "authors.md"
    write_page(path, markdown(runs, ours).encode())
    return path


def markdown(runs: Mapping[str, Sequence[Run]], rows: Iterable[Row]) -> str:
    """The page; the same input gives the same bytes. `rows` are those of our leaderboards."""
    of_record = {record.key: (record, row.deviations) for row in rows for record in row.records}
    records = [record for record, _ in of_record.values()]
    comparisons = compare(runs, records, {key: changed for key, (_, changed) in of_record.items()})
    everything = [run for found in runs.values() for run in found]
    parts = ["# The authors' code on the same clients", INTRODUCTION]
    for code in CODES.values():
        own = [run for run in everything if run.code == code.name]
        if not own:
            continue
        parts.append(f"## {code.title}")
        commits = sorted({run.commit for run in own})
        pages = sentence_list(
            [f"[{name}](leaderboards/{name}.md)" for name in sorted({run.protocol for run in own})]
        )
        said = f"What is known of the differences stands in the notes of {pages}."
        made = f"{code.repository}, commit {escape(', '.join(commits))}"
        lead = f"{len(own)} runs of {made}; of one that was repeated the latest."
        waiting = _waiting(run for run in own if run.key not in of_record)
        parts.append(" ".join(filter(None, (lead, said, code.lacks, waiting))))
        found = [each for each in comparisons if each.code == code.name]
        overall = Counter((each.deviations, each.place is None) for each in found)
        # What was run at one place is not said twice.
        shown = [
            each
            for each in found
            if each.place is not None or overall[each.deviations, True] != overall[each.deviations, False]
        ]
        parts.append(markdown_table(HEAD, map(_line, shown)))
    return "\n\n".join(parts) + "\n"


def _waiting(runs: Iterable[Run]) -> str:
    """A sentence on the authors' runs without a record of ours; empty if there are none."""
    found = [
        f"{run.method} on {block_title((run.dataset, run.partition, run.clients))}, seed {run.seed}"
        for run in runs
    ]
    return escape(f"Without a record of ours on the same clients: {'; '.join(found)}.") if found else ""


def _line(comparison: Comparison) -> list[str]:
    verdict, (ours, theirs) = comparison.verdict, comparison.means
    name = f"{comparison.method} · {comparison.backbone}"
    place = "all" if comparison.place is None else block_title(comparison.place)
    return [
        f"{place}, {comparison.deviations}" if comparison.deviations else place,
        name,
        heading_of(comparison.metric),
        str(verdict.count),
        f"{ours:.2f}",
        f"{theirs:.2f}",
        verdict.shown,
        verdict.shown_interval or "–",
        verdict.word,
        f"{comparison.seconds_per_round:.2f}",
        "–" if comparison.speed is None else f"{comparison.speed:.1f}×",
    ]
