"""Printed figures with their verdicts, for the pages and `reproduction.json`."""

import shlex
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from fedsub.benchmark.analysis.agreement import (
    CANNOT,
    DIFFERS,
    MATCHES,
    NOT_MEASURED,
    VANISHED,
    Verdict,
    is_in_points,
)
from fedsub.benchmark.analysis.causes import text_of, unmeasured
from fedsub.benchmark.analysis.judged import gain_of, level_of, why_not
from fedsub.benchmark.analysis.metrics import CHANGE, COMMUNICATION, GAIN, MODEL_SIZE
from fedsub.benchmark.analysis.paired import differences_of
from fedsub.benchmark.analysis.public_code import TOLERANCE, Runs, WithAuthors, on_same_clients
from fedsub.benchmark.analysis.published import PLACE, Figure, Place, answered_figures, figures, grid_points
from fedsub.benchmark.analysis.scores import Leaderboard, Row
from fedsub.benchmark.spec.catalog import FEDAVG
from fedsub.benchmark.spec.protocol import AXES, Protocol, bare
from fedsub.datasets.options import format_value, parse_name


@dataclass(frozen=True)
class Trial:
    """A row with other settings, compared with the row that answers a printed figure."""

    changed: str
    """Its changed settings, as `--set` and the brackets of `--method` take them."""
    mean: float
    seeds: int
    difference: float | None
    """Points above the figure's row, over common seeds; None without any."""
    gain: float | None
    """Points above the printed table's baseline under the same settings, over common seeds; None without
    any."""


