"""Rows of leaderboards: repetitions averaged, with the printed figures they answer."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from operator import attrgetter, sub
from typing import Any

from fedsub.benchmark.analysis import metrics
from fedsub.benchmark.analysis.paired import leading
from fedsub.benchmark.analysis.published import Figure, answered_figures
from fedsub.benchmark.analysis.trials import text
from fedsub.benchmark.records.record import OK, Record
from fedsub.benchmark.spec import catalog
from fedsub.benchmark.spec.catalog import FEDAVG
from fedsub.benchmark.spec.cell import FIELDS, Block, Cell
from fedsub.benchmark.spec.custom import by_name
from fedsub.benchmark.spec.plan import outdated_parts
from fedsub.benchmark.spec.protocol import Protocol, bare
from fedsub.benchmark.spec.settings import SETTINGS
from fedsub.datasets.errors import UserError
from fedsub.datasets.options import parse_name

POINTS = 25
"""Largest number of points of a drawn curve."""
DEFAULTS = {name: FIELDS[name].default for name in SETTINGS}


@dataclass(frozen=True)
class Score:
    """A mean over seeds and the printed figure it answers."""

    mean: float
    std: float | None
    """Sample standard deviation; None for a single seed."""
    published: Figure | None
    by_seed: Mapping[int, float] = field(default_factory=dict)

    @classmethod
    def of(cls, by_seed: Mapping[int, float], published: Figure | None = None) -> "Score":
        """Return the mean of these values."""
        std = statistics.stdev(by_seed.values()) if len(by_seed) > 1 else None
        return cls(statistics.fmean(by_seed.values()), std, published, by_seed)


@dataclass(frozen=True)
class Row:
    """Repetitions of one cell over seeds."""

    cell: Cell
    """Cell of the first record; the others differ only in their seed."""
    method: str
    """Method, spelled as in the table."""
    deviations: str
    """How the cell deviates from its protocol, an earlier version included; empty if it does not."""
    records: tuple[Record, ...]
    """One record per seed, sorted by seed."""
    scores: Mapping[str, Score] = field(default_factory=dict)
    outdated: tuple[str, ...] = ()
    """Parts with a changed version (`outdated_parts`): the present code would give other figures."""
    chosen: tuple[str, ...] = ()
    """Choices made on the table (`Protocol.chosen_for`); empty for a row that deviates or is outdated."""
    same_as_fedavg: int = 0
    """Number of its runs that did nothing beyond FedAvg."""

    @property
    def block(self) -> Block:
        """Dataset, partition and number of clients; each block is a table of its own."""
        return self.cell.block

    @property
    def backbone(self) -> str:
        """Name of the backbone."""
        return self.records[0].backbone

    @property
    def privacy(self) -> str:
        """Why the method breaks privacy, or empty."""
        return self.records[0].privacy

    @property
    def point(self) -> dict[str, Any]:
        """Its place on every axis of the protocol's grid."""
        return {**self.cell.point, "method": self.method}

    def values_of(self, metric: str) -> dict[int, float]:
        """Seed → value of a score that its records hold (`metrics.value_of`)."""
        found = {record.cell.seed: metrics.value_of(record, metric) for record in self.records}
        return {seed: value for seed, value in found.items() if value is not None}

    @property
    def by_client(self) -> dict[str, float]:
        """Client → its test score in percent (`metrics.kept_score`), mean over seeds; empty if the records
        name no clients."""
        found: dict[str, list[float]] = {}
        for record in self.records:
            names = record.extras.get("client_names", ())
            # Older records have names but no scores of clients.
            for name, score in zip(names, record.result.by_client.get("test", ()), strict=False):
                if score is not None:
                    found.setdefault(name, []).append(score)
        return {name: statistics.fmean(scores) for name, scores in found.items()}

    @property
    def exposed(self) -> tuple[int, int, str]:
        """The fewest and most nodes that a run of the method cannot protect, and why."""
        known = self.cell.method in catalog.methods()
        count, *why = (catalog.describe(self.cell.method).exposes if known else ()) or ("", "")
        nodes = [int(record.extras.get(count, 0)) for record in self.records] if count else [0]
        return min(nodes), max(nodes), "".join(why)

    @property
    def is_rival(self) -> bool:
        """Whether it competes for the best of its block: it exposes nothing, follows its protocol, and never
        equals FedAvg."""
        return not (self.privacy or self.deviations or self.same_as_fedavg or self.exposed[1])


@dataclass(frozen=True)
class Leaderboard:
    """A protocol with its records and rows, shared by all pages."""

    protocol: Protocol
    records: Sequence[Record]

    @cached_property
    def rows(self) -> list[Row]:
        """The rows of these records (`make_rows`)."""
        return make_rows(self.protocol, self.records)


