"""Judge the arena's records: methods tuned with equal budgets, ranked as tuned and with their defaults."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from statistics import fmean
from typing import Any

import numpy as np

from fedsub.benchmark.analysis.claims import ADVICE, load_claims
from fedsub.benchmark.analysis.findings import Finding, find
from fedsub.benchmark.analysis.ranking import (
    LEAST_COVERAGE,
    RESAMPLES,
    Field,
    Rank,
    Ranking,
    front,
    kendall,
    selection_luck,
)
from fedsub.benchmark.analysis.scores import Row, Score, make_rows
from fedsub.benchmark.analysis.standing import megabytes_of
from fedsub.benchmark.analysis.trials import Outcome, explained, importance, text
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.records.record import OK, Record, json_ready
from fedsub.benchmark.records.search import FINAL_SEEDS, Search
from fedsub.benchmark.spec import catalog
from fedsub.benchmark.spec.catalog import LOCAL
from fedsub.benchmark.spec.cell import Block
from fedsub.benchmark.spec.protocol import ARENA, load_protocol
from fedsub.benchmark.spec.space import changes
from fedsub.datasets.options import parse_name

FEW_COMPARED = 3
"""With fewer compared trials, a search shows next to nothing of the spread from tuning."""


class Entry(Outcome):
    """One method on one block: its search, and the final runs with the settings found and the defaults."""

    def __init__(self, search: Search, records: Records) -> None:
        super().__init__(search, records)
        self.block = search.base.block
        self.tuned = tuple(map(records.get, search.final(self.chosen)))
        self.default = tuple(map(records.get, search.final(0)))

    @property
    def is_run(self) -> bool:
        """Whether there was a search, and every final run has a record, of a success or a failure."""
        # Without a first rung, final runs of the defaults may be records of another table.
        return bool(self.short) and None not in (*self.tuned, *self.default)

    @property
    def successes(self) -> list[Record]:
        """Successful final runs with the settings found."""
        return [record for record in self.tuned if record is not None and record.status == OK]

    def luck(self, generator: np.random.Generator) -> np.ndarray:
        """(RESAMPLES,), `selection_luck` of the search; 0 where a test score is missing."""
        numbers = range(len(self.search.trials))
        validation = [self.validation.get(number, -math.inf) for number in numbers]
        test = [self.test.get(number, math.nan) for number in numbers]
        return np.nan_to_num(selection_luck(validation, test, generator, RESAMPLES), nan=0.0)

    def figures(self) -> dict[str, float]:
        """Return the points gained by tuning, and megabytes and core-seconds per client; NaN if unknown."""
        runs, clients = self.successes, self.search.base.clients
        spent = [sum(record.core_seconds.values()) / clients for record in runs]
        return {
            "tuning": float(np.mean(_scores(self.tuned)) - np.mean(_scores(self.default))),
            "megabytes": megabytes_of(runs, clients) if runs else math.nan,
            "seconds": fmean(spent) if runs else math.nan,
        }

    def to_dict(self, cap: float | None) -> dict[str, Any]:
        """Return the settings found and all scores. `cap` is the time cap of the search; None if unknown."""
        chosen, settings = changes(self.search.base, self.search.trials[self.chosen])
        finals = {record.key: record for record in (*self.tuned, *self.default) if record is not None}
        return {
            **self.place,
            "chosen": chosen,
            "settings": {name: text(value) for name, value in settings.items()},
            "method": self.method,
            "tuned": [record and record.score for record in self.tuned],
            "default": [record and record.score for record in self.default],
            "records": [record.key for record in self.successes],
            "trials_left_out": self.left_out,
            "finished": len(self.full),
            "search_seconds": round(self.seconds, 1),
            "final_seconds": round(sum(sum(each.core_seconds.values()) for each in finals.values()), 1),
            "cap": cap,
        }


class Arena:
    """All methods on the blocks that are finished.

    A block is finished where LOCAL has every score, as tuned and by default, and at least LEAST_COVERAGE of
    the methods that ran anywhere have run.
    """

    def __init__(self, searches: Iterable[Search], records: Records) -> None:
        """Collect the records of these searches. Raises ValueError if no block is finished."""
        ran = [entry for search in searches if (entry := Entry(search, records)).is_run]
        self.methods = tuple(dict.fromkeys(entry.method for entry in ran))
        methods_on = Counter(entry.block for entry in ran)
        self.blocks = tuple(
            entry.block
            for entry in ran
            if entry.method == LOCAL
            and np.isfinite([*_scores(entry.tuned), *_scores(entry.default)]).all()
            and methods_on[entry.block] >= LEAST_COVERAGE * len(self.methods)
        )
        if not self.blocks:
            raise ValueError("no block is finished: its methods lack final runs")
        self.entries = [entry for entry in ran if entry.block in self.blocks]
        self.privacy = {
            entry.method: record.privacy
            for entry in self.entries
            for record in entry.successes
            if record.privacy
        }
        """Method → why it breaks privacy, as its records say."""

    def to_dict(self, caps: Mapping[Block, float]) -> dict[str, Any]:
        """Return all results as JSON-ready values, with every score and every setting found. `caps` are the
        time caps of the searches that are known."""
        rows = self.rows
        ranked = [row for row in rows if not row["privacy"]]
        best, *others = (row["method"] for row in ranked)
        entries = [entry.to_dict(caps.get(entry.block)) for entry in self.entries]
        found = {
            "graphs": len(self._ranking.graphs),
            "friedman_p": self._ranking.friedman,
            "critical_difference": self._ranking.critical_difference,
            "tied": self._ranking.tied,
            "apart": [name for name in others if self._ranking.separated(best, name)],
            "kendall_default_tuned": kendall((row["rank"].value, row["default_rank"]) for row in ranked),
            "kendall_trials": kendall((row["rank"].value, row["trials"]) for row in ranked),
            "trials_run": sum(len(entry.short) for entry in self.entries),
            "trials_planned": sum(len(entry.search.trials) for entry in self.entries),
            "complete": sum(not entry.left_out for entry in self.entries),
            "few_compared": sum(len(entry.compared) < FEW_COMPARED for entry in self.entries),
            "fronts": {
                cost: front({row["method"]: (row[cost], row["gain"].value) for row in ranked})
                for cost in ("megabytes", "seconds")
            },
            "importance": importance(self.entries, own=False).to_dict(),
            "importance_r2": explained(self.entries),
            "ranking": rows,
            "unranked": self.unranked,
            "advice": [{**finding.to_dict(), "over": _over(finding)} for finding in self._advice],
            "entries": entries,
            "hours": sum(each["search_seconds"] + each["final_seconds"] for each in entries) / 3600,
        }
        # Digits beyond the sixth depend on the order of summation.
        return json_ready(found, 6)

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """One row per method: the fields of `Rank`, its mean rank with all methods at their defaults (None
        with too few scores), `Entry.figures` (means over graphs), the numbers of trials that ran and that
        were planned over all blocks, why it breaks privacy, whether it sends gradients in every local epoch,
        and what leaves a client.

        Methods that keep privacy come first, ranked among themselves; then the others, ranked among all.
        """
        import pandas

        figures = [{"method": each.method, "graph": each.block[0], **each.figures()} for each in self.entries]
        means = pandas.DataFrame(figures).groupby(["method", "graph"]).mean().groupby("method").mean()
        default = Ranking(self._field("default").only(self._private))
        by_default = dict(zip(default.methods, default.mean_ranks.tolist(), strict=True))

        def row(rank: Rank) -> dict[str, Any]:
            name = rank.method
            own = [each for each in self.entries if each.method == name]
            return {
                **vars(rank),
                "default_rank": by_default.get(name),
                **means.loc[name].to_dict(),
                "trials": sum(len(each.short) for each in own),
                "planned": sum(len(each.search.trials) for each in own),
                "privacy": self.privacy.get(name, ""),
                "every_epoch": catalog.every_epoch(name.partition("[")[0]),
                "leaves": "data" if name in self.privacy else _leaves(name),
            }

        others = Ranking(self._tuned).standings if self.privacy else ()
        ranked = [*self._ranking.standings, *(each for each in others if each.method in self.privacy)]
        return [row(each) for each in ranked]

    @property
    def unranked(self) -> dict[str, float]:
        """Method → coverage, for methods with too few scores to be ranked."""
        covered = zip(self.methods, self._tuned.coverage.tolist(), strict=True)
        return {name: share for name, share in covered if share < LEAST_COVERAGE}

    @property
    def _advice(self) -> list[Finding]:
        """Findings on the advice (advice.toml) that some block here tests."""
        rows = tuned_rows((entry.method, entry.successes) for entry in self.entries)
        found = find(load_claims(ADVICE), {ARENA.stem: rows}, measured=True)
        return [finding for finding in found if finding.columns]

    @cached_property
    def _ranking(self) -> Ranking:
        return Ranking(self._tuned.only(self._private))

    @cached_property
    def _tuned(self) -> Field:
        luck = np.zeros((RESAMPLES, len(self.methods), len(self.blocks)))
        generator = np.random.default_rng(0)
        for entry in self.entries:
            luck[:, *self._place(entry)] = entry.luck(generator)
        return self._field("tuned", luck)

    @property
    def _private(self) -> list[str]:
        return [method for method in self.methods if method not in self.privacy]

    def _place(self, entry: Entry) -> tuple[int, int]:
        return self.methods.index(entry.method), self.blocks.index(entry.block)

    def _field(self, which: str, luck: np.ndarray | None = None) -> Field:
        found = np.full((len(self.methods), len(self.blocks), len(FINAL_SEEDS)), math.nan)
        for entry in self.entries:
            found[self._place(entry)] = _scores(getattr(entry, which))
        return Field(self.methods, tuple(graph for graph, _, _ in self.blocks), found, luck)


def tuned_rows(finals: Iterable[tuple[str, Sequence[Record]]]) -> list[Row]:
    """Return one row for each method and its final records on a block, under the method's name there."""
    protocol = load_protocol(str(ARENA))
    return [
        replace(row, method=method, deviations="")
        for method, records in finals
        for row in make_rows(protocol, records)
    ]


