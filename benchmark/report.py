"""Everything in the results folder that is made from records: the Markdown pages and the page to ask."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmark.pages.leaderboard import write_leaderboard
from benchmark.pages.reproduction import make_entries, write_reproduction
from benchmark.pages.site.page import write_site
from benchmark.performance.page import write_performance_page
from benchmark.protocol import load_protocol, names
from benchmark.store import Store
from datasets.errors import UserError


def write_report(results: Path, own: Sequence[str] = ()) -> list[Path]:
    """Remake every page of a results folder; returns their paths.

    A page for every protocol with records, `reproduction.md` and `.json` over all of them, `performance.md`
    where speed has been measured, and `index.html`, all of it to ask. `own` are paths of protocols besides
    those that the benchmark brings. Raises UserError if the folder holds no records.
    """
    found = {path.stem for path in (results / "runs").glob("*.jsonl")}
    measured = any((results / "performance").glob("*.jsonl"))
    if not found and not measured:
        raise UserError(f"{results} holds no records: run python -m benchmark first")
    protocols = [load_protocol(name) for name in (*names(), *own)]
    tables = [(protocol, Store(results, protocol.name).records()) for protocol in protocols]
    paths = [write_leaderboard(results, *table) for table in tables if table[0].name in found]
    entries = make_entries(tables)
    if found:
        paths += write_reproduction(results, entries)
    if measured:
        paths.append(write_performance_page(results))
    return [*paths, write_site(results, tables, entries, [entry.to_dict() for entry in entries])]