def make_rows(protocol: Protocol, records: Iterable[Record]) -> list[Row]:
    """Return one row of successful records per cell without its seed, in the order of the protocol's grid."""
    groups: dict[str, dict[int, Record]] = {}
    for record in records:
        if record.status == OK:
            groups.setdefault(record.cell.group, {})[record.cell.seed] = record
    drafts = []
    for group in groups.values():
        by_seed = tuple(group[seed] for seed in sorted(group))
        method = min(record.cell.variant for record in by_seed)
        row = Row(by_seed[0].cell, method, "", by_seed)
        deviations, outdated = _deviations(protocol, row), outdated_parts(row.cell)
        chosen = () if deviations or outdated else protocol.chosen_for(**row.point)
        drafts.append(replace(row, deviations=deviations, outdated=outdated, chosen=chosen))
    shown = _without_replaced(drafts)
    fedavg = {_setting(row): row.records for row in shown if row.method == FEDAVG}
    rows = []
    for draft in shown:
        base = {record.cell.seed: record for record in fedavg.get(_setting(draft), ())}
        # FedAvg itself is not counted as doing nothing beyond FedAvg.
        runs = () if draft.cell.method == FEDAVG else draft.records
        idle = sum(metrics.was_fedavg(record, base.get(record.cell.seed)) for record in runs)
        rows.append(replace(draft, scores=_scores(protocol, draft, shown), same_as_fedavg=idle))
    return sorted(rows, key=lambda row: _order(protocol, row))


def _without_replaced(drafts: Iterable[Row]) -> list[Row]:
    """Drop rows of an earlier version if a current row has the same place and the same deviations or none.
    The remaining ones are marked as an earlier version in their deviations."""
    current = {(_place(row), row.deviations) for row in drafts if not row.outdated}
    shown = []
    for row in drafts:
        if not row.outdated:
            shown.append(row)
        elif current.isdisjoint((_place(row), deviations) for deviations in ("", row.deviations)):
            earlier = f"earlier version ({', '.join(row.outdated)})"
            shown.append(replace(row, deviations=", ".join(filter(None, (earlier, row.deviations)))))
    return shown


def _place(row: Row) -> tuple[Any, ...]:
    return (*row.point.values(), row.cell.files)


def blocks_of(rows: Iterable[Row]) -> list[tuple[Block, list[Row]]]:
    """Group neighbouring rows by block."""
    return [(block, list(members)) for block, members in groupby(rows, key=lambda row: row.block)]


def metrics_of(protocol: Protocol, rows: Iterable[Row]) -> list[str]:
    """Scores that any of the rows has: the protocol's, then that of link prediction, then those that select
    the rows' rounds."""
    held = {metric for row in rows for metric in row.scores}
    listed = [metric for metric in protocol.scores if metric in held]
    return [*listed, *sorted(held - {*listed})]


def best_of(rows: Iterable[Row], metric: str) -> list[Row]:
    """Return the `leading` of the rows that compete (`is_rival`): several if they are equal as printed, none
    if methods do not compete on the metric."""
    rivals = [row for row in rows if row.is_rival and metric in row.scores and metrics.more_is_better(metric)]
    best = leading({place: row.scores[metric].by_seed for place, row in enumerate(rivals)})
    return [row for place, row in enumerate(rivals) if place in best]


def _scores(protocol: Protocol, row: Row, others: Iterable[Row]) -> dict[str, Score]:
    scores = {}
    for metric in dict.fromkeys((*protocol.scores, *filter(None, (row.cell.selects_by,)))):
        if by_seed := _by_seed(metric, row, others):
            figure = None if row.deviations else next(answered_figures(protocol, metric, **row.point), None)
            scores[metric] = Score.of(by_seed, figure)
    return scores


def _by_seed(metric: str, row: Row, others: Iterable[Row]) -> dict[int, float]:
    """Seed → value of the metric; empty if the metric does not apply to the row."""
    scheme = bare(row.point["partition"])
    for prefix, axis, own in ((metrics.GAIN, "method", row.method), (metrics.CHANGE, "partition", scheme)):
        if metric.startswith(prefix):
            name = metric.removeprefix(prefix)
            return {} if name == own else _against(axis, name, row, others, attrgetter("score"), sub)
    if found := row.values_of(metric):
        return found
    if metric.startswith(metrics.COMMUNICATION):
        name = metric.removeprefix(metrics.COMMUNICATION)
        return _against("method", name, row, others, metrics.bytes_sent, lambda own, base: 100 * own / base)
    if metric == metrics.MODEL_SIZE:
        # Methods without masks do not report it. Fewer bytes than FedAvg's may mean that a part of the model
        # stays local, more that other data are sent with it.
        above = _against("method", FEDAVG, row, others, lambda record: record.bytes.get("up") or None, sub)
        return {seed: 100.0 for seed, difference in above.items() if difference == 0}
    return {}