def _scores(records: Sequence[Record | None]) -> np.ndarray:
    """(draws,), NaN where there is no score."""
    return np.array([math.nan if each is None or each.score is None else each.score for each in records])


def _over(finding: Finding) -> dict[str, dict[str, list[float]]]:
    """Method → rival → difference to it: mean over the columns, smallest, largest; over several graphs also
    the smallest and largest mean if any one graph is left out."""
    found: dict[str, dict[str, list[tuple[str, float]]]] = defaultdict(lambda: defaultdict(list))
    for measured in finding.columns:
        ours = measured.column.ours.point
        for side, compared in zip(measured.column.theirs, measured.comparisons, strict=True):
            if compared is not None:
                found[ours["method"]][side.point["method"]].append((ours["dataset"], compared.difference))
    return {one: {other: _summed(each) for other, each in rivals.items()} for one, rivals in found.items()}


def _summed(differences: Sequence[tuple[str, float]]) -> list[float]:
    every, graphs = [each for _, each in differences], {graph for graph, _ in differences}
    left = [fmean(each for of, each in differences if of != graph) for graph in graphs if len(graphs) > 1]
    return [fmean(every), min(every), max(every), *(bound(left) for bound in (min, max) if left)]


def _leaves(method: str) -> str:
    """Say in one word what leaves a client; a dash for a method that is not built in."""
    name, options = parse_name(method)
    if name not in catalog.methods():
        return "–"
    leaves = catalog.leaves(name, options.items())
    if leaves == "nothing":
        return leaves
    return "models" if catalog.models_only(name, options.items()) else "statistics"


