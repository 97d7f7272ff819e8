"""Verification: a random sample of stored records is run again and compared."""

import itertools
import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedsub.benchmark.execution.engines import Engine, RunCell
from fedsub.benchmark.execution.runner import OVER_CLIENTS, failed
from fedsub.benchmark.machine import check_device, same_code
from fedsub.benchmark.records.record import FAILED, OK, Record
from fedsub.benchmark.records.search import kept
from fedsub.benchmark.spec.custom import NamedFiles, code_of, metrics_of, user_objects_of
from fedsub.benchmark.spec.plan import versions_of
from fedsub.benchmark.spec.protocol import bare
from fedsub.datasets import registry as graphs
from fedsub.datasets.errors import UserError
from fedsub.datasets.plugins import user_objects

CURVE_TOLERANCE = 6e-5
"""Half of the last digit of a stored curve, and a little more for how it was rounded."""
SCORE_TOLERANCE = 2.0
"""Points by which a cell's scores may move if its sums are rounded differently. Of 20 runs with the oldest
instructions of torch and MKL in place of the newest, 14 agreed to the digit. Of 96 records of twelve methods
made by earlier code (run again at cae824d), 91 agreed; the largest change of a score was 0.48."""
FEW_NODES, FEW_TOLERANCE = ("minority_accuracy", "macro_f1"), 6.0
"""Scores that depend on nodes of rare classes, and the points by which they may move. FedLap on Chameleon,
ten clients, seed 1: the score of the 119 minority nodes moved by 3.8, that of all nodes by 1.0 (run again at
989b87e, of 7693513, losses within 0.0001 for 49 rounds). Every score may move so if validation selects
another round. FedIIH on Chameleon-filtered, Louvain clients, seed 1: losses are equal for 41 rounds, round 82
is selected in place of 94, and the clients' own best rounds give 37.9 in place of 34.2. Both allowances add
up. FedIIH on Chameleon-filtered, METIS, ten clients, seed 1: test curves are equal for 12 rounds, round 33 is
selected in place of 77, the score of the minority nodes is 5.0 in place of 12.2, that of all nodes 33.5 in
place of 35.7 (run again at 9615957, of 7693513). Chosen after this was seen."""
SMALL = 1000
"""Number of all clients' nodes below which every score may move by FEW_TOLERANCE: four of some 350 test nodes
are a point. Scores of the last round of FedAdagrad and AdaFGL on Chameleon-filtered (890 nodes, Louvain
clients, seeds 1 and 0) moved by 2.5 and 3.2 (run again at cea3311). With another round too the allowances add
up: FedIIH's there, seed 3, moved by 6.2 (at ada9573b as at cc1dd32f). Chosen after these were seen."""
LAST = "_last"
"""Suffix of scores of the last round, which may move by FEW_TOLERANCE: no validation has chosen it, and
rounding grows until then. FedLap+ on Squirrel-filtered, METIS, ten clients, seed 0: losses are equal for 11
rounds and 1 % apart in the last, whose score is 30.0 in place of 26.2; the selected round's is equal (run
again at 4ca9a73, of 0ff1715). Chosen after this was seen."""
OF_ONE_CLIENT = tuple(f"_{name}" for name in OVER_CLIENTS)
"""Suffixes of scores of one or two clients. One node of a client with 40 moves them by more than
SCORE_TOLERANCE, so they are compared only if all figures must agree to the digit."""
START_TOLERANCE = 0.01
"""Relative tolerance of the loss in the first rounds: rounding has not moved it yet, other code has."""
SET_UP = "generated_neighbours"
"""Number of neighbours that a trained generator adds before the first round; it depends on rounding. On
fedpub-fig1, seed 1, it is 4,434, 4,430 and 4,436 under three settings of MKL_CBWR and the first loss 0.2892,
0.3083 and 0.2750; rerun on one machine both repeat to the digit."""
FIRST_ROUNDS = 5
"""Last of the first rounds; some tables evaluate less often than that."""
_KIND = ("cpu", "threads", "kernel", "device", "gpu", "python", "dgl", "torch", "numpy", "scipy")
"""Entries of the environment that must be equal for figures to be equal to the digit."""
CHANGED = "of user-supplied files that have changed since"
_OF_THE_RUN = ("seconds", "core_share", "peak_memory_mb", "environment", "commit", "label", "paths", "note")
"""Fields that may differ between two runs of one cell."""