def same_data(row: Row, others: Iterable[Row]) -> list[Row]:
    """Those of the others whose data are the row's. A graph that changed between runs keeps its name; the
    digests of the files differ. That of a plug-in method covers the method too, so that its rows fit others
    only if these have one state."""
    known = row.cell.method in catalog.methods() and row.cell.files
    others = [*others]
    same = [other for other in others if other.cell.files == row.cell.files]
    loose = [other for other in others if not (known and other.cell.files)]
    return same or (loose if len({other.cell.files for other in loose}) < 2 else [])


def _setting(row: Row) -> tuple[Any, ...]:
    """Key that is equal for compared methods."""
    return row.block, row.backbone, row.deviations


def _against(
    axis: str,
    value: str,
    row: Row,
    others: Iterable[Row],
    read: Callable[[Record], float | None],
    compare: Callable[[float, float], float],
) -> dict[int, float]:
    """Compare each record's figure, seed by seed, with that of the row with the same settings and `value` on
    the axis. A partition also matches by its bare name. Seeds without both figures are left out."""
    if row.outdated:
        # The other row has other draws, or is outdated too.
        return {}
    place = {**row.point, axis: value}
    found = (
        other
        for other in others
        if {**other.point, axis: value} == place and other.deviations == row.deviations
        if value == other.point[axis] or (axis == "partition" and value == bare(other.point[axis]))
    )
    base = {record.cell.seed: read(record) for other in same_data(row, found) for record in other.records}
    pairs = {each.cell.seed: (read(each), base.get(each.cell.seed)) for each in row.records}
    return {
        seed: compare(own, theirs)
        for seed, (own, theirs) in pairs.items()
        if own is not None and theirs is not None
    }


def _deviations(protocol: Protocol, row: Row) -> str:
    """List the settings, options and partition that differ from the protocol's for the row's cell."""
    expected = DEFAULTS | protocol.settings_for(**row.point)
    # A cell holds the name of a user's file and a digest of its content.
    expected["split"] = by_name("split", expected["split"])
    actual = {**row.cell.to_dict(), "selection_metric": bare(row.cell.schedule.selection_metric)}
    found = [f"{name}={text(actual[name])}" for name in SETTINGS if actual[name] != expected[name]]
    dataset, partition, _ = row.block
    printed = {name for block in protocol.published for name in block.partition}
    # With options that the table's scheme lacks, a partition answers no printed figure.
    unlike = partition not in printed and bare(partition) in printed
    if unlike and partition not in protocol.grid_for(dataset=dataset, method=row.method)["partition"]:
        found.append(f"partition={partition}")
    try:
        _, given = parse_name(row.method)
    except UserError:
        given = {}
    wanted = {**protocol.options_for(**row.point), **given}
    options, chosen = row.records[0].options, dict(row.cell.options)
    found += [
        f"{name}={text(options.get(name))}"
        for name in sorted({*wanted, *chosen})
        if name not in wanted or options.get(name) != wanted[name]
    ]
    return ", ".join(found)


def _order(protocol: Protocol, row: Row) -> tuple[Any, ...]:
    """Sort key: the grid's order on every axis; values outside the grid come last, by name."""
    grid = protocol.grid_for(dataset=row.block[0])
    dataset, partition, backbone, method = (
        ([*grid[axis], row.point[axis]].index(row.point[axis]), row.point[axis])
        for axis in ("dataset", "partition", "backbone", "method")
    )
    return dataset, partition, row.cell.clients, backbone, method, row.deviations


def mean_curve(records: Sequence[Record]) -> list[tuple[int, float]]:
    """Return (round, test score in percent), mean over the records with the same rounds as the first. At most
    `POINTS` points, the last round among them; empty if the first record has no curve."""
    rounds = records[0].curve.get("round", []) if records else []
    curves = [each.curve.get("test", []) for each in records if each.curve.get("round", []) == rounds]
    kept = sorted({round(place * (len(rounds) - 1) / (POINTS - 1)) for place in range(POINTS)})
    return [
        (int(rounds[place]), statistics.fmean(values))
        for place in (kept if rounds else ())
        if (values := [curve[place] for curve in curves if curve[place] is not None])
    ]


def clients_of(rows: Iterable[Row]) -> dict[Block, dict[str, float]]:
    """Return block → statistics of its clients (`datasets.partition.statistics`), mean over the draws of the
    first row that has them."""
    found: dict[Block, dict[str, float]] = {}
    for row in rows:
        drawn = [record.result.partition_statistics for record in row.records]
        if row.block in found or not all(drawn):
            continue
        found[row.block] = {
            name: statistics.fmean(values)
            for name in drawn[0]
            if len(values := [value for each in drawn if (value := each.get(name)) is not None]) == len(drawn)
        }
    return found