@dataclass(frozen=True)
class Entry:
    """One printed figure and what was measured for it."""

    figure: Figure
    """The printed figure, in our unit if a protocol answers it."""
    protocol: str
    """The protocol that answers it; empty if none does."""
    metric: str
    """Our name of the score."""
    row: Row | None
    """The row that measures it, if any."""
    level: Verdict
    gain: Verdict | None
    point: Mapping[str, Any] = field(default_factory=dict)
    """Its place on every axis of the protocol's grid; empty if no protocol answers it."""
    command: str = ""
    """Command that runs exactly its cells."""
    chosen: tuple[str, ...] = ()
    """Choices made on the table itself (`Protocol.chosen_for`)."""
    trials: tuple[Trial, ...] = ()
    """Runs with other settings, of this table or of others with the same cells."""
    authors: WithAuthors | None = None
    """The authors' own code on the clients of these records; None if it was not run."""

    @property
    def answer(self) -> tuple[str, bool]:
        """Return the verdict that counts, and whether it comes from the authors' code on our clients. A
        decision by that code takes precedence: it needs no allowance for what the paper leaves unsaid. Where
        it is undecided, print decides, but matches only if the code's mean is within its tolerance."""
        if self.authors is not None:
            found = self.authors.verdict
            doubted = self.level.word == MATCHES and abs(found.difference or 0.0) > TOLERANCE
            if doubted or found.word in (MATCHES, DIFFERS):
                return found.word, True
        return self.level.word, False

    @property
    def records(self) -> list[str]:
        """Keys of the records in the mean."""
        if self.row is None:
            return []
        seeds = self.row.scores[self.metric].by_seed
        return [record.key for record in self.row.records if record.cell.seed in seeds]

    @property
    def cause(self) -> str:
        """Why the level differs, or what was tried; empty if it does not differ."""
        return text_of(self.figure.place, "level") if self.level.word == DIFFERS else ""

    @property
    def gain_cause(self) -> str:
        """Why the difference to the baseline has vanished."""
        vanished = self.gain is not None and self.gain.word == VANISHED
        return text_of(self.figure.place, "gain") if vanished else ""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready and flat, except for the verdicts."""
        score = None if self.row is None else self.row.scores[self.metric]
        return {
            **dict(zip(PLACE, self.figure.place, strict=True)),
            "note": self.figure.note,
            "protocol": self.protocol,
            "score": self.metric,
            "printed": {
                "mean": self.figure.mean / self.figure.scale,
                "std": self.figure.std and self.figure.std / self.figure.scale,
                # Factor from the printed unit to that of the measured values and verdicts.
                "scale": self.figure.scale,
                # Only the protocol that answers the figure states these.
                "runs": self.figure.runs if self.protocol else None,
                "drawn_once": self.figure.drawn_once if self.protocol else None,
            },
            "measured": score and {"mean": score.mean, "std": score.std, "seeds": len(score.by_seed)},
            "verdict": self.answer[0],
            "authors": self.authors and _authors(self.authors),
            "level": {**_compared(self.level), **_verdict(self.level)},
            "gain": None
            if self.gain is None
            else {
                "over": self.figure.baseline,
                **_compared(self.gain),
                **_verdict(self.gain),
                "seeds": self.gain.count,
                "cause": self.gain_cause,
            },
            "chosen": [*self.chosen],
            "cause": self.cause,
            "trials": [vars(trial) for trial in self.trials],
            "records": self.records,
            "command": self.command,
        }


def make_entries(leaderboards: Iterable[Leaderboard], runs: Runs = MappingProxyType({})) -> list[Entry]:
    """Return one entry per printed figure, in the order of the list of figures.

    `leaderboards` cover all protocols, also those without records. If several rows answer a figure, data
    drawn anew for every seed come before data drawn once, or one seed; then the figure's own table before
    others, then the table with fewer methods (one with many gathers several tables), then the row with the
    most seeds.
    """
    # By place and note of the printed figure.
    candidates: dict[tuple[Place, str], list[Entry]] = {}
    protocols = {}
    # By the key of a row's first record, which several tables may share.
    equal_work: dict[str, list[tuple[Row, Sequence[Row]]]] = {}
    for leaderboard in leaderboards:
        protocol = leaderboard.protocol
        protocols[protocol.name] = protocol
        for entry in (*_planned(protocol), *measured_on(protocol, leaderboard.rows)):
            candidates.setdefault((entry.figure.place, entry.figure.note), []).append(entry)
        for row in leaderboard.rows:
            equal_work.setdefault(row.records[0].key, []).append((row, leaderboard.rows))

    def rank(entry: Entry) -> tuple[int, ...]:
        if entry.row is None:
            # A planned cell answers only if no row does: the empty tuple sorts first.
            return ()
        protocol, seeds = protocols[entry.protocol], len(entry.row.scores[entry.metric].by_seed)
        draws_anew = seeds > 1 and entry.row.cell.data_seed < 0
        return draws_anew, entry.figure.source == protocol.own_table, -len(protocol.grid["method"]), seeds

    found = []
    for printed in (figure for group in figures().values() for figure in group):
        best = max(candidates.get((printed.place, printed.note), []), key=rank, default=None)
        if best is None:
            _, _, graph, _, _, method, *_ = map(str, printed.place)
            known = unmeasured()["graph"].get(graph) or unmeasured()["method"].get(method)
            reason = known or "no cell of any protocol answers it"
            best = Entry(printed, "", "", None, Verdict(CANNOT, reason=reason), None)
        elif best.row is not None:
            authors = on_same_clients(best.row.records, best.metric, runs)
            trials = _trials(best.row, equal_work[best.row.records[0].key], best.metric, best.figure.baseline)
            best = replace(best, trials=trials, authors=authors)
        found.append(best)
    return found


def _planned(protocol: Protocol) -> Iterator[Entry]:
    for point in grid_points(protocol) if protocol.published else ():
        for metric in protocol.scores:
            for figure in answered_figures(protocol, metric, *point):
                away = unmeasured()["graph"].get(str(figure.place[2]))
                reason = why_not(metric, figure) or away
                level = Verdict(CANNOT, reason=reason) if reason else Verdict(NOT_MEASURED)
                where = dict(zip(AXES, point, strict=True))
                command = command_of(protocol, where, metric, range(protocol.seeds))
                chosen = protocol.chosen_for(**where)
                yield Entry(figure, protocol.name, metric, None, level, None, where, command, chosen)


def measured_on(protocol: Protocol, rows: Sequence[Row]) -> Iterator[Entry]:
    """Yield an entry for each printed figure that one of a protocol's rows answers."""
    for row in rows:
        if row.deviations:
            continue
        for metric in row.scores:
            for figure in answered_figures(protocol, metric, **row.point):
                yield Entry(
                    figure,
                    protocol.name,
                    metric,
                    row,
                    level_of(row, metric, figure),
                    gain_of(protocol, row, rows, metric, figure),
                    row.point,
                    command_of(protocol, row.point, metric, [*row.scores[metric].by_seed]),
                    row.chosen,
                )