def gains(figures: Iterable[Mapping[str, Any]], rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the gain of each paper's own method over the paper's rival. `printed` and `reproduced` (measured
    under the paper's protocol) are means over the `figures` of accuracy that have both (`Entry.to_dict` of
    `analysis.figures`); `tuned` compares both as tuned (`Arena.rows`), None if not measured.

    A paper's own method is printed with its name alone or with one word more, as in `NAME 1-hop`. A word
    with `=` is a setting of a study.
    """
    found = defaultdict(list)
    for figure in figures:
        # reproduction.json leaves out empty values.
        gain = figure.get("gain", {})
        own = re.fullmatch(rf"{re.escape(figure['paper'])}( [^\s=]+)?", figure["method"])
        if own and figure["metric"] == "accuracy" and {"printed", "measured"} <= gain.keys():
            found[figure["paper"], gain["over"]].append((gain["printed"], gain["measured"]))
    titles = {name: catalog.describe(name).title for name in catalog.methods()}
    tuned = {titles.get(row["method"], row["method"]): row["gain"].value for row in rows}
    return [
        {
            "method": paper,
            "over": over,
            "figures": len(both),
            "printed": fmean(printed for printed, _ in both),
            "reproduced": fmean(measured for _, measured in both),
            "tuned": tuned[paper] - tuned[over] if {paper, over} <= tuned.keys() else None,
        }
        for (paper, rival), both in found.items()
        if (over := titles.get(rival, rival)) != paper and rival.partition("[")[0] in titles
    ]


def block_of(entry: Mapping[str, Any]) -> Block:
    """Return the block of an entry (`Entry.to_dict`)."""
    return entry["dataset"], entry["partition"], entry["clients"]


def by_block(found: Mapping[str, Any]) -> dict[Block, list[dict[str, Any]]]:
    """Block → its methods in the result of `Arena.to_dict`, best tuned mean first. `default` and `tuned` are
    the method's scores over its successful draws; None without any."""
    blocks: dict[Block, list[dict[str, Any]]] = {}
    for entry in found["entries"]:
        line = {**entry, **{name: _score_over(entry[name]) for name in ("default", "tuned")}}
        blocks.setdefault(block_of(entry), []).append(line)
    for listed in blocks.values():
        listed.sort(key=lambda line: line["tuned"].mean if line["tuned"] else -1.0, reverse=True)
    return blocks


def _score_over(scores: Iterable[float | None]) -> Score | None:
    known = {draw: score for draw, score in enumerate(scores) if score is not None}
    return Score.of(known) if known else None
