"""Time this suite and openfgl-lib on the same clients, in alternation (A B A B …), and write the page on it.

Timings are appended to `results/performance/peers.jsonl`: on each machine the latest of a key counts.
`results/performance.md` is made from them.
"""

import json
import math
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from statistics import fmean, median
from typing import Annotated, Any

import msgspec
from scipy import stats

from fedsub.benchmark.machine import commit, environment
from fedsub.benchmark.records.latest import Latest
from fedsub.benchmark.records.record import json_ready
from fedsub.benchmark.report.writing import write_template
from fedsub.benchmark.studies.worker import Worker, WorkerError, available_memory, lacks
from fedsub.datasets.errors import UserError, check_choice
from fedsub.datasets.options import OptionValue
from fedsub.methods.core import registry

IMPORTS = "import openfgl.config, openfgl.flcore.trainer, openfgl.task.node_cls, openfgl.data.simulation"
OURS, PEER = "fedsub.benchmark.studies.peers.our_worker", "fedsub.benchmark.studies.peers.openfgl_worker"
SLOW = 30.0
"""Seconds of a peer's round from which one warm-up round is enough."""
BLOCK = 2.0
"""Seconds that a block of the slower worker should take; a block has at least one round."""
MOST_ROUNDS = 20
"""Largest number of rounds of a block."""
ANSWER = 300.0
"""Seconds to wait for a worker's answer before it counts as failed."""
FEW = 4
"""Number of graphs below which only the minimum is shown, without an interval."""
DATASETS = ("cora", "citeseer", "pubmed", "amazon_photo", "amazon_computers")
CLIENTS = (5, 10, 20, 50, 100)
SCHEDULE: dict[str, Any] = {
    "local_epochs": 1,
    "learning_rate": 0.01,
    "weight_decay": 1e-6,
    # The peer weighs clients by their nodes.
    "weighting": "nodes",
}
"""Schedule of both suites; both evaluate every client in every round."""
PLAIN: dict[str, Any] = {"backbone": "gcn", "hidden": (128,), "head": "convolution", "dropout": 0.5}
"""The peer's GCN of two layers: the second convolution is the classifier."""
MASKED: dict[str, Any] = {"backbone": "gcn", "hidden": (128, 128), "head": "linear", "dropout": 0.5}
"""The network of the peer's FED-PUB."""


@dataclass(frozen=True)
class Pairing:
    """One method in both suites."""

    method: str
    """The method's name in this suite."""
    algorithm: str
    """The method's name in the peer."""
    architecture: dict[str, Any]
    options: dict[str, OptionValue] = field(default_factory=dict)
    """The peer's variants and hyper-parameters, as options of this suite."""


PAIRINGS = {
    pairing.method: pairing
    for pairing in (
        Pairing("fedavg", "fedavg", PLAIN),
        Pairing("fedprox", "fedprox", PLAIN, {"mu": 0.001}),
        Pairing("local", "isolate", PLAIN),
        Pairing("fedpub", "fedpub", MASKED, {"tau": 10.0, "lambda1": 0.001, "lambda2": 0.001}),
        Pairing("scaffold", "scaffold", PLAIN, {"control_weights": "uniform"}),
        Pairing("moon", "moon", PLAIN),
        Pairing("feddc", "feddc", PLAIN, {"variant": "openfgl"}),
        Pairing("fedproto", "fedproto", PLAIN, {"distance": "classes", "average": "openfgl"}),
        Pairing("fedgta", "fedgta", PLAIN, {"propagation": "openfgl", "order": 10}),
        Pairing("fedtad", "fedtad", PLAIN, {"shared_over": "classes", "divergence": "l1"}),
    )
}
"""Name of the method in this suite → pairing."""


@dataclass(frozen=True)
class PeerCell:
    """One comparison: a method on a graph with a number of clients."""

    pairing: Pairing
    dataset: str
    clients: int

    @property
    def key(self) -> str:
        """Key of its record."""
        return f"{self.pairing.method} {self.dataset} {self.clients}"


def plan(datasets: Sequence[str], methods: Sequence[str], clients: Sequence[int]) -> list[PeerCell]:
    """Return the comparisons selected by the filters; an empty filter selects all.

    Raises UserError for a method, a graph or a number of clients that is not compared.
    """
    asked = (
        ("method", methods, PAIRINGS),
        ("graph", datasets, DATASETS),
        ("number of clients", clients, CLIENTS),
    )
    for kind, chosen, choices in asked:
        for name in chosen:
            check_choice(f"{kind} of the comparison", str(name), tuple(map(str, choices)))
    points = product(methods or PAIRINGS, datasets or DATASETS, clients or CLIENTS)
    return [PeerCell(PAIRINGS[method], dataset, count) for method, dataset, count in points]


def check_peer(python: Path) -> None:
    """Raises UserError if the interpreter lacks the peer."""
    if reason := lacks(python, IMPORTS):
        raise UserError(
            f"{python} has no openfgl-lib ({reason}): install it with make peers, "
            "or give another interpreter with --python"
        )


def timings(
    results: Path, cells: Sequence[PeerCell], python: Path, pairs: int, rerun: bool
) -> Iterator[dict[str, Any]]:
    """Run the comparisons that this machine has no record of (all with `rerun`); yield each new record.
    `pairs`: number of blocks of rounds of each worker."""
    kept = Measurements(results)
    for number, cell in enumerate(cells, start=1):
        if rerun or kept.lacks(cell.key):
            print(f"{number}/{len(cells)}: {cell.key}", file=sys.stderr)
            yield kept.add(cell.key, compare(cell, python, pairs))


