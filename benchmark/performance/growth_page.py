"""The part of the performance page on how cost grows with clients and edges, and on the largest graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmark.performance.figures import draw_growth, growth_figure
from benchmark.performance.growth import fitted_exponent
from benchmark.performance.tables import table
from benchmark.performance.targets import Records


def draw(folder: Path, machine: str, records: Records) -> None:
    """The plot of a machine's records in `folder`; none without records."""
    by_clients, by_edges = _records(records)
    if by_clients or by_edges:
        draw_growth(folder / growth_figure(machine), by_clients, by_edges)


def _records(records: Records) -> tuple[dict[str, list[dict[str, Any]]], list[dict[str, Any]]]:
    by_clients = {
        name: sorted(members, key=lambda record: int(record["clients"]))
        for name, members in groupby(
            sorted(records.get("roofline", []), key=lambda record: str(record["dataset"])),
            key=lambda record: str(record["dataset"]),
        )
    }
    by_edges = [record for record in records.get("growth", []) if record["key"].startswith("edges")]
    return by_clients, sorted(by_edges, key=lambda record: int(record["undirected_edges"]))


def sections(machine: str, records: Records) -> list[str]:
    """Cost growth and the largest graph; nothing if there are no records."""
    by_clients, by_edges = _records(records)
    if not by_clients and not by_edges:
        return []
    parts = [
        f"## Cost growth\n\n![seconds a round against clients and edges](figures/{growth_figure(machine)})"
    ]
    lines = []
    for name, members in by_clients.items():
        if len(members) > 1:
            exponent = _exponent(members, "clients")
            lines.append(
                f"- {name}, {members[0]['clients']} to {members[-1]['clients']} clients: seconds a round "
                f"grow as clients^{exponent:.2f}."
            )
    if len(by_edges) > 1:
        big = [record for record in by_edges if record["undirected_edges"] >= 100_000]
        beyond = (
            f", from 100,000 edges on as edges^{_exponent(big, 'undirected_edges'):.2f}"
            if len(big) > 1
            else ""
        )
        lines.append(
            "- generated graphs, 10 clients, mean degree 20, 64 dense features: as "
            f"edges^{_exponent(by_edges, 'undirected_edges'):.2f}{beyond}."
        )
    parts.append("\n".join(lines))
    parts.append(
        table(
            ["edges", "nodes", "round, s", "range", "edges a second", "peak memory, GB"],
            [_edge_row(record) for record in by_edges],
        )
        if by_edges
        else ""
    )
    arxiv = next((record for record in records.get("growth", []) if record["key"] == "arxiv"), None)
    if arxiv:
        parts.append(
            f"A generated graph of ogbn-arxiv's size ({arxiv['nodes']:,} nodes, "
            f"{arxiv['undirected_edges']:,} edges that all lie inside a client, 128 dense features, 40 "
            f"classes), FedAvg with {arxiv['clients']} clients: {arxiv['seconds']:.2f} s a round "
            f"({arxiv['fastest']:.2f}–{arxiv['slowest']:.2f}), {arxiv['peak_memory_mb'] / 1024:.1f} GB."
        )
    return [*parts, *_largest(records.get("memory", []))]


def _exponent(records: Sequence[Mapping[str, Any]], size: str) -> float:
    return fitted_exponent([record[size] for record in records], [record["seconds"] for record in records])


def _edge_row(record: Mapping[str, Any]) -> list[str]:
    return [
        f"{record['undirected_edges']:,}",
        f"{record['nodes']:,}",
        f"{record['seconds']:.4f}",
        f"{record['fastest']:.4f}–{record['slowest']:.4f}",
        f"{record['undirected_edges'] / record['seconds'] / 1e6:.1f} M",
        f"{record['peak_memory_mb'] / 1024:.2f}",
    ]


def _largest(records: Sequence[dict[str, Any]]) -> list[str]:
    found = next((record for record in records if record["key"] == "largest"), None)
    if found is None:
        return []
    tried = "; ".join(
        f"{each['edges']:,} edges: {each['error'] if 'error' in each else _gigabytes(each)}"
        for each in found["tries"]
    )
    text = f"Memory. A process allowed {found['limit'] / 1e9:.1f} GB of data trained "
    fits = found["fits"]
    if fits is None:
        return [f"{text}none of the graphs tried ({tried})."]
    return [
        f"{text}{fits['undirected_edges']:,} edges and {fits['nodes']:,} nodes, {fits['seconds']:.1f} s a "
        f"round (tried: {tried})."
    ]


def _gigabytes(record: Mapping[str, Any]) -> str:
    return f"{record['peak_memory_mb'] / 1024:.1f} GiB resident"
