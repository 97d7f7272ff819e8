"""How near a round of FedAvg comes to what the machine allows.

Three ceilings are measured in the same run, one thread each: the rate of a large matrix product; the rate
of copying, at a size as large as all that a round touches; and the rate of copying inside the second-level
cache. Of every operation are counted its floating-point operations, the bytes it must move if each operand
is read and each result written once, and the bytes that a sparse product gathers: a row of the dense
operand for every non-zero, which no order of the work avoids. An operation's limit is the largest of the
three quotients, a round's limit their sum. `tests/performance` times the operations one by one.

Williams, Waterman, Patterson, Roofline: An Insightful Visual Performance Model, CACM 2009.
"""

from __future__ import annotations

import statistics
import timeit
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from fedsub.benchmark.studies.peers.pipe import timed
from fedsub.benchmark.studies.subjects import make_federation, make_method, one_round
from fedsub.methods.core.base import FederatedMethod
from fedsub.methods.stacked.segments import large_product

DATASETS = ("cora", "pubmed", "amazon_computers")
FLOAT = INDEX = 4
"""Bytes of a number and of an index."""
COPY_BYTES = tuple(2**power for power in range(17, 31))
"""Sizes of source and destination together, 128 KiB to 1 GiB."""
CACHE_BYTES = 2**20
"""A copy of this size stays in the second-level cache."""
WARM_UP = 3
"""Rounds before those that count."""
BOUNDS = ("arithmetic", "bandwidth", "gathering")
"""What can set an operation's limit."""


@dataclass(frozen=True)
class Ceilings:
    """What the machine can do, one thread."""

    flops: float
    """Floating-point operations a second of a large float32 matrix product."""
    copy: Mapping[int, float]
    """Bytes a second, read and written, of copying within so many bytes."""

    def rates(self, touched: float) -> np.ndarray:
        """Operations and bytes a second, in the order of `BOUNDS`, when a round touches so many bytes.

        The bandwidth of copying is interpolated between the sizes measured.
        """
        sizes = sorted(self.copy)
        bandwidth = np.interp(np.log2(touched), np.log2(sizes), [self.copy[size] for size in sizes])
        cached = max(rate for size, rate in self.copy.items() if size <= CACHE_BYTES)
        return np.array([self.flops, bandwidth, cached])


def measure_ceilings() -> Ceilings:
    """The best of several repetitions of each. Runs in a fresh process."""
    side = 1536
    left, right, out = (torch.rand(side, side) for _ in range(3))
    product = min(
        _best(lambda: torch.mm(left, right, out=out), 1, 8), _best(lambda: large_product(left, right), 1, 8)
    )
    copy = {}
    for size in COPY_BYTES:
        source, target = torch.rand(size // 2 // FLOAT), torch.empty(size // 2 // FLOAT)
        copy[size] = size / _best(lambda s=source, t=target: t.copy_(s), max(1, 2**26 // size), 7)  # type: ignore[misc]
    return Ceilings(2 * side**3 / product, copy)


def _best(work: Callable[[], object], times: int, repetitions: int) -> float:
    """Seconds of `work`, done so many times at a stretch, in the fastest repetition after one untimed."""
    return min(timeit.repeat(work, number=times, repeat=repetitions + 1)[1:]) / times


def count_work(method: FederatedMethod) -> tuple[dict[str, np.ndarray], float]:
    """The work of a round of one local epoch and one evaluation, by operation, and the bytes it touches.

    Work is (3,): floating-point operations, bytes moved, bytes gathered. The method, GCN with sparse features
    and a linear classifier, has been built. A product
    in training is done forwards and backwards, in evaluation forwards: three times. What is touched: weights,
    gradients and Adam's two moments, inputs, and the layers' outputs with their gradients.
    """
    federation, hidden = method.federation, method.setting.architecture.hidden
    folded = method.inputs.propagated is not None
    features = method.inputs.propagated or method.inputs.features
    nodes, classes = federation.nodes, federation.classes
    edges = int(federation.graph.num_edges()) + nodes
    parameters = sum(value.numel() for value in method.parameters.values())
    rows, scores, outputs = nodes * FLOAT, classes * FLOAT, [*hidden, classes]

    dense = _work()
    for inner, outer in pairwise(outputs):
        weight = federation.clients * inner * outer * FLOAT
        # Backwards there are two products: for the input and for the weight.
        dense += 4 * _work(2 * nodes * inner * outer, rows * (inner + outer) + weight)
    nonzeros, present = len(features.matrix.values()), len(features.rows_present) * FLOAT
    # Features that were propagated at set-up spare the first layer its propagation.
    propagated = [3 * _sparse(edges, nodes, width * rows, width * rows, width) for width in hidden[folded:]]
    active = [_work(3 * nodes * width, 7 * width * rows + nodes * width / 8) for width in hidden]
    work = {
        "feature product": 3 * _sparse(nonzeros, nodes, present * hidden[0], rows * hidden[0], hidden[0]),
        "propagation": sum(propagated, _work()),
        "dense layers": dense,
        # The classifier's bias: added twice, summed once.
        "bias, ReLU, dropout": sum(active, _work(3 * nodes * classes, 5 * classes * rows)),
        "dropout masks": _work(moved=nodes * sum(hidden) / 8),
        "loss": _work(moved=(int(federation.train.sum()) + nodes) * scores),
        "Adam": _work(12 * parameters, 7 * parameters * FLOAT),
        "mixing": _work(2 * parameters, 2 * parameters * FLOAT),
        "scoring": _work(moved=(nodes + int(federation.validation.sum())) * scores),
    }
    stored = 2 * (nonzeros + edges) * (FLOAT + INDEX)
    return work, 4 * parameters * FLOAT + stored + 4 * sum(outputs) * rows


def _work(flops: float = 0.0, moved: float = 0.0, gathered: float = 0.0) -> np.ndarray:
    return np.array([flops, moved, gathered], dtype=float)


def _sparse(nonzeros: int, rows: int, read: float, written: float, width: int) -> np.ndarray:
    matrix = nonzeros * (FLOAT + INDEX) + (rows + 1) * INDEX
    return _work(2 * nonzeros * width, matrix + read + written, nonzeros * width * FLOAT)


def measure_round(dataset: str, clients: int, ceilings: Ceilings, budget: float = 3.0) -> dict[str, Any]:
    """A round of FedAvg: its seconds, and its limit in all and by operation. Runs in a fresh process.

    `budget` is how long the timed rounds may take, at least five of them.
    """
    method = make_method(make_federation(dataset, clients))
    method.build()
    step = one_round(method)
    (*_, probe), _ = timed(step, WARM_UP)
    seconds, _ = timed(step, max(5, min(60, int(budget / probe))))
    counted, touched = count_work(method)
    limits = {name: work / ceilings.rates(touched) for name, work in counted.items()}
    operations = {
        name: {"limit": float(limit.max()), "bound": BOUNDS[limit.argmax()]} for name, limit in limits.items()
    }
    return {
        "dataset": dataset,
        "clients": clients,
        "seconds": statistics.median(seconds),
        "fastest": min(seconds),
        "slowest": max(seconds),
        "rounds": len(seconds),
        "limit": sum(limit.max() for limit in limits.values()),
        "touched": touched,
        "operations": operations,
        "ceilings": asdict(ceilings),
    }
