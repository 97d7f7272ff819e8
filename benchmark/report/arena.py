"""Write `arena.md` and `arena.json`: every method with the same tuning budget."""

import json
import math
import sys
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedsub.benchmark.analysis.arena import Arena, block_of, by_block, gains
from fedsub.benchmark.analysis.ranking import LEAST_COVERAGE, LEVEL
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.records.search import FINAL_SEEDS, RUNG, Search
from fedsub.benchmark.report.leaderboard import PRIVACY
from fedsub.benchmark.report.wording import block_title, graph_title, sentence_list, span, title_of
from fedsub.benchmark.report.writing import write_page, write_template
from fedsub.benchmark.spec.catalog import FEDAVG, LOCAL
from fedsub.benchmark.spec.cell import Block, Cell
from fedsub.benchmark.spec.plan import make_plan
from fedsub.benchmark.spec.protocol import ARENA, load_protocol
from fedsub.benchmark.spec.request import Request
from fedsub.datasets.catalogue import REGISTRY
from fedsub.datasets.errors import UserError
from fedsub.methods.core import registry

ARENA_JSON = "arena.json"
FEW = 6
"""Largest number of missing blocks or methods that are named; of more only the number is given."""


def write_arena(
    request: Request,
    records: Records,
    searches: Sequence[Search] = (),
    asked: Sequence[str] = (),
    ran: Collection[Block] = (),
) -> list[Path]:
    """Write both pages for all blocks and methods with records in the request's folder; returns their paths.

    `searches` and the methods `asked` are added to those of the arena's table. The request's cap applies to
    the blocks that `ran`. Without searches the number of trials is the last page's. Nothing is written if no
    block is finished, or if no searches are given and the last page has methods, graphs or partitions of
    a user's own.
    """
    results, before = request.results, arena_of(request.results) or {"entries": ()}
    if not searches:
        if not {each["method"].partition("[")[0] for each in before["entries"]} <= {*registry.names()}:
            return []
        request = replace(request, trials=before.get("trials", request.trials))
    request = replace(request, table=(str(ARENA),), partition=(), seeds=(0,), shard=None)
    grid = load_protocol(str(ARENA)).grid
    datasets = tuple(dict.fromkeys((*grid["dataset"], *request.dataset)))
    methods = tuple(dict.fromkeys((*grid["method"], *asked)))
    whole = make_plan(replace(request, dataset=datasets, method=methods)).cells
    known = {each.block for each in (*whole, *(search.base for search in searches))}
    others, lost = _others(replace(request, method=methods), before, known)
    if lost and not searches:
        return []
    for block in lost:
        print(f"{ARENA_JSON} no longer has {block_title(block)}: name its file too", file=sys.stderr)
    whole += tuple(others)
    defaults = replace(request, trials=1)
    begun = [cell for cell in whole if records.runs(Search.asked(defaults, cell).short(0))]
    stored = [Search.asked(request, cell) for cell in begun]
    shown = {search.base.key: search for search in (*stored, *searches)}
    try:
        arena = Arena(shown.values(), records)
    except ValueError:
        return []
    caps = _caps(before, ran, request.cap)
    smaller = _missing(arena, whole)
    limit = _limit({caps.get(block) for block in arena.blocks})
    if (request.trials, limit) != (Request.trials, _limit({Request.cap})):
        whole_one = f"{Request.trials} within {Request.cap:g} times"
        smaller.append(f"{request.trials} trials within {limit}, not {whole_one}")
    smaller += request.settings
    figures = results / "reproduction.json"
    printed = json.loads(figures.read_text("utf-8")) if figures.is_file() else ()
    found = {"smaller": smaller, "trials": request.trials, "budget": limit, **arena.to_dict(caps)}
    found["gains"] = gains(printed, arena.rows)
    planned = {cell.method for cell in whole}
    found["not_planned"] = [title_of(name) for name in registry.names() if name not in planned]
    data = write_page(results / ARENA_JSON, (json.dumps(found, indent=1) + "\n").encode())
    return [write_arena_page(results, found), data]