def draw(
    records: Iterable[Record],
    count: int,
    max_seconds: float = math.inf,
    trust: bool = False,
    passed_over: Counter[str] | None = None,
    elsewhere: bool = False,
) -> list[Record]:
    """Draw at most `count` successes that can be run here and took at most `max_seconds`.

    Methods take turns; the draw is random but the same each time. Code that a record names by its path runs
    only with `trust`. `passed_over` counts the reasons why records could not be drawn.

    Raises UserError if no record can be drawn. Its graph and its unchanged user-supplied files must be
    available, and its versions must be the present ones.
    """
    successes = [record for record in records if record.status == OK]
    records = [record for record in successes if sum(record.seconds.values()) <= max_seconds]
    random.Random(0).shuffle(records)
    # Every method's first record comes first, then the second ones, and so on.
    turns: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)
    records.sort(key=lambda record: next(turns[record.cell.method]))
    files = NamedFiles()
    found: list[Record] = []
    hindered = Counter() if passed_over is None else passed_over
    hindered[f"took longer than {max_seconds:g} seconds"] += len(successes) - len(records)
    for record in records:
        if len(found) == count:
            break
        if reason := _hindrance(record, files, trust, elsewhere):
            hindered[reason] += 1
        else:
            found.append(record)
    if not found:
        reasons = "; ".join(f"{many} {reason}" for reason, many in (+hindered).most_common())
        reasons = reasons or "no successful record matches"
        raise UserError(f"no selected record can be run again here: {reasons}")
    return found


def _hindrance(record: Record, files: NamedFiles, trust: bool, elsewhere: bool) -> str:
    """Return why a record's cell cannot be run again, as the end of "3 records …"; empty if it can."""
    cell = record.cell
    if record.extras.get("engine") == "flower":
        return "made by --engine flower"
    if (code := code_of(cell)) and not trust:
        return f"of the code in {', '.join(code)}, which runs only with --trust"
    try:
        with user_objects(user_objects_of(cell)):
            check_device(cell.device, cell.kernel, elsewhere)
            if not graphs.is_available(cell.dataset.text):
                return f"on {cell.dataset}, which is not on this machine (fedsub data fetch)"
            metrics = [name for name in metrics_of(cell) if "[" in name]
            if [files.measured(bare(name)) for name in metrics] != metrics:
                return CHANGED
            if files.digest(cell) != cell.files:
                return CHANGED if cell.paths else "of an edited method, or of objects passed from Python"
            if versions_of(cell) != cell.versions:
                return "of earlier versions of the code"
    except UserError as error:
        return f"that cannot be run: {error}"
    return ""


@dataclass(frozen=True)
class Rerun:
    """Comparison of a record with a new run of its cell."""

    record: Record
    """The stored record."""
    alike: bool
    """Whether processor, versions and code are the same as in the record."""
    to_the_digit: bool
    """Whether every figure is unchanged."""
    differences: tuple[str, ...]
    """A line for each figure outside its tolerance."""