def compare(cell: PeerCell, python: Path, pairs: int) -> dict[str, Any]:
    """Return the record of one comparison: `status` is ok or names the failed worker, and `error` the reason.

    `phases` holds, under `round`, the mean seconds of a round in every block of either worker.
    """
    values: dict[str, Any] = {
        "method": cell.pairing.method,
        "dataset": cell.dataset,
        "clients": cell.clients,
        "phases": {},
    }
    try:
        with tempfile.TemporaryDirectory(prefix="fedsub-peers-") as folder:
            task = {
                **values,
                **asdict(cell.pairing),
                "schedule": SCHEDULE,
                "seed": 0,
                "exchange": str(Path(folder) / "clients.npz"),
            }
            with (
                Worker("ours", sys.executable, OURS, ANSWER) as ours,
                Worker("peer", python, PEER, ANSWER) as peer,
            ):
                written = ours.ask({**task, "memory": available_memory(0.5)})["counts"]
                ready = peer.ask({**task, "memory": available_memory(0.9)})
                if ready["counts"] != written:
                    raise WorkerError("peer", f"the worker read {ready['counts']}, but {written} was written")
                values |= {name: ready[name] for name in ("versions", "counts")}
                values["phases"]["round"] = _interleave((ours, peer), pairs)
    except WorkerError as error:
        return {**values, "status": f"{error.worker} failed", "error": str(error)}
    return {**values, "status": "ok"}


def _interleave(workers: tuple[Worker, Worker], pairs: int) -> dict[str, Any]:
    """Warm both up, then time blocks in alternation: each worker's mean seconds of a round in every block."""

    def once(rounds: int) -> dict[str, list[float]]:
        return {each.name: each.ask({"rounds": rounds})["seconds"] for each in workers}

    warm = once(1)
    if warm["peer"][-1] < SLOW:
        # In the first command ours is built and both compile: only a second warm-up measures a round.
        warm = once(2)
    slowest = max(seconds[-1] for seconds in warm.values())
    rounds = max(1, min(MOST_ROUNDS, int(BLOCK / max(slowest, 1e-9))))
    blocks = [once(rounds) for _ in range(pairs)]
    return {
        "rounds": rounds,
        **{each.name: [fmean(block[each.name]) for block in blocks] for each in workers},
    }


Seconds = Annotated[float, msgspec.Meta(ge=1e-9, le=1e9)]


class Phase(msgspec.Struct, frozen=True):
    """Mean seconds of a round in every block of either worker."""

    ours: list[Seconds] = []
    peer: list[Seconds] = []


class Machine(msgspec.Struct, frozen=True):
    """Machine on which a timing was made."""

    cpu: str
    machine: str

    def __str__(self) -> str:
        return f"{self.cpu}; {self.machine}"


class Timing(msgspec.Struct, frozen=True):
    """Fields of a stored comparison that are read."""

    key: str
    made: Machine
    method: str = ""
    status: str = ""
    phases: dict[str, Phase] = {}

    @property
    def ratios(self) -> list[float]:
        """Ratio of the peer's seconds to ours in every pair of blocks; empty without any."""
        timed = self.phases.get("round", Phase())
        return [peer / ours for ours, peer in zip(timed.ours, timed.peer, strict=False)]


class Measurements(Latest[Timing]):
    """The stored comparisons; of each machine the latest of a key counts."""

    def __init__(self, results: Path) -> None:
        path = results / "performance" / "peers.jsonl"
        super().__init__(path, Timing, lambda each: (str(each.made), each.key))

    def lacks(self, key: str) -> bool:
        """Whether this machine has no record of the key, or only one in which our worker failed."""
        here = msgspec.convert(environment("auto", "cpu"), Machine)
        own = next((each for each in self.values() if (each.key, each.made) == (key, here)), None)
        return own is None or own.status == "ours failed"

    def add(self, key: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Append a record of `values` with the machine, the commit and the time; returns it."""
        made = {
            **environment("auto", "cpu"),
            "commit": commit(),
            "load": round(os.getloadavg()[0], 2),
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        record = {"key": key, **json_ready(values), "made": made}
        self.append(json.dumps(record, allow_nan=False))
        return record


def write_page(results: Path) -> Path:
    """Write `performance.md` from the records in the results folder; returns its path."""
    # Keys of comparisons with suites other than openfgl-lib begin with the suite's name.
    found = [
        each
        for each in Measurements(results).values()
        if each.key.partition(" ")[0] == each.method in PAIRINGS
    ]
    machines = list(dict.fromkeys(str(each.made) for each in found))
    speeds: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for each in found:
        for name in (each.method, "") if each.ratios else ():
            speeds[name, str(each.made)][each.key.split()[1]].append(median(each.ratios))
    names = {"": "all timings", **{name: registry.describe(name).title for name in PAIRINGS}}
    rows = [
        [title, *(_speed([*speeds[name, machine].values()]) for machine in machines)]
        for name, title in names.items()
    ]
    return write_template(results, "performance.md", head=["method", *machines], rows=rows, few=FEW)


def geometric_mean(graphs: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """Return (lower end, geometric mean, upper end) of the 95 % interval over graphs; each has the geometric
    mean of its values, which depend on one another."""
    logs = [fmean(map(math.log, values)) for values in graphs]
    low, high = stats.ttest_1samp(logs, 0).confidence_interval(0.95)
    return math.exp(low), math.exp(fmean(logs)), math.exp(high)


def _speed(graphs: Sequence[Sequence[float]]) -> str:
    if not graphs:
        return ""
    least = f"least {min(map(min, graphs)):.1f}×"
    if len(graphs) < FEW:
        return least
    low, mean, high = geometric_mean(graphs)
    return f"{mean:.1f}× ({low:.1f}–{high:.1f}), {least}"
