"""The performance page's sections on what runs side by side: processes, and seeds in one stack."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from benchmark.performance.tables import milliseconds, table


def workers(records: Sequence[dict[str, Any]]) -> list[str]:
    """Cells an hour of one process and of two."""
    if not records:
        return []
    rows = [
        [
            record["dataset"],
            *(f"{median(record[name]):,.0f}" for name in ("one", "two")),
            f"{record['ratio']:.2f}×",
            f"{min(record['ratios']):.2f}–{max(record['ratios']):.2f}",
            str(len(record["ratios"])),
        ]
        for record in records
    ]
    text = (
        f"{records[0]['cells']} cells a process (FedAvg, 10 clients, 100 rounds, one seed each), median "
        "cells an hour, in turns. Two processes share the last cache and the way to memory: where what two "
        "rounds touch (Roofline) does not fit that cache, they hold each other up. The second graph is so "
        "small that it fits everywhere."
    )
    header = ["graph", "one process", "two processes", "ratio", "range", "turns"]
    return ["## Workers", text, table(header, rows)]


def seeds(records: Sequence[dict[str, Any]]) -> list[str]:
    """Three seeds of a cell apart, and as one stack."""
    if not records:
        return []
    rows = [
        [
            record["dataset"],
            str(record["clients"]),
            milliseconds(record["apart"]),
            milliseconds(record["seconds"]),
            f"{median(record['ratios']):.2f}×",
            f"{min(record['ratios']):.2f}–{max(record['ratios']):.2f}",
        ]
        for record in records
    ]
    most = max(median(record["ratios"]) for record in records)
    text = (
        "A round of FedAvg for three seeds of a cell, one run after another and as one stack of three times "
        f"the clients, in turns: {most:.2f} times as fast at best. The runner gives seeds to its processes."
    )
    header = ["graph", "clients", "three rounds apart, ms", "one of the stack, ms", "ratio", "range"]
    return ["## Several seeds in one stack", text, table(header, rows)]
