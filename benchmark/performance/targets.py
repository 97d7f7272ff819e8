"""What was aimed at, and whether the records reach it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmark.peers.grid import plan

Records = Mapping[str, Sequence[dict[str, Any]]]
"""Records by part; those of a failure on this side are left out."""


@dataclass(frozen=True)
class Verdict:
    """One aim."""

    aim: str
    measured: str
    met: bool | None
    """None while not all that it takes has been measured."""


def ratios(record: Mapping[str, Any], phase: str = "round") -> list[float]:
    """The peer's seconds over ours in every pair of turns; empty if there is none."""
    timed = record.get("phases", {}).get(phase, {})
    return [peer / ours for ours, peer in zip(timed.get("ours", []), timed.get("peer", []), strict=False)]


def verdicts(records: Records) -> list[Verdict]:
    """All aims, in the order of the page."""
    return [
        *_peer_verdicts(records.get("peers", [])),
        _roofline(records.get("roofline", [])),
        *_run(records.get("shares", [])),
        *_setup(records.get("setup", [])),
        *_growth(records.get("growth", []), records.get("memory", [])),
        _workers(records.get("workers", [])),
    ]


def _peer_verdicts(peers: Sequence[dict[str, Any]]) -> list[Verdict]:
    found = {record["key"]: record for record in peers}
    single = [
        ("fedavg cora 10", "round", 4.0, "FedAvg, Cora, 10 clients"),
        ("fedavg cora 100", "round", 6.0, "FedAvg, Cora, 100 clients"),
        ("fedpub cora 10", "round", 3.5, "FED-PUB, Cora, 10 clients"),
        ("fedsage+ cora 10", "generator", 15.0, "FedSage+, Cora, 10 clients, a generator round"),
        ("fedsage+ cora 10", "round", 3.0, "FedSage+, Cora, 10 clients, a round after"),
    ]
    listed = []
    for key, phase, least, what in single:
        pairs = ratios(found.get(key, {}), phase)
        listed.append(
            _at_least(f"{what}: ≥ {least:g}× openfgl-lib", median(pairs) if pairs else None, least, "×")
        )
    every = [(record, median(pairs)) for record in peers if (pairs := ratios(record))]
    aim = "every shared method, every graph, 5 to 100 clients: ≥ 3× openfgl-lib"
    if not every:
        return [*listed, Verdict(aim, "", None)]
    planned = len(list(plan((), (), ())))
    below = [record["key"] for record, ratio in every if ratio < 3]
    lowest, name = min((ratio, record["key"]) for record, ratio in every)
    text = (
        f"{len(every) - len(below)} of {len(every)} ratios, {len(peers)} of {planned} cells measured; "
        f"lowest {lowest:.1f}× ({name})"
    )
    met = False if below else True if len(peers) >= planned else None
    return [*listed, Verdict(aim, text, met)]


def _roofline(rounds: Sequence[dict[str, Any]]) -> Verdict:
    aim = "a round of FedAvg on Cora, PubMed, Computers, 5 to 100 clients: within 2× of its roofline"
    if not rounds:
        return Verdict(aim, "", None)
    shares = [(record["seconds"] / record["limit"], record["key"]) for record in rounds]
    worst, name = max(shares)
    within = sum(share <= 2 for share, _ in shares)
    return Verdict(aim, f"{within} of {len(shares)}; farthest {worst:.1f}× ({name} clients)", worst <= 2)


def _run(shares: Sequence[dict[str, Any]]) -> list[Verdict]:
    found = _by_key(shares, "run")
    aim = "FedAvg, Cora, 10 clients, 100 rounds evaluated in each: < 4.5 s"
    return [_below(aim, found.get("total"), 4.5, "s")]


def _setup(graphs: Sequence[dict[str, Any]]) -> list[Verdict]:
    slowest = max(((record["total"], record["key"]) for record in graphs), default=None)
    largest = max(((record["peak_memory_mb"] / 1024, record["key"]) for record in graphs), default=None)
    of = f", the most of {len(graphs)}"
    return [
        _below("set-up of every graph: < 10 s", slowest and slowest[0], 10, "s", slowest and slowest[1] + of),
        _below("set-up of every graph: < 4 GB", largest and largest[0], 4, "GB", largest and largest[1] + of),
    ]


def _growth(growth: Sequence[dict[str, Any]], memory: Sequence[dict[str, Any]]) -> list[Verdict]:
    arxiv = _by_key(growth, "arxiv")
    fits = _by_key(memory, "largest").get("fits")
    aim = "the largest graph that trains within 20 GB: measured"
    text = f"{fits['undirected_edges']:,} edges, {fits['nodes']:,} nodes" if fits else ""
    return [
        _below("ogbn-arxiv-sized graph, 20 clients, a round: < 3 s", arxiv.get("seconds"), 3, "s"),
        Verdict(aim, text, True if fits else None),
    ]


def _workers(workers: Sequence[dict[str, Any]]) -> Verdict:
    ratio = _by_key(workers, "workers cora").get("ratio")
    return _at_least("2 processes on 2 cores: ≥ 1.8× the cells an hour of one", ratio, 1.8, "×")


def _by_key(records: Sequence[dict[str, Any]], key: str) -> dict[str, Any]:
    return next((record for record in records if record["key"] == key), {})


def _at_least(aim: str, value: float | None, least: float, unit: str) -> Verdict:
    return _verdict(aim, value, unit, lambda measured: measured >= least)


def _below(aim: str, value: float | None, most: float, unit: str, where: str | None = None) -> Verdict:
    return _verdict(aim, value, unit, lambda measured: measured < most, where)


def _verdict(
    aim: str, value: float | None, unit: str, reached: Callable[[float], bool], where: str | None = None
) -> Verdict:
    if value is None:
        return Verdict(aim, "", None)
    space = "" if unit == "×" else " "
    return Verdict(aim, f"{value:.2f}{space}{unit}" + (f" ({where})" if where else ""), reached(value))
