"""Write all pages that are made from a results folder's records: Markdown pages and the site."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from fedsub.benchmark.analysis.claims import load_claims
from fedsub.benchmark.analysis.figures import make_entries
from fedsub.benchmark.analysis.findings import find
from fedsub.benchmark.analysis.public_code import compare, load
from fedsub.benchmark.analysis.scores import Leaderboard
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.records.latest import verified_by
from fedsub.benchmark.report import summaries
from fedsub.benchmark.report.arena import arena_of, write_arena
from fedsub.benchmark.report.leaderboard import write_table_page
from fedsub.benchmark.report.site.build import write_site
from fedsub.benchmark.report.site.data import Facts
from fedsub.benchmark.spec.plan import grid_cells
from fedsub.benchmark.spec.protocol import load_protocol, names
from fedsub.benchmark.spec.request import Request
from fedsub.datasets.errors import UserError


def write_report(results: Path, own: Sequence[str] = ()) -> list[Path]:
    """Write every page of a results folder again; returns their paths.

    Pages: one per protocol with records; `reproduction.md` and `.json` and `claims.md` over all protocols;
    `authors.md` if the authors' code was run; `arena.md` if searches were run; the site (`site/index.html`).
    `own` are paths of protocols besides the built-in ones. Invalid lines are named on standard error.
    Raises UserError if the folder holds no records.
    """
    stored = Records(results)
    if not stored:
        raise UserError(f"{results} holds no records: run fedsub first")
    runs = load(results)
    boards = boards_of(stored, dict.fromkeys((*names(), *own)))
    entries = make_entries(boards, runs)
    # The arena reads the gains in print from the page of figures.
    pages = [*summaries.write_reproduction(results, entries), *write_arena(Request(results=results), stored)]
    arena = arena_of(results)
    named = {key for entry in (arena or {"entries": ()})["entries"] for key in entry["records"]}
    # Reading every record also finds the lines that cannot be read.
    tuned = {record.key: record for record in stored.every() if record.key in named}
    for sentence in stored.warnings():
        print(sentence, file=sys.stderr)
    paths = [*pages, *(write_table_page(results, each, runs) for each in boards if each.records)]
    findings = find(load_claims(), {each.protocol.name: each.rows for each in boards})
    paths += summaries.write_claims(results, findings)
    comparisons = compare(runs, boards)
    if runs:
        paths.append(summaries.write_authors_page(results, runs, comparisons))
    facts = Facts(boards, runs, entries, findings, comparisons, arena, tuned, verified_by(results))
    paths.append(summaries.write_overview(results, facts.headline, facts.arena))
    return [*paths, write_site(results, facts)]


def boards_of(stored: Records, tables: Iterable[str]) -> list[Leaderboard]:
    """Return the leaderboards of these tables."""
    boards = []
    for protocol in map(load_protocol, tables):
        held = tuple(filter(stored.holds, protocol.grid["dataset"]))
        cells = grid_cells(protocol, held) if held else ()
        boards.append(Leaderboard(protocol, stored.of_table(protocol.name, cells)))
    return boards
