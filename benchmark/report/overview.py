"""`results/README.md`: the findings on one screen, each with the page that holds its evidence."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedsub.benchmark.analysis.agreement import DIFFERS, MATCHES, NEEDS_RUNS, UNSETTLED
from fedsub.benchmark.analysis.headline import EVERY, Headline
from fedsub.benchmark.analysis.paired import FAILS, HOLDS
from fedsub.benchmark.report.wording import sentence_list, title_of
from fedsub.benchmark.report.writing import write_page

ARENA_PAGE = "| [arena.md](arena.md) | how methods rank when all are tuned alike |"
PAGES = """| page | answers |
|---|---|
{arena}| [reproduction.md](reproduction.md) | which printed figures match, by table, and why others differ |
| [claims.md](claims.md) | which claims of the papers hold |
| [authors.md](authors.md) | how near our runs are to the authors' own code |
| [performance.md](performance.md) | how fast the suite is |
| [leaderboards](leaderboards) | every table |

`fedsub report --open` builds and opens the site: leaderboards, each figure with its answer, methods, graphs \
and costs. Every figure is in [reproduction.json](reproduction.json)."""


def findings(found: Headline, arena: Mapping[str, Any] | None) -> list[str]:
    """Up to four sentences with the numbers that come first; what records do not give is left out."""
    said = []
    # Ranks of a small arena are no finding of their own: they stand beside what all graphs say.
    if arena and not arena["smaller"]:
        first = arena["ranking"][0]
        said.append(
            f"**All tuned alike.** {title_of(first['method'])} has the best mean rank over "
            "{} graphs: {:.2f} [{:.2f}, {:.2f}]".format(arena["graphs"], *first["rank"])
            + f" of {len(arena['ranking'])} methods ([arena.md](arena.md))."
        )
    elif found.above:
        best, (above, of) = next(iter(found.above.items()))
        said.append(
            f"**Who beats training alone.** {title_of(best)} is surely above Local on {above} of {of} pairs "
            f"of graph and partition. That is the most of {len(found.above)} methods and variants. They are "
            f"not tuned alike ([{EVERY}](leaderboards/{EVERY}.md))."
        )
        if arena:
            first = arena["ranking"][0]
            mean, low, high = first["rank"]
            interval = "" if low is None else f" [{low:.2f}, {high:.2f}]"
            said[-1] += (
                f" Tuned alike so far: {len(arena['ranking'])} methods on {arena['graphs']} graphs, "
                f"{title_of(first['method'])} with the best mean rank, {mean:.2f}{interval} "
                "([arena.md](arena.md))."
            )
    if found.authors is not None:
        ours, theirs = found.authors.means
        verdict = found.authors.verdict
        said.append(
            f"**Our runs and the authors' own code.** {title_of(found.authors.method)} has {ours:.2f} here "
            f"and {theirs:.2f} by its authors' code on the same clients, over {verdict.count} draws. It "
            f"{verdict.word} ([authors.md](authors.md))."
        )
    claims, levels = found.claims, found.levels
    said.append(
        f"**Claims and figures.** Of {claims.total()} claims of the papers {claims[HOLDS]} hold, "
        f"{claims[FAILS]} fail and {claims[NEEDS_RUNS]} need more runs ([claims.md](claims.md)). Of "
        f"{levels.total():,} printed figures {levels[MATCHES]} match, {levels[DIFFERS]} differ, "
        f"{levels[NEEDS_RUNS]} need more runs and {levels[UNSETTLED]} cannot be settled from print "
        "([reproduction.md](reproduction.md)). Where the authors' code ran on our clients and decides, its "
        "verdict counts."
    )
    if found.costs:
        named = [f"{each.megabytes:,.0f} MB with {title_of(each.row.method)}" for each in found.costs]
        said.append(
            f"**What a method costs.** On Cora with 10 METIS clients a client sends and receives "
            f"{sentence_list(named)} in one run ([{EVERY}](leaderboards/{EVERY}.md))."
        )
    return said


def write_overview(results: Path, found: Headline, arena: Mapping[str, Any] | None) -> Path:
    """Write `README.md` into the results folder; returns its path."""
    listed = "\n".join(f"- {each}" for each in findings(found, arena))
    path = results / "README.md"
    pages = PAGES.replace("{arena}", f"{ARENA_PAGE}\n" if arena else "")
    write_page(path, f"# What was found\n\n{listed}\n\n{pages}\n".encode())
    return path
