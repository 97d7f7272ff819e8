"""The page `authors.md`: the authors' code on our clients, ours − theirs, paired by draw."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from fedsub.benchmark.analysis.codes import CODES
from fedsub.benchmark.analysis.metrics import heading_of
from fedsub.benchmark.analysis.public_code import TOLERANCE, Comparison
from fedsub.benchmark.analysis.public_records import Run
from fedsub.benchmark.analysis.sequential import LEVEL
from fedsub.benchmark.report.tables import escape, markdown_table
from fedsub.benchmark.report.wording import block_title, network_title, sentence_list, title_of
from fedsub.benchmark.report.writing import write_page

HEAD = (
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
    f"exceeds {TOLERANCE:g}, and needs more runs otherwise.\n\n"
    "A table is over all places; the leaderboards and the site have each place. Their seconds per round are "
    "of one thread, on a core that a run may have shared; speed is theirs over ours, over the pairs in which "
    "both had a core of their own."
)


def write_authors_page(
    results: Path, runs: Mapping[str, Sequence[Run]], comparisons: Sequence[Comparison]
) -> Path:
    """Write the page of a results folder; returns its path."""
    path = results / "authors.md"
    write_page(path, markdown(runs, comparisons).encode())
    return path


def markdown(runs: Mapping[str, Sequence[Run]], comparisons: Sequence[Comparison]) -> str:
    """The page; the same input gives the same bytes."""
    recorded = {pair.record.key for each in comparisons for pair in each.pairs}
    everything = [run for found in runs.values() for run in found]
    parts = ["# The authors' code on the same clients", INTRODUCTION]
    for code in CODES.values():
        own = [run for run in everything if run.code == code.name]
        if not own:
            continue
        parts.append(f"## {code.title}")
        commits = sorted({run.commit for run in own})
        pages = sentence_list(
            [f"[{name}](leaderboards/{name}.md)" for name in sorted({escape(run.protocol) for run in own})]
        )
        said = f"What is known of the differences stands in the notes of {pages}."
        made = f"{code.repository}, commit {escape(', '.join(commits))}"
        lead = f"{len(own)} runs of {made}; of one that was repeated the latest."
        waiting = _waiting(run for run in own if run.key not in recorded)
        parts.append(" ".join(filter(None, (lead, said, code.lacks, waiting))))
        overall = [each for each in comparisons if each.code == code.name and each.place is None]
        if overall:
            parts.append(markdown_table(HEAD, map(_line, overall)))
    return "\n\n".join(parts) + "\n"


def _waiting(runs: Iterable[Run]) -> str:
    """A sentence on the authors' runs without a record of ours; empty if there are none."""
    found = [
        f"{run.method} on {block_title((run.dataset, run.partition, run.clients))}, seed {run.seed}"
        for run in runs
    ]
    return escape(f"Without a record of ours on the same clients: {'; '.join(found)}.") if found else ""


def _name(comparison: Comparison) -> str:
    return f"{title_of(comparison.method)} · {network_title(comparison.backbone)}"


def _line(comparison: Comparison) -> list[str]:
    verdict, (ours, theirs) = comparison.verdict, comparison.means
    return [
        ", ".join(filter(None, (_name(comparison), comparison.deviations))),
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
