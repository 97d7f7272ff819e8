"""FedSub Bench: subgraph federated learning methods, measured alike.

From Python:

    from benchmark import run, results

    table = run(dataset="cora", partition="metis", clients=10, method=["fedavg", "fedpub"], seeds=5)
    table                        # in a notebook: mean ± std of every method on every graph
    table.frame()                # pandas: one row a record
    table.curves()               # one row an evaluation
    table.pivot("method", "dataset")
    results("results").frame()   # the records of a folder

Methods may be names, or classes of your own; graphs names, paths, `datasets.Dataset`, PyG, DGL or networkx
objects; every setting of a protocol is a keyword (`rounds=50, learning_rate=0.01, hidden=(64, 64)`).
`help(benchmark.run)` says more. From the command line: `python -m benchmark --help`.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmark.api import results, run
    from benchmark.frame import Results

__all__ = ["Results", "results", "run"]

_HOMES = {"Results": "benchmark.frame", "results": "benchmark.api", "run": "benchmark.api"}
"""Imported when first asked for: the command line reads its arguments before anything heavy is imported."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # DGL asks for its backend once, in words, on standard output; the answer is always torch.
    os.environ.setdefault("DGLBACKEND", "pytorch")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
