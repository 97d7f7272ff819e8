"""`arena.md` and `arena.json`: every method with the same budget."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from fedsub.benchmark.analysis.arena import Arena, Row
from fedsub.benchmark.analysis.ranking import FEDAVG, LEAST_COVERAGE, LEVEL, LOCAL, Interval
from fedsub.benchmark.analysis.standing import models_only
from fedsub.benchmark.analysis.trials import text
from fedsub.benchmark.execution.tuning import CAP
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.records.record import json_ready
from fedsub.benchmark.records.search import FINAL_SEEDS, RUNG, Search, block_of
from fedsub.benchmark.report.leaderboard import PRIVACY
from fedsub.benchmark.report.tables import escape, markdown_table
from fedsub.benchmark.report.wording import block_title, sentence_list, title_of
from fedsub.benchmark.report.writing import write_page
from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.plan import make_plan
from fedsub.benchmark.spec.protocol import ARENA, load_protocol
from fedsub.benchmark.spec.request import Request
from fedsub.benchmark.spec.space import TRIALS
from fedsub.methods.core import registry

ARENA_JSON = "arena.json"
FEW = 6
"""Missing blocks or methods that are named; of more there is the number."""

HEAD = (
    "method",
    "mean rank",
    "place without one graph",
    "gain over Local",
    "P(above Local)",
    "P(above FedAvg)",
    "wins",
    "default → tuned",
    "rank by default",
    "MB/client",
    "s/client",
    "leaves",
    "marks",
)
ABOUT = (
    "Mean rank over graphs, 1 is best; the blocks of one graph (its partitions) count as one. In brackets: "
    f"{LEVEL:.0%} intervals of a paired bootstrap over graphs and draws that repeats the selection among "
    "trials. P is the probability of improvement (Agarwal et al. 2021) over the tuned rival. Wins are graphs "
    "on which no method ranks better. Default → tuned is the gain of tuning in points. MB and core-seconds "
    "are of one run, for one client; seconds are of the stacked simulation. Of what leaves a client: models "
    "only, or statistics of nodes too. Marks: draws with Local's score, "
    "because the run failed or is missing, and trials that did not fit into the cap, over all blocks. Below "
    f"{LEAST_COVERAGE:.0%} of its draws a method has no rank."
)


def write_arena(
    request: Request,
    searches: Sequence[Search] = (),
    asked: Sequence[str] = (),
    trials: int = TRIALS,
    cap: float = CAP,
) -> list[Path]:
    """Write both pages of all blocks and methods that have records; returns their paths.

    `searches` and the methods `asked` are beside those of the arena's table. Writes nothing where no block is
    finished, and where none was asked for and the page has methods that are not built in.
    """
    results, before = request.results, arena_of(request.results)
    own = {each["method"].partition("[")[0] for each in before.get("entries", ())} if before else set()
    if not searches and not own <= {*registry.names()}:
        return []
    records = Records(results)
    request = replace(request, table=(str(ARENA),), partition=(), seeds=(0,))
    grid = load_protocol(str(ARENA)).grid
    datasets = tuple(dict.fromkeys((*grid["dataset"], *request.dataset)))
    methods = tuple(dict.fromkeys((*grid["method"], *asked)))
    whole = make_plan(replace(request, dataset=datasets, method=methods)).cells
    begun = [cell for cell in whole if records.runs(Search.asked(request, cell, 1).short(0))]
    stored = [Search.asked(request, cell, trials) for cell in begun]
    shown = {search.base.key: search for search in (*stored, *searches)}
    try:
        arena = Arena(shown.values(), records)
    except ValueError:
        return []
    smaller = _missing(arena, whole)
    if (trials, cap) != (TRIALS, CAP):
        smaller.append(f"{trials} trials within {cap:g} times FedAvg's seconds, not {TRIALS} within {CAP:g}")
    smaller += request.settings
    found = to_dict(arena, trials, cap, smaller) | {"gains": gains(results, arena)}
    written = {
        results / "arena.md": markdown(arena, trials, cap, smaller, found["gains"]),
        results / ARENA_JSON: json.dumps(found, indent=1) + "\n",
    }
    for path, content in written.items():
        write_page(path, content.encode())
    return [*written]


def arena_of(results: Path) -> dict[str, Any] | None:
    """What `to_dict` wrote; None without."""
    path = results / ARENA_JSON
    found: dict[str, Any] | None = json.loads(path.read_text("utf-8")) if path.is_file() else None
    return found


def gains(results: Path, arena: Arena) -> list[dict[str, Any]]:
    """For each method that a paper here introduces and its paper's rival: the gain as printed and as measured
    under the paper's protocol, means over the figures of both (`reproduction.json`), and when all are tuned,
    None where that was not measured."""
    path, found = results / "reproduction.json", defaultdict(list)
    for row in json.loads(path.read_text("utf-8")) if path.is_file() else ():
        # What has no value is left out there.
        gain, own = row.get("gain", {}), row["method"].partition(" (")[0] == row["paper"]
        if own and {"printed", "measured"} <= gain.keys() and not gain.get("is_ratio"):
            found[row["paper"], gain["over"]].append((gain["printed"], gain["measured"]))
    tuned = {title_of(row.rank.method): row.rank.gain.value for row in (*arena.rows, *arena.others)}
    return [
        {
            "method": paper,
            "over": title_of(rival),
            "printed": fmean(printed for printed, _ in both),
            "reproduced": fmean(measured for _, measured in both),
            "tuned": tuned[paper] - tuned[title_of(rival)] if {paper, title_of(rival)} <= {*tuned} else None,
        }
        for (paper, rival), both in found.items()
        if rival in registry.names() and title_of(rival) != paper
    ]


def _missing(arena: Arena, whole: Sequence[Cell]) -> list[str]:
    """The blocks and methods that the whole arena has beside these, in words."""
    blocks, methods = dict.fromkeys(map(block_of, whole)), dict.fromkeys(cell.method for cell in whole)
    run = {name.partition("[")[0] for name in arena.methods}
    no_block = [f"{block[0]} {block[1]}" for block in blocks if block not in arena.blocks]
    no_method = [name for name in methods if name not in run]
    return [
        f"{len(every) - len(lacking)} of {len(every)} {noun}"
        + (f"; without {sentence_list(lacking)}" if len(lacking) <= FEW else "")
        for noun, every, lacking in (("blocks", blocks, no_block), ("methods", methods, no_method))
        if lacking
    ]


def markdown(
    arena: Arena, trials: int, cap: float, smaller: Sequence[str], gained: Sequence[dict[str, Any]] = ()
) -> str:
    """The page; the same input gives the same bytes."""
    graphs = sorted({*arena.graphs})
    budget = f"at most {cap:g} times the core-seconds of FedAvg's defaults there" if cap else "no cap on time"
    setup = (
        f"Methods: {len(arena.methods)}. Blocks (a graph with its clients): {len(arena.blocks)}. Graphs: "
        f"{sentence_list(graphs)}. On each block every method has {trials} trials, {budget}: its "
        f"defaults, then the same points of a Sobol sequence. A trial runs 1/{RUNG} of the rounds on one "
        f"draw of the data. The best 1/{RUNG} go on to all rounds on two draws, and validation chooses. The "
        f"table is of {len(FINAL_SEEDS)} fresh draws. `fedsub list METHOD` prints the space."
    )
    parts = ["# The arena: every method with the same budget"]
    if smaller:
        missing = "\n".join(f"- {escape(each)}" for each in smaller)
        parts.append(f"**A small arena.** It is less than the whole one:\n\n{missing}")
    parts += [setup, markdown_table(HEAD, map(_line, arena.rows)), ABOUT, _tests(arena)]
    if arena.others:
        parts += [
            f"## Methods that break privacy ({PRIVACY})",
            "Somebody sees edges or features of others. Ranks are among all methods.",
            markdown_table(HEAD, map(_line, arena.others)),
        ]
    if arena.unranked:
        named = [f"{name} ({share:.0%} of its draws)" for name, share in arena.unranked.items()]
        parts.append(f"Without a rank: {escape(sentence_list(named))}.")
    if gained:
        names = ("printed", "reproduced", "tuned")
        lines = [
            [
                each["method"],
                each["over"],
                *("–" if each[name] is None else f"{each[name]:+.2f}" for name in names),
            ]
            for each in gained
        ]
        parts += [
            "## A paper's gain, in points",
            "As printed, as measured under the paper's protocol, and when all are tuned alike. The first two "
            "are means over the same figures, the last over the graphs here.",
            markdown_table(("method", "over", "printed", "paper's protocol", "all tuned"), lines),
        ]
    parts += ["## Blocks", _blocks(arena), "Settings found, all scores: [arena.json](arena.json)."]
    return "\n\n".join(parts) + "\n"


def to_dict(arena: Arena, trials: int, cap: float, smaller: Sequence[str]) -> dict[str, Any]:
    """The same as data, with every score and every setting found."""
    found = {
        "smaller": [*smaller],
        "trials": trials,
        "cap": cap,
        "graphs": len(arena.ranking.graphs),
        "friedman_p": arena.ranking.friedman,
        "critical_difference": arena.ranking.critical_difference,
        "kendall_default_tuned": arena.correlation,
        "ranking": [
            {**vars(row.rank), **vars(row), "rank": row.rank.rank} for row in (*arena.rows, *arena.others)
        ],
        "unranked": arena.unranked,
        "entries": [
            {
                **entry.outcome.place,
                "chosen": entry.outcome.best["method"],
                "settings": {
                    name: text(value) for name, value in entry.outcome.best.items() if name != "method"
                },
                "method": entry.method,
                "tuned": [record and record.score for record in entry.tuned],
                "default": [record and record.score for record in entry.default],
                "trials_left_out": entry.outcome.left_out,
                "search_seconds": round(entry.standing.seconds, 1),
            }
            for entry in arena.entries.values()
        ],
    }
    ready: dict[str, Any] = json_ready(found)
    return ready


def _line(row: Row) -> list[str]:
    rank = row.rank
    best, worst = rank.places
    marks = {"as Local": rank.as_local, "trials left out": row.left_out}
    return [
        f"{rank.method} {PRIVACY}" if row.privacy else rank.method,
        _shown(rank.rank, ".2f"),
        str(best) if best == worst else f"{best}–{worst}",
        _shown(None if rank.method == LOCAL else rank.gain, "+.2f"),
        _shown(None if rank.method == LOCAL else rank.over_local, ".2f"),
        _shown(None if rank.method == FEDAVG else rank.over_fedavg, ".2f"),
        str(rank.wins),
        f"{row.tuning:+.2f}",
        "–" if row.default_rank is None else f"{row.default_rank:.2f}",
        f"{row.megabytes:.1f}",
        f"{row.seconds:.2f}",
        _leaves(rank.method.partition("[")[0]),
        ", ".join(f"{count} {what}" for what, count in marks.items() if count),
    ]


def _leaves(method: str) -> str:
    if method not in registry.names():
        return "–"
    return "models" if models_only(registry.describe(method).exchanges) else "statistics"


def _shown(each: Interval | None, form: str) -> str:
    if each is None:
        return "–"
    return f"{each.value:{form}}" + (
        f" [{each.low:{form}}, {each.high:{form}}]" if each.low is not None else ""
    )


def _tests(arena: Arena) -> str:
    """What tells methods apart, the fronts, and how tuning changes the order."""
    ranking = arena.ranking
    best, *others = (row.rank.method for row in arena.rows)
    said = []
    if ranking.friedman is None:
        said.append(
            "Fewer than two graphs, or no difference: no rank has an interval, nothing is told apart."
        )
    else:
        apart = [name for name in others if ranking.separated(best, name)]
        said.append(
            f"Friedman's test: p = {ranking.friedman:.2g}. Mean ranks farther apart than Nemenyi's "
            f"{ranking.critical_difference:.2f} differ, at {1 - LEVEL:.0%} for all pairs together. So far "
            f"below {best}: {sentence_list(apart) or 'no method'}."
        )
    by_bytes, by_seconds = arena.fronts()
    said.append(
        f"Gain over Local against bytes: no method beats {sentence_list(by_bytes)} in both. Against seconds: "
        f"{sentence_list(by_seconds)}."
    )
    if arena.correlation is not None:
        said.append(
            f"Ranks by default and as tuned have a correlation (Kendall's τ) of {arena.correlation:.2f}."
        )
    if shares := [f"{name} {share:.0%}" for name, share in arena.importance.items()]:
        said.append(f"What the settings explain of a trial's score, in a random forest: {', '.join(shares)}.")
    return " ".join(map(escape, said))


def _blocks(arena: Arena) -> str:
    """A line a block: Local, FedAvg and the best of the methods that keep privacy."""
    private, lines = {row.rank.method for row in arena.rows}, []
    for block in arena.blocks:
        scores = {
            method: fmean(record.score or 0.0 for record in entry.successes)
            for (method, where), entry in arena.entries.items()
            if where == block and method in private and entry.successes
        }
        best = max(scores, key=scores.__getitem__)
        shown = [f"{scores[name]:.2f}" if name in scores else "–" for name in (LOCAL, FEDAVG)]
        lines.append([block_title(block), *shown, f"{best} {scores[best]:.2f}"])
    return markdown_table(("block", "local %", "fedavg %", "best %"), lines)