def compare(records: Sequence[Record], engine: Engine, work: RunCell) -> Iterator[Rerun]:
    """Run the records' cells again and compare every figure of a record except times and memory.

    Figures must agree to the digit if processor, versions and the code of graphs and methods are the same.
    Otherwise sums may be ordered and rounded differently, which training amplifies. Then scores, except
    OF_ONE_CLIENT, must agree within SCORE_TOLERANCE. FEW_NODES, those of the LAST round or on SMALL graphs,
    and all scores if another round is selected, must agree within FEW_TOLERANCE, where two of these three
    hold within twice that. The loss of the first rounds must agree within START_TOLERANCE if SET_UP is
    unchanged. Code that changes results for another reason must raise its version, and its earlier records
    are not drawn.
    """
    before = {record.key: record for record in records}
    for again in engine.map(work, [record.cell for record in records], failed):
        stored = before[again.key]
        alike = same_code(stored.commit, "datasets", "methods") and all(
            stored.environment.get(name) == again.environment.get(name) for name in _KIND
        )
        # A label may hide which code runs.
        name = " ".join([stored.cell.title, *code_of(stored.cell)])
        place = f"{name} (recorded on {stored.environment.get('cpu', 'an unknown processor')})"
        if again.status == FAILED:
            yield Rerun(stored, alike, False, (f"{place}: {again.error}",))
            continue
        figures = stored.to_dict(), kept(again).to_dict()
        unlike = [*_unlike(*figures)]
        outside = unlike if alike else [*_unlike_scores(*figures)]
        lines = tuple(f"{place}: {what} was {was}, is {now}" for what, was, now in outside)
        yield Rerun(stored, alike, not unlike, lines)


def _unlike(stored: Mapping[str, Any], again: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for name in stored:
        if name == "curve":
            yield from _unlike_curves(stored[name], again[name])
        elif name in _OF_THE_RUN:
            continue
        elif isinstance(stored[name], dict):
            # A method's own times and memory differ as the runner's do. Figures that the method reports only
            # since the record was made are not compared.
            for key in stored[name]:
                was, now = stored[name].get(key), again[name].get(key)
                if was != now and key != "not_saved" and not {"seconds", "memory"} & set(key.split("_")):
                    yield f"{name} {key}", was, now
        elif stored[name] != again[name]:
            yield name, stored[name], again[name]


def _unlike_scores(stored: Mapping[str, Any], again: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    moved = stored["selected_round"] != again["selected_round"]
    small = (stored["partition_statistics"].get("nodes_held") or 0) < SMALL
    for name, was in stored["metrics"].items():
        now = again["metrics"].get(name)
        if name.endswith(OF_ONE_CLIENT) and None not in (was, now):
            continue
        loose = min(2, moved + (small or name.endswith(LAST)) + (name in FEW_NODES))
        tolerance = FEW_TOLERANCE * loose or SCORE_TOLERANCE
        if _differ(was, now, tolerance):
            yield f"metrics {name}", was, now
    starts = [(record["curve"].get("round"), record["curve"].get("loss")) for record in (stored, again)]
    same_start = stored["extras"].get(SET_UP) == again["extras"].get(SET_UP)
    if same_start and all(rounds and losses and rounds[0] <= FIRST_ROUNDS for rounds, losses in starts):
        was, now = (losses[0] for _, losses in starts)
        if _differ(was, now, share=START_TOLERANCE):
            yield f"loss in round {starts[0][0][0]}", was, now


def _unlike_curves(stored: Mapping[str, Any], again: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for name, curve in stored.items():
        if name in _OF_THE_RUN:
            continue
        other = again.get(name, [])
        if len(curve) != len(other):
            yield f"length of the {name} curve", len(curve), len(other)
            continue
        # A curve's bytes have three digits, rounded twice in old records; their total is compared exactly.
        share = 0.01 if name == "bytes" else 0.0
        for number, (was, now) in enumerate(zip(curve, other, strict=True), start=1):
            if _differ(was, now, CURVE_TOLERANCE, share):
                yield f"{name} curve from evaluation {number}", was, now
                break


def _differ(was: float | None, now: float | None, tolerance: float = 0.0, share: float = 0.0) -> bool:
    """Whether two figures differ by more than the larger of a tolerance and a share of the first, or one
    alone is None."""
    if was is None or now is None:
        return was is not now
    return abs(was - now) > max(tolerance, share * abs(was))