def command_of(protocol: Protocol, point: Mapping[str, Any], metric: str, seeds: Sequence[int]) -> str:
    """Return the command that runs exactly the cells of a score and those it is compared with. It names
    another results folder: a clone already holds the records and would run nothing."""
    points = [point, *compared_with(protocol, point, metric)]
    words = ["python", "-m", "benchmark", "--table", protocol.name, "--results", "mine"]
    for axis in AXES:
        words += [f"--{axis}", *dict.fromkeys(str(cell[axis]) for cell in points)]
    # A single number is a count of seeds; a comma makes it a list.
    counted = [*seeds] == [*range(len(seeds))]
    listed = str(len(seeds)) if counted else "".join(f"{seed}," for seed in sorted(seeds))
    return shlex.join([*words, "--seeds", listed])


def compared_with(protocol: Protocol, point: Mapping[str, Any], metric: str) -> list[dict[str, Any]]:
    """Return the further grid points that a gain, a change, a share of bytes or a model size is computed
    from."""
    if metric == MODEL_SIZE:
        return [{**point, "method": FEDAVG}]
    for start in (GAIN, COMMUNICATION):
        if metric.startswith(start):
            return [{**point, "method": metric.removeprefix(start)}]
    if not metric.startswith(CHANGE):
        return []
    listed = protocol.grid_for(dataset=point["dataset"], method=point["method"])["partition"]
    return [{**point, "partition": name} for name in listed if bare(name) == metric.removeprefix(CHANGE)]


def _authors(found: WithAuthors) -> dict[str, Any]:
    """Return the result of the authors' code, and whether ours agrees."""
    scores = found.theirs
    return {
        "mean": statistics.fmean(scores),
        "std": statistics.stdev(scores) if len(scores) > 1 else None,
        "seeds": len(scores),
        "seconds_per_round": found.seconds_per_round,
        **_verdict(found.verdict),
    }


def _compared(verdict: Verdict) -> dict[str, float | None]:
    measured, printed = verdict.compared or (None, None)
    return {"measured": measured, "printed": printed}


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "verdict": verdict.word,
        "difference": verdict.difference,
        "interval": verdict.interval and [*verdict.interval],
        "tolerance": verdict.tolerance,
        "p_differs": verdict.p_differs,
        "seeds_to_decide": verdict.seeds,
        "reason": verdict.reason,
    }


def _trials(
    own: Row, twins: Iterable[tuple[Row, Sequence[Row]]], metric: str, baseline: str
) -> tuple[Trial, ...]:
    """Return the runs with other settings in the place of the row `own`, whose `metric` a paper prints: those
    of its own table first. `twins`: each row with the same cells, and all rows of its table.

    Empty for scores not judged in points: the settings are what they count.
    """
    if not is_in_points(metric):
        return ()
    found: dict[str, Trial] = {}
    for row, others in sorted(twins, key=lambda twin: twin[0] is not own):
        if metric not in row.scores:
            continue
        alike = (other for other in others if other.block == row.block and other.backbone == row.backbone)
        scored = [(other, other.scores[metric].by_seed) for other in alike if metric in other.scores]
        # Settings → scores of the baseline under them.
        below = {other.deviations: by_seed for other, by_seed in scored if other.method == baseline}
        for other, by_seed in scored:
            changed = _changed(row, other)
            if changed and not other.outdated:
                difference = _mean(differences_of(by_seed, row.scores[metric].by_seed))
                gain = _mean(differences_of(by_seed, below.get(other.deviations, {})))
                trial = Trial(changed, other.scores[metric].mean, len(by_seed), difference, gain)
                found.setdefault(changed, trial)
    return tuple(found.values())


def _changed(row: Row, other: Row) -> str:
    """Return the options and settings of `other` that `row` lacks; empty if it is no trial of `row`."""
    if bare(row.method) != bare(other.method) or any(score.published for score in other.scores.values()):
        return ""
    (_, given), (_, options) = parse_name(row.method), parse_name(other.method)
    # A method's name leaves out options at their defaults.
    if any(other.records[0].options.get(name) != value for name, value in given.items()):
        return ""
    added = [f"{name}={format_value(options[name])}" for name in options if name not in given]
    return ", ".join(filter(None, (*added, other.deviations)))


def _mean(differences: Mapping[int, float]) -> float | None:
    return statistics.fmean(differences.values()) if differences else None
