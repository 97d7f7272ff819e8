"""FedSub Bench: subgraph federated learning methods, compared under equal conditions.

    from fedsub import run, results

    table = run(dataset="cora", partition="metis", clients=10, method=["fedavg", "fedpub"], seeds=5)
    table                        # in a notebook: mean ± std of every method on every graph
    table.frame()                # pandas: one row per record
    table.curves()               # one row per evaluation
    table.pivot("method", "dataset")
    results("results").frame()   # the records of a folder

Methods are names, files, or classes of your own. Graphs are names, paths, `fedsub.datasets.Dataset`, or PyG,
DGL or networkx objects. Every setting is a keyword (`rounds=50, learning_rate=0.01, hidden=(64, 64)`); a list
of values makes a grid (`learning_rate=[0.01, 0.03]`). `help(fedsub.run)` lists them.

- `run`: run methods on graphs and return the records
- `tune`: search for the settings of methods
- `check_method`: check that a method of your own keeps the benchmark's rules
- `results`: the records of a folder
- `Results`: records as tables: `frame()`, `curves()`, `by_client()`, `pivot()`
- `load`: load a graph by its name or path
- `partition`: divide a graph among clients
- `UserError`: raised with one sentence that names the cause and the remedy

On the command line: `fedsub --help`.
"""

import atexit
import importlib
import os
import shutil
import tempfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedsub.benchmark.analysis.frame import Results
    from fedsub.benchmark.api import results, run, tune
    from fedsub.datasets.errors import UserError
    from fedsub.datasets.partition import partition
    from fedsub.datasets.registry import load
    from fedsub.methods.checks import check_method

__all__ = ["Results", "UserError", "check_method", "load", "partition", "results", "run", "tune"]

_HOMES = {
    "Results": "fedsub.benchmark.analysis.frame",
    "UserError": "fedsub.datasets.errors",
    "check_method": "fedsub.methods.checks",
    "load": "fedsub.datasets.registry",
    "partition": "fedsub.datasets.partition",
    "results": "fedsub.benchmark.api",
    "run": "fedsub.benchmark.api",
    "tune": "fedsub.benchmark.api",
}
"""Name → module, imported at first use so that the command line starts before torch and DGL load."""

# Without this, DGL asks for its backend on standard output and writes the answer to the home folder.
os.environ.setdefault("DGLBACKEND", "pytorch")


def _cache_of_numba() -> None:
    """Give numba a temporary cache folder if neither the sources' nor the home folder can be written."""
    usual = (os.path.dirname(os.path.realpath(__file__)), os.path.expanduser("~"))
    if "NUMBA_CACHE_DIR" not in os.environ and not any(os.access(folder, os.W_OK) for folder in usual):
        folder = os.environ["NUMBA_CACHE_DIR"] = tempfile.mkdtemp(prefix="fedsub-numba-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)


_cache_of_numba()


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
