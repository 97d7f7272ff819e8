"""`results/performance.md`, made from the records alone."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from scipy import stats

from fedsub.benchmark.analysis.agreement import JUDGED, POINTS, Printed, judge
from fedsub.benchmark.analysis.figures import Entry, make_entries
from fedsub.benchmark.analysis.measurements import Measurements, is_failure, machine_of
from fedsub.benchmark.analysis.scores import Leaderboard
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.report.tables import markdown_table
from fedsub.benchmark.report.wording import milliseconds, sentence_list
from fedsub.benchmark.report.writing import write_page
from fedsub.benchmark.spec.plan import grid_cells
from fedsub.benchmark.spec.protocol import load_protocol, names
from fedsub.benchmark.studies.campaign import Grids
from fedsub.benchmark.studies.peers.grid import CLIENTS, PAIRINGS, PEERS, Pairing, Peer, plan
from fedsub.benchmark.studies.performance.costs import (
    BY_PAPER,
    HOW_COUNTED,
    Cost,
    by_graph,
    by_paper,
    costs_of,
    told,
    told_in_hours,
    total_in_words,
)
from fedsub.benchmark.studies.performance.targets import ROUND, TARGETS
from fedsub.methods.core import registry

HOW_MADE = (
    "Made from `results/performance/*.jsonl` and `results/runs/*.jsonl`, one thread a process, a column for "
    "each machine. `python -m benchmark --performance` measures what is missing, `--rerun` all again."
)
SHORT = (
    "Beside a peer: times as fast, geometric mean over methods, graphs and numbers of clients, its 95 % "
    "interval, and the least. Accuracy: of methods that learn. Beside the machine's limit (its roofline): "
    "seconds of a round of FedAvg over those that it allows, geometric mean (least–greatest). A table: "
    "set-up, training and evaluation of its cells on record, all seeds, in minutes of one core, median "
    "(least–greatest); N processes share them."
)
FASTER = (
    "Times as fast as the round of openfgl-lib, or of the peer in brackets: geometric mean over the graphs "
    "and numbers of clients that were timed, which stand below; its 95 % interval, and the least of them; of "
    "fewer than four the values themselves."
)
NEAR = (
    "Seconds of a round of FedAvg over the machine's limit: geometric mean over 5 to 100 clients "
    "(least–greatest)."
)
ACCURACY = (
    "Test accuracy after training on the same clients, three local epochs a round: means over the seeds of "
    "first weights and dropout in percent, ours less the peer's in points with the 90 % interval (Welch); "
    f"judged as printed figures are: δ is {POINTS:g} points."
)
Measured = Mapping[str, Any]
"""A record of the speed."""


def write_performance_page(
    results: Path,
    runs: Records | None = None,
    entries: Sequence[Entry] | None = None,
    grids: Grids | None = None,
) -> Path:
    """Write the page from the records in the results folder, measuring nothing; returns its path. Records of
    cells, `runs`, the printed figures that they answer, and the grids of all tables are read unless they are
    given."""
    runs = runs or Records(results)
    grids = grids or [(each, grid_cells(each)) for each in map(load_protocol, names())]
    if entries is None:
        entries = make_entries(Leaderboard(each, runs.of_table(each.name, cells)) for each, cells in grids)
    peers, rounds, trained = (
        Measurements(results, name).records() for name in ("peers", "roofline", "trained")
    )
    costs = list(costs_of(runs))
    # A comparison that is no longer made has no row.
    keys = _compared()
    peers = [each for each in peers if each["key"] in keys]
    made = [*peers, *rounds, *trained]
    machines = list(dict.fromkeys([*map(machine_of, made), *(cost.machine for cost in costs)]))
    notes = results / "notes" / "performance.md"
    failed = [each for each in made if is_failure(each)]
    peers, rounds, trained = (
        [each for each in found if not is_failure(each)] for found in (peers, rounds, trained)
    )
    shares = [((each["dataset"],), machine_of(each), each["seconds"] / each["limit"]) for each in rounds]
    speedups = (((title,), machine_of(each), pairs) for title, _, each, pairs in _by_phase(peers))
    sections = [
        "# Performance",
        HOW_MADE,
        "## In short",
        SHORT,
        _table(["what"], machines, _short(machines, peers, rounds, trained, costs), itemgetter(0)),
        "# Targets",
        _table(["target"], machines, _aims([*peers, *rounds]), _verdict),
        "# How much faster than its peer, by method",
        FASTER,
        _table(["method"], machines, speedups, _speedup),
        "# How near the machine's limit, by graph",
        NEAR,
        _table(["graph"], machines, shares, _share),
        notes.read_text("utf-8").strip() if notes.is_file() else "",
    ]
    for machine in machines:
        kinds = (peers, rounds, trained, failed)
        own = ([each for each in found if machine_of(each) == machine] for found in kinds)
        sections += _machine(machine, *own)
    sections += [
        "# What the figures of a paper cost",
        BY_PAPER,
        _table(["paper", "figures"], machines, by_paper(entries), told_in_hours),
        total_in_words(entries, grids, runs) if costs else "",
        "# What every table costs",
        HOW_COUNTED,
        _table(["table", "on"], machines, by_graph(costs), told),
    ]
    if not machines:
        sections = ["# Performance", "Nothing is on record: run `python -m benchmark --performance`."]
    path = results / "performance.md"
    write_page(path, ("\n\n".join(filter(None, sections)) + "\n").encode())
    return path


def _short(
    machines: Sequence[str],
    peers: Sequence[Measured],
    rounds: Sequence[Measured],
    trained: Sequence[Measured],
    costs: Sequence[Cost],
) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """What is asked first: beside each peer, beside the machine's limit, and what a whole table costs."""
    for peer in PEERS.values():
        theirs = _beside(peers, peer)
        for machine in machines:
            own = [ratios(each) for each in theirs if machine_of(each) == machine]
            if timed := list(filter(None, own)):
                yield (f"a round beside {peer.title}'s",), machine, _speedup(timed)
    for peer in PEERS.values():
        for machine in machines:
            scored = [each for each in _beside(trained, peer) if machine_of(each) == machine]
            words = Counter(word for _, word in _trained_alike(scored) if word)
            if words:
                counted = ", ".join(f"{word}: {words[word]}" for word in JUDGED if words[word])
                yield (f"accuracy beside {peer.title}'s, methods",), machine, counted
    for machine in machines:
        shares = [each["seconds"] / each["limit"] for each in rounds if machine_of(each) == machine]
        if shares:
            yield ("a round beside the machine's limit",), machine, _share(shares)
    for machine in machines:
        tables: dict[str, float] = defaultdict(float)
        for cost in costs:
            if cost.machine == machine:
                tables[cost.table] += cost.seconds / 60
        if tables:
            whole = (
                f"{median(tables.values()):.1f} min ({min(tables.values()):.1f}–{max(tables.values()):.1f})"
            )
            yield ("a whole table",), machine, f"{whole}, all {len(tables)}: {sum(tables.values()):.0f} min"


