"""The data behind all views of the site, and their shared addresses and titles."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import eq
from typing import Any
from zlib import crc32

from fedsub.benchmark.analysis.arena import by_block, tuned_rows
from fedsub.benchmark.analysis.figures import Entry
from fedsub.benchmark.analysis.findings import Finding
from fedsub.benchmark.analysis.judged import level_of
from fedsub.benchmark.analysis.public_code import Runs, WithAuthors
from fedsub.benchmark.analysis.scores import Leaderboard, Row
from fedsub.benchmark.analysis.standing import AlongEdges, Contender, along_edges, standings
from fedsub.benchmark.analysis.summary import EVERY, FIRST, Headline, headline
from fedsub.benchmark.records.record import Record
from fedsub.benchmark.report.wording import block_title, graph_title, scheme_title, title_of
from fedsub.benchmark.spec import catalog
from fedsub.benchmark.spec.cell import Block
from fedsub.benchmark.spec.protocol import ARENA, load_protocol
from fedsub.datasets.options import Spec

TUNED = "tuned"
"""Name of the arena's blocks in place of a table."""
NATURAL = "natural"
"""The table of clients that a graph itself names."""


@dataclass(frozen=True)
class Page:
    """One view at one address."""

    address: str
    """Part of the URL after `#`; it begins with the view."""
    title: str
    template: str
    values: Mapping[str, Any]
    """Values for the template."""

    @property
    def file(self) -> str:
        """Name of the data file with the page; `app.js` derives the same name."""
        parts = self.address.split("/")
        return ".".join(parts[: {"leaderboard": 5, "cost": 5, "check": 3}.get(parts[0], 2)])


@dataclass(frozen=True)
class Facts:
    """Everything that the views show."""

    boards: Sequence[Leaderboard]
    theirs: Runs
    entries: Sequence[Entry]
    findings: Sequence[Finding]
    comparisons: Sequence[WithAuthors]
    arena: Mapping[str, Any] | None = None
    tuned_records: Mapping[str, Record] = field(default_factory=dict)
    """The records that the arena's entries name, by key."""
    verified: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Key of a cell → who reproduced its record (`records.latest`)."""

    @cached_property
    def tables(self) -> dict[str, dict[Block, list[Contender]]]:
        """Table → block → its methods in order; those of the arena, as tuned, under TUNED."""
        found = {
            board.protocol.name: standings(board.protocol, board.rows, self.theirs) for board in self.boards
        }
        known = self.tuned_records
        held = [
            # A record may have been removed since `arena.json` was written.
            (line["method"], [known[key] for key in line["records"] if key in known])
            for listed in self.tuned.values()
            for line in listed
        ]
        return found | ({TUNED: standings(load_protocol(str(ARENA)), tuned_rows(held))} if held else {})

    @cached_property
    def titles(self) -> dict[str, str]:
        """Table → its title."""
        found = {board.protocol.name: board.protocol.title for board in self.boards}
        return {**found, TUNED: "All tuned within one budget"}

    @cached_property
    def blocks(self) -> list[tuple[Block, str]]:
        """Every block with its table: first those of the table EVERY, then those with the most methods."""
        ranked = {
            (block, table): sum(each.is_ranked for each in listed)
            for table, blocks in self.tables.items()
            for block, listed in blocks.items()
        }
        return sorted(ranked, key=lambda place: (place[1] != EVERY, -ranked[place]))

    @cached_property
    def edges(self) -> AlongEdges:
        """Gains over Local by the share of edges between clients, on the blocks of EVERY and NATURAL; their
        correlation over all blocks, each of the table with the most methods."""
        shown = {**self.tables.get(EVERY, {}), **self.tables.get(NATURAL, {})}
        most = {block: self.tables[table][block] for block, table in reversed(self.blocks)}
        return along_edges({**most, **shown}, shown)

    @cached_property
    def first(self) -> tuple[Block, str] | None:
        """Block and table of the first screen."""
        return next((each for each in self.blocks if each[0] == FIRST), next(iter(self.blocks), None))

    @cached_property
    def tuned(self) -> dict[Block, list[dict[str, Any]]]:
        """Block of the arena → its methods with default and tuned scores."""
        return by_block(self.arena) if self.arena else {}

    @cached_property
    def headline(self) -> Headline:
        """Numbers of the headline findings."""
        return headline(self.tables, self.comparisons, self.findings, self.entries)

    @cached_property
    def figures(self) -> list[tuple[Entry, str]]:
        """Every printed figure with its address."""
        found = []
        taken = Counter[str]()
        for entry in self.entries:
            paper, table, *rest = entry.figure.place
            rest = [part for part in rest if part not in ("", "accuracy")]
            address = "/".join(("check", slug(paper), slug(table), slug("-".join(map(str, rest)))))
            # Figures that share a place differ in their notes.
            taken[address] += 1
            found.append((entry, address if taken[address] == 1 else f"{address}-{taken[address]}"))
        return found

    @cached_property
    def _by_figure(self) -> dict[tuple[Any, str], tuple[Entry, str]]:
        return {(entry.figure.place, entry.figure.note): (entry, address) for entry, address in self.figures}

    def named_pages(self) -> list[list[str]]:
        """Return the search index of methods, graphs, blocks and papers: kind, title, aliases, address."""
        names = catalog.methods()
        found = [["method", catalog.describe(name).title, name, method_address(name)] for name in names]
        graphs = dict.fromkeys(block[0] for block, _ in self.blocks)
        found += [["graph", graph_title(name), name, f"graph/{graph_slug(name)}"] for name in graphs]
        # A block in several tables is listed with the first.
        for block, table in reversed(dict(reversed(self.blocks)).items()):
            address = block_address("leaderboard", block, table)
            found.append(["leaderboard", block_title(block), " ".join(map(str, block)), address])
        papers = dict.fromkeys(entry.figure.paper for entry in self.entries)
        return [*found, *(["paper", name, "", f"papers/{slug(name)}"] for name in papers)]

    def verifiers_of(self, row: Row) -> str:
        """Return who reproduced records of a row, each with the number of records."""
        found = Counter(name for record in row.records for name in self.verified.get(record.key, ()))
        return ", ".join(f"{name} ({many} of {len(row.records)})" for name, many in sorted(found.items()))

    def verdict_of(self, each: Contender) -> tuple[str, str] | None:
        """Return a row's own verdict on its printed figure, and the figure's address; None without one."""
        if (figure := each.score.published) is None:
            return None
        entry, address = self._by_figure[figure.place, figure.note]
        # The entry may be that of another table's row.
        level = level_of(each.row, each.metric, figure)
        return replace(entry, level=level, authors=each.authors).answer[0], address


def slug(text: Any) -> str:
    """Return the text as lower-case letters, digits and dashes, for an address."""
    return re.sub(r"[^a-z0-9]+", "-", str(text).lower().replace("+", "-plus")).strip("-") or "all"


def graph_slug(name: str) -> str:
    """Return the slug of a graph, with a checksum if it changes a user's name: `Cora` is not `cora`."""
    known = Spec(name).name in catalog.parts("dataset")
    return slug(name) if known or slug(name) == name else f"{slug(name)}-{crc32(name.encode()):08x}"