def _others(
    request: Request, before: Mapping[str, Any], known: Collection[Block]
) -> tuple[list[Cell], list[Block]]:
    """Return the cells of the last page's blocks that are not `known`, and the blocks of a graph or partition
    that only its file describes."""
    cells: list[Cell] = []
    lost = []
    for block in dict.fromkeys(map(block_of, before["entries"])):
        if block in known:
            continue
        dataset, partition, clients = block
        one = replace(request, dataset=(dataset,), partition=(partition,), clients=(clients,))
        try:
            cells += make_plan(one).cells
        except UserError:
            lost.append(block)
    return cells, lost


def arena_of(results: Path) -> dict[str, Any] | None:
    """Return the content of `arena.json`; None without the file."""
    path = results / ARENA_JSON
    return json.loads(path.read_text("utf-8")) if path.is_file() else None


def write_arena_page(results: Path, found: Mapping[str, Any]) -> Path:
    """Write `arena.md` from the content of `arena.json`; returns its path."""
    ranked = [row for row in found["ranking"] if not row["privacy"]]
    blocks = by_block(found)
    graphs = {entry["dataset"] for entry in found["entries"]}
    return write_template(
        results,
        "arena.md",
        arena=found,
        tables=(ranked, [row for row in found["ranking"] if row["privacy"]]),
        graphs=sorted(map(graph_title, graphs)),
        areas=sorted(graph_title(name) for name in graphs if name in REGISTRY and REGISTRY[name].metric),
        methods=len({entry["method"] for entry in found["entries"]}),
        blocks=[(block_title(block), *_scores(lines, ranked)) for block, lines in blocks.items()],
        privacy=PRIVACY, local=LOCAL, fedavg=FEDAVG, level=LEVEL, coverage=LEAST_COVERAGE, rung=RUNG,
        finished=Counter(min(each["finished"], 3) for each in found["entries"]),
        draws=len(FINAL_SEEDS), first_rung=(results / "notes" / "first-rung.md").is_file(),
    )  # fmt: skip


def _caps(before: Mapping[str, Any], ran: Collection[Block], cap: float) -> dict[Block, float]:
    """Return block → the largest known cap under which its searches ran; 0 means no cap."""
    caps = {block_of(each): each["cap"] for each in before["entries"] if each["cap"] is not None}
    return caps | {
        block: max((cap, caps.get(block, cap)), key=lambda each: each or math.inf) for block in ran
    }


def _limit(caps: Collection[float | None]) -> str:
    """Return the limit on the searches in words."""
    if None in caps:
        return "an unrecorded cap"
    known = [each or math.inf for each in caps if each is not None]
    if min(known) == math.inf:
        return "no cap on time"
    # An infinite cap is printed as inf.
    limits = span(known, "g").replace("inf", "no cap")
    return f"{limits} times the core-seconds of FedAvg's default run on the block"


def _missing(arena: Arena, whole: Sequence[Cell]) -> list[str]:
    """Return the blocks and methods of the whole arena that are missing here, in words."""
    blocks = dict.fromkeys(cell.block for cell in whole)
    methods = dict.fromkeys(cell.method for cell in whole)
    run = {name.partition("[")[0] for name in arena.methods}
    no_block = [block_title(block) for block in blocks if block not in arena.blocks]
    no_method = [title_of(name) for name in methods if name not in run]
    return [
        f"{len(every) - len(lacking)} of {len(every)} {noun}"
        + (f"; without {sentence_list(lacking)}" if len(lacking) <= FEW else "")
        for noun, every, lacking in (("blocks", blocks, no_block), ("methods", methods, no_method))
        if lacking
    ]


def _scores(lines: Sequence[Mapping[str, Any]], ranked: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a block's scores of Local, FedAvg and the best ranked method, with its name."""
    private = {row["method"] for row in ranked}
    means = {
        line["method"]: line["tuned"].mean for line in lines if line["tuned"] and line["method"] in private
    }
    best = next(iter(means))
    shown = [f"{means[name]:.2f}" if name in means else "–" for name in (LOCAL, FEDAVG)]
    return [*shown, f"{title_of(best)} {means[best]:.2f}"]