def _table(
    head: list[str],
    columns: Iterable[Any],
    values: Iterable[tuple[tuple[str, ...], Any, Any]],
    told: Callable[[list[Any]], str],
    unit: str = "",
) -> str:
    """A row for each first of `values`, a cell that tells all of those that share row and column."""
    found: dict[tuple[str, ...], dict[Any, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for row, column, value in values:
        found[row][column].append(value)
    columns = list(columns)
    rows = [
        [*row, *(told(cells[column]) if column in cells else "" for column in columns)]
        for row, cells in found.items()
    ]
    return markdown_table([*head, *(f"{column}{unit}" for column in columns)], rows)


def ratios(record: Measured, phase: str = ROUND) -> list[float]:
    """The peer's seconds over ours in every pair of blocks; empty if there is none.

    A round of a method of which only another phase is timed (AdaFGL's second step) is one of that phase.
    """
    phases = record.get("phases", {})
    if phases and phase == ROUND and ROUND not in phases:
        phase = _pairing(record).phases[-1]
    timed = phases.get(phase, {})
    return [peer / ours for ours, peer in zip(timed.get("ours", []), timed.get("peer", []), strict=False)]


FEW = 4
"""With fewer values an interval says next to nothing: they are shown themselves."""


def geometric_mean(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean between the ends of its 95 % interval (Student's t of the logarithms)."""
    logs = [math.log(value) for value in values]
    mean, half = fmean(logs), 0.0
    if len(logs) > 1:
        half = float(stats.t.ppf(0.975, len(logs) - 1)) * stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean - half), math.exp(mean), math.exp(mean + half)


def _by_phase(peers: Sequence[Measured]) -> Iterator[tuple[str, str, Measured, list[float]]]:
    """Title, phase, record and ratios of what was timed, in the order of the plan."""
    keys = _compared()
    for record in sorted(peers, key=lambda each: keys.index(each["key"])):
        pairing = _pairing(record)
        for phase in pairing.phases:
            title = pairing.title if phase == ROUND else f"{pairing.title}, {phase}"
            yield title, phase, record, ratios(record, phase)


def _compared() -> list[str]:
    """Keys of the comparisons with peers."""
    return [cell.key for cell in plan((), (), (), list(PEERS.values()))]


def _pairing(record: Measured) -> Pairing:
    """Of a comparison of seconds by its key."""
    return PAIRINGS[record.get("pairing") or record["key"].rsplit(" ", 2)[0]]


def _beside(records: Sequence[Measured], peer: Peer) -> list[Measured]:
    return [each for each in records if _pairing(each).peer is peer]


def _speedup(comparisons: list[list[float]]) -> str:
    medians = [median(pairs) for pairs in comparisons if pairs]
    if not medians:
        return "the peer cannot run it"
    if len(medians) < FEW:
        return sentence_list([f"{value:.1f}×" for value in sorted(medians)])
    low, mean, high = geometric_mean(medians)
    return f"{mean:.1f}× ({low:.1f}–{high:.1f}), least {min(medians):.1f}×"


def _share(shares: list[float]) -> str:
    return f"{geometric_mean(shares)[1]:.1f}× ({min(shares):.1f}–{max(shares):.1f})"


def _aims(records: Sequence[Measured]) -> Iterator[tuple[tuple[str, ...], str, Any]]:
    """For each target the records that tell of it: times as fast, the aim, and how many are still to make."""
    made: dict[str, set[str]] = defaultdict(set)
    for each in records:
        made[machine_of(each)].add(each["key"])
    for what, phase, keys, least in TARGETS:
        for each in records:
            if phase == "limit":
                times = [each["limit"] / each["seconds"]] if "limit" in each else []
            else:
                times = ratios(each, phase) if each["key"] in keys else []
            if times:
                lacking = len(keys - made[machine_of(each)])
                yield (what,), machine_of(each), (median(times), each["key"], least, lacking)


def _verdict(measured: list[tuple[float, str, float, int]]) -> str:
    reached = sum(times >= least for times, _, least, _ in measured)
    lowest, key, _, lacking = min(measured)
    text = f"{lowest:.2f}×"
    if len(measured) > 1:
        text = f"{reached} of {len(measured)} reach it; lowest {text} ({key})"
    if reached < len(measured):
        return f"{text}: **not met**"
    return f"{text}: not yet measured in {lacking} comparisons" if lacking else f"{text}: met"


def _machine(
    machine: str,
    peers: Sequence[Measured],
    rounds: Sequence[Measured],
    trained: Sequence[Measured],
    failed: Sequence[Measured],
) -> Iterator[str]:
    """What was measured on one machine, with which software, when and at which commits."""
    made = [record["made"] for record in (*peers, *rounds, *trained, *failed)]
    if not made:
        return
    newest = max(made, key=lambda each: each["time"])
    loads = [each["load"] for each in made]
    days = sorted({each["time"][:10] for each in made})
    commits = sorted({each["commit"][:10] + ("-dirty" * each["commit"].endswith("-dirty")) for each in made})
    software = ", ".join(f"{name} {newest[name]}" for name in ("python", "torch", "dgl", "numpy", "scipy"))
    yield f"# On {machine}"
    yield (
        f"{software}. Measured {' to '.join(dict.fromkeys((days[0], days[-1])))} at commit "
        f"{sentence_list(commits)}; load average at the start of a measurement {min(loads):.1f} to "
        f"{max(loads):.1f}."
    )
    for peer in PEERS.values():
        timed, scored = _beside(peers, peer), _beside(trained, peer)
        if timed or scored:
            yield f"## Beside {peer.title}"
        if timed:
            yield from _comparisons(timed)
        if scored:
            yield ACCURACY
            head = ["method", "graph, clients", "rounds", "seeds", "ours", "the peer's", "difference"]
            yield markdown_table(head, [row for row, _ in _trained_alike(scored)])
    if rounds:
        yield from _roofline(rounds)
    if failed:
        yield "## What failed on this side"
        yield "\n".join(f"- {each['key']}: {each['error']}" for each in failed)


def _comparisons(peers: Sequence[Measured]) -> Iterator[str]:
    versions: dict[str, str] = next((each["versions"] for each in peers if "versions" in each), {})
    yield f"The peer: {', '.join(f'{name} {version}' for name, version in versions.items())}."
    yield "Median ratio of the pairs (least–greatest), and our milliseconds a round."
    timed = (
        ((title, each["dataset"]), each["clients"], (pairs, each["phases"][phase]["ours"]))
        for title, phase, each, pairs in _by_phase(peers)
        if pairs
    )
    yield _table(["method", "graph"], CLIENTS, timed, _ratio, " clients")
    broken = sorted((each for each in peers if each["status"] == "peer failed"), key=itemgetter("method"))
    for method, members in groupby(broken, key=itemgetter("method")):
        alike = list(members)
        where = [f"{each['dataset']} ({each['clients']})" for each in alike]
        places = sentence_list(where) if len(where) <= 5 else f"all {len(where)} graphs and clients"
        yield f"The peer's {registry.describe(method).title} fails on {places}: `{alike[0]['error']}`"


def _trained_alike(records: Sequence[Measured]) -> Iterator[tuple[list[str], str]]:
    """A row of the table and the verdict for each pairing, graph and number of clients."""
    alike: dict[tuple[str, str, int, int], list[Measured]] = defaultdict(list)
    for each in records:
        alike[each["pairing"], each["dataset"], each["clients"], each["rounds"]].append(each)
    for pairing in PAIRINGS.values():
        for (key, dataset, clients, rounds), found in alike.items():
            if key == pairing.key:
                scored = [each["accuracy"] for each in found if "accuracy" in each]
                where = [pairing.title, f"{dataset}, {clients}", str(rounds), str(len(scored))]
                yield _judged(where, scored) if scored else ([*where, "", "", found[0]["error"]], "")


def _judged(where: list[str], scored: Sequence[Mapping[str, float]]) -> tuple[list[str], str]:
    ours, theirs = ([100 * each[name] for each in scored] for name in ("ours", "peer"))
    spread = stdev(theirs) if len(theirs) > 1 else 0.0
    # A method that learns nothing predicts the largest class with every seed: that tells nothing of it.
    if len({*ours, *theirs}) == 1:
        return [*where, f"{ours[0]:.1f}", f"{theirs[0]:.1f}", "one class for all nodes, with every seed"], ""
    verdict = judge(ours, Printed(fmean(theirs), (spread,), len(theirs)), POINTS, may_repeat=True)
    shown = f"{verdict.shown} ({verdict.shown_interval})" if verdict.interval else verdict.shown
    return [*where, f"{fmean(ours):.1f}", f"{fmean(theirs):.1f}", f"{shown}: {verdict.word}"], verdict.word


def _ratio(timed: list[tuple[list[float], list[float]]]) -> str:
    ((pairs, ours),) = timed
    return f"{median(pairs):.1f}× ({min(pairs):.1f}–{max(pairs):.1f}), {milliseconds(median(ours))} ms"


def _roofline(rounds: Sequence[Measured]) -> Iterator[str]:
    ceilings = rounds[-1]["ceilings"]
    copy = sorted((int(size), rate) for size, rate in ceilings["copy"].items())
    ladder = ", ".join(f"{size / 2**20:g}: {rate / 1e9:.1f}" for size, rate in copy)
    yield "## Roofline"
    yield (
        f"Large matrix product: {ceilings['flops'] / 1e9:.1f} Gflop/s (float32, 1536 × 1536). Copying, bytes "
        f"read and written, GB/s by size in MiB: {ladder}. Limits of the operations in milliseconds, set by "
        "arithmetic (a), bandwidth (b) or gathering (g)."
    )
    columns: dict[str, Callable[[Measured], str]] = {
        "graph": itemgetter("dataset"),
        "clients": lambda each: str(each["clients"]),
        "round, ms": lambda each: milliseconds(each["seconds"]),
        "range": lambda each: f"{milliseconds(each['fastest'])}–{milliseconds(each['slowest'])}",
        "limit, ms": lambda each: milliseconds(each["limit"]),
        "round / limit": lambda each: f"{each['seconds'] / each['limit']:.2f}×",
        "touched, MB": lambda each: f"{each['touched'] / 1e6:.0f}",
    }
    operations = [name for name, found in rounds[0]["operations"].items() if "bound" in found]
    rows = [
        [tell(each) for tell in columns.values()]
        + [
            f"{1000 * found['limit']:.1f} {found['bound'][0]}"
            for found in map(each["operations"].get, operations)
        ]
        for each in rounds
    ]
    yield markdown_table([*columns, *operations], rows)