def block_address(view: str, block: Block, table: str) -> str:
    """Return the address of a block of a table in a view."""
    return "/".join((view, graph_slug(block[0]), *map(slug, (*block[1:], table))))


def named(listed: Sequence[Contender]) -> list[tuple[str, Contender]]:
    """Return each with its name, which includes the backbone if a method has several, and the deviations from
    its table."""
    several = len({each.row.method for each in listed}) < len(listed)
    found = []
    for each in listed:
        row = each.row
        name = title_of(row.method, row.backbone if several else "")
        found.append((f"{name} ({row.deviations})" if row.deviations else name, each))
    return found


def method_address(method: str) -> str:
    """Return the address of a method's page; for a plug-in, which has none, the list of methods."""
    return f"method/{slug(method)}" if method in catalog.methods() else "method"


def choices(facts: Facts, view: str, block: Block, table: str) -> dict[str, list[tuple[str, str, bool]]]:
    """Return the selectors of a block as (title, address, whether chosen): every graph, then the choices that
    exist within those chosen before. An address keeps as many of the other choices as possible."""
    found: dict[str, list[tuple[str, str, bool]]] = {}
    here = (*block, table)
    titles = (graph_title, scheme_title, str, lambda name: facts.titles[name])
    listed = [(*each, name) for each, name in facts.blocks]
    for place, axis in enumerate(("graph", "partition", "clients", "settings")):
        best: dict[Any, tuple[Any, ...]] = {}
        # The closest comes first; among equally close ones the one with the most methods.
        for each in sorted(listed, key=lambda each: -sum(map(eq, each, here))):
            if each[:place] == here[:place]:
                best.setdefault(each[place], each)
        ordered = [best[value] for value in (best if axis == "settings" else sorted(best))]
        found[axis] = [
            (titles[place](each[place]), block_address(view, each[:3], each[3]), each[place] == here[place])
            for each in ordered
        ]
    return found
