"""`run` and `results`: the benchmark from Python."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from numbers import Integral, Real
from operator import index
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import torch

from fedsub.benchmark.analysis.frame import Results
from fedsub.benchmark.execution.artifacts import Saving
from fedsub.benchmark.execution.availability import keep_available
from fedsub.benchmark.execution.callbacks.base import Callback
from fedsub.benchmark.execution.callbacks.loggers import CellLogger
from fedsub.benchmark.execution.callbacks.relay import relayed
from fedsub.benchmark.execution.checkpoints import Checkpoints
from fedsub.benchmark.execution.engines import Engine, RunCell, create_engine
from fedsub.benchmark.execution.leases import Leases
from fedsub.benchmark.execution.queue import Queue
from fedsub.benchmark.execution.runner import Beside, attempt, failed
from fedsub.benchmark.execution.scheduler import run_queue
from fedsub.benchmark.records.folder import Records, answers, run_once
from fedsub.benchmark.records.record import OK, Record
from fedsub.benchmark.spec import fingerprints
from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.custom import NOUNS
from fedsub.benchmark.spec.plan import make_plan
from fedsub.benchmark.spec.protocol import setting_from_text
from fedsub.benchmark.spec.request import Request
from fedsub.datasets import registry as graphs
from fedsub.datasets.errors import UserError
from fedsub.datasets.graph import Dataset
from fedsub.datasets.options import Spec, format_value
from fedsub.datasets.own import as_own
from fedsub.datasets.partition import SCHEMES, Partition
from fedsub.datasets.partition.base import of_component
from fedsub.datasets.plugins import Handed, handed_over
from fedsub.methods.core import registry
from fedsub.methods.core.base import FederatedMethod


def run(
    dataset: Any = (),
    partition: Any = (),
    clients: int | Sequence[int] = (),
    method: Any = (),
    *,
    table: str | Sequence[str] = (),
    backbone: str | Sequence[str] = (),
    seeds: int | Sequence[int] = (),
    results: str | Path | None = None,
    workers: int = 1,
    threads: int = 1,
    callbacks: Sequence[Callback] = (),
    rerun: bool = False,
    checkpoint: float = 600.0,
    save: str | Sequence[str] = (),
    **settings: Any,
) -> Results:
    """Run every combination of what is given, and return the records.

    Each of `dataset`, `partition`, `clients`, `method` and `backbone` is one thing or a list of them; what is
    left out is that of the `table` (a protocol's name or the path of a .toml file, else the default one).

    - `dataset`: a name (`python -m benchmark --list`), with options as `"community[nodes=500]"`, a path, a
      `datasets.Dataset`, a PyG `Data`, a DGLGraph or a networkx graph;
    - `partition`: a scheme's name or path, a function `(dataset, clients, seed) -> array`, or an array with
      the client of every node;
    - `method`: a name or path, or a subclass of `methods.core.base.FederatedMethod` marked by `@register`;
    - `seeds`: how many, from 0, or a list of them;
    - `results`: a folder in which records are kept, and finished cells not run again; None keeps nothing;
    - `workers`: processes; with one, cells run in this process; a script that asks for more needs Python's
      usual `if __name__ == "__main__":`;
    - `callbacks`: called after every round with a `benchmark.execution.callbacks.Round`, in this process;
      with several workers on a thread beside them;
    - `checkpoint`: with `results`, seconds after which a cell that runs so long is kept, and kept again; one
      that was interrupted goes on from there; 0 keeps none;
    - `save`: with `results`, what a cell leaves there in `saved/KEY`: predictions, model, embeddings
      (`benchmark.execution.artifacts.Saving` says what is in each; KEY is `Record.stored_key`); a finished
      cell leaves nothing without `rerun`;
    - `settings`: those of a protocol: `rounds`, `local_epochs`, `learning_rate`, `weight_decay`, `hidden`,
      `dropout`, `split`, `task`, `largest_component`, `features`, `device`, …

    A cell that fails does not stop the others: it is in `Results.failures`, and a warning says so.
    Raises UserError, in one sentence, for an unknown name (with the nearest ones), for a setting that cannot
    be, for a graph that cannot be had, and where every cell fails.
    """
    given = _Given()
    _check_counts(workers, threads, checkpoint)
    _check_callbacks(callbacks)
    saving = _saving(results, save)
    replaced = tuple(f"{name}={_text(value)}" for name, value in settings.items())
    for setting in replaced:
        setting_from_text(setting, "run")
    request = Request(
        rerun=rerun,
        table=tuple(map(str, _listed(table))),
        dataset=tuple(given.dataset(each) for each in _listed(dataset)),
        partition=tuple(given.partition(each) for each in _listed(partition)),
        method=tuple(given.method(each) for each in _listed(method)),
        clients=tuple(map(_clients_count, _listed(clients))),
        backbone=tuple(_listed(backbone)),
        seeds=_seeds(seeds),
        settings=replaced,
        results=Path(results or ""),
    )
    with handed_over(given.objects):
        cells = _cells(request, given)
        kept = None if results is None else Records(Path(results))
        records = {} if rerun or kept is None else _done(kept, cells)
        if saving is not None and (count := sum(map(saving.lacks, records.values()))):
            sentence = f"{count} finished cells lack some of {', '.join(saving.kinds)}: give rerun=True"
            warnings.warn(sentence, stacklevel=2)
        waiting = run_once(cell for cell in cells if cell.key not in records)
        _check_can_run(waiting, kept)
        spread = workers > 1 and len(waiting) > 1
        with _threads_kept(), _closed(callbacks), _told(waiting, callbacks, spread) as told:
            checkpoints = None
            if results is not None and checkpoint:
                checkpoints = Checkpoints(Path(results).resolve(), checkpoint)
            beside: Beside = {"callbacks": tuple(told), "checkpoints": checkpoints}
            if saving is not None:
                beside["save"] = saving
            work = RunWithObjects(given.objects, partial(attempt, **beside))
            engine = create_engine("process" if spread else "in-process", workers, threads, len(waiting))
            with closing(_made(engine, work, waiting, kept, request)) as made:
                records |= {record.key: record for record in made}
    _answer_equal(cells, records, kept)
    answer = Results(tuple(records[cell.key] for cell in cells))
    if answer.failures:
        first = answer.failures[0]
        said = f"{len(answer.failures)} of {len(cells)} cells failed; {first.cell.title}: {first.error}"
        if len(answer.failures) == len(cells):
            raise UserError(said)
        warnings.warn(said, stacklevel=2)
    return answer


def results(folder: str | Path = "results") -> Results:
    """Every record of a results folder; warns of lines that hold none. Raises UserError if it holds none."""
    records = Records(Path(folder))
    found = Results(tuple(records.every()))
    for sentence in records.warnings():
        warnings.warn(sentence, stacklevel=2)
    if not found.records:
        raise UserError(f"{folder} holds no records: name the folder in which runs/*.jsonl lies")
    return found


@dataclass(frozen=True)
class RunWithObjects:
    """Runs one cell; takes what was handed over along into another process."""

    objects: Handed
    attempt: Callable[[Cell], Record]

    def __call__(self, cell: Cell) -> Record:
        """The cell's record."""
        with handed_over(self.objects):
            return self.attempt(cell)

    def __reduce__(self) -> tuple[Callable[..., RunWithObjects], tuple[Any, ...]]:
        return _unpacked, (cloudpickle.dumps(dict(self.objects)), self.attempt)


def _unpacked(objects: bytes, attempt: Callable[[Cell], Record]) -> RunWithObjects:
    # Made by the process that started this one, and passed by it.
    return RunWithObjects(cloudpickle.loads(objects), attempt)


@dataclass
class _Given:
    """What was handed over, by kind and name, and what tells its states apart."""

    objects: dict[tuple[str, str], Any] = field(default_factory=dict)
    digests: dict[tuple[str, str], str] = field(default_factory=dict)

    def dataset(self, given: Any) -> str:
        """The name under which a graph is known from here on."""
        if isinstance(given, (str, Spec, Path)):
            return str(given)
        found: Dataset = as_own(given)
        return self._add("dataset", found.name, found, fingerprints.of_dataset(found), graphs.names())

    def partition(self, given: Any) -> str:
        """The name under which a partition is known from here on."""
        if isinstance(given, (str, Spec, Path)):
            return str(given)
        if callable(given):
            name, digest = getattr(given, "__name__", "own").replace("_", "-"), fingerprints.of_object(given)
            return self._add("partition", name.strip("<>"), given, digest, SCHEMES.names())
        fixed = list(given.nodes) if isinstance(given, Partition) else _clients(given)
        parts = [np.asarray(part) for part in (fixed if isinstance(fixed, list) else [fixed])]
        digest = fingerprints.of_arrays(parts)
        return self._add("partition", "own", partial(_fixed, clients_of=fixed), digest, SCHEMES.names())

    def method(self, given: Any) -> str:
        """The name under which a method is known from here on."""
        if isinstance(given, (str, Spec, Path)):
            return str(given)
        if not (isinstance(given, type) and issubclass(given, FederatedMethod)):
            raise UserError(
                f"a method cannot be {given!r}: give a name, a path or a subclass of FederatedMethod"
            )
        if "info" not in vars(given):
            raise UserError(
                f"{given.__name__} has no name: put @register({given.__name__.lower()!r}, title=…, paper=…) "
                "above the class"
            )
        name = given.info.name
        if name in registry.names() and registry.find(name) is given:
            return name
        return self._add("method", name, given, fingerprints.of_object(given), registry.names())

    def _add(self, part: str, name: str, found: Any, digest: str, taken: Sequence[str]) -> str:
        # Brackets would be read as options.
        name = name.replace("[", "(").replace("]", ")")
        key = (NOUNS[part], f"{name} (own)" if name in taken else name)
        if self.digests.get(key, digest) != digest:
            raise UserError(f"two of what is given are called {name!r}: give each {key[0]} a name of its own")
        self.objects[key], self.digests[key] = found, digest
        return key[1]


def _fixed(dataset: Dataset, clients: int, seed: int, *, clients_of: Any = None) -> Any:
    if isinstance(clients_of, np.ndarray):
        return of_component(dataset, clients_of, "the array that was given")
    return clients_of


def _clients(given: Any) -> np.ndarray:
    array = np.asarray(given)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise UserError(
            f"a partition cannot be a {type(given).__name__}: give a scheme's name, a function or an array "
            "with the client of every node"
        )
    return array


def _listed(given: Any) -> list[Any]:
    """One thing or several as a list; an array is one thing.

    Raises UserError for a list without anything, which names nothing where leaving it out names all.
    """
    if isinstance(given, list) and not given:
        raise UserError("an empty list chooses nothing: leave the argument out to take the table's own")
    return list(given) if isinstance(given, (list, tuple)) else [given]


def _check_counts(workers: int, threads: int, checkpoint: float) -> None:
    """Raises UserError for a number that cannot be."""
    for name, count in (("workers", workers), ("threads", threads)):
        if not isinstance(count, Integral) or count < 1:
            raise UserError(f"{name} must be a whole number of at least 1, not {count!r}")
    if not isinstance(checkpoint, Real) or not checkpoint >= 0:
        raise UserError(f"checkpoint must be a number of seconds, or 0 for none, not {checkpoint!r}")


def _check_callbacks(callbacks: Any) -> None:
    """Raises UserError unless it is a list of functions."""
    if not isinstance(callbacks, Sequence) or not all(map(callable, callbacks)):
        raise UserError(f"callbacks must be a list of functions that take a round, not {callbacks!r}")


def _saving(results: str | Path | None, save: str | Sequence[str]) -> Saving | None:
    """What cells leave in the results folder. Raises UserError for what cannot be, and without a folder."""
    if not save:
        return None
    kinds = tuple(_listed(save))
    if results is None:
        raise UserError("save needs results: name the folder in which the files are to lie")
    return Saving(Path(results).resolve(), kinds)


def _clients_count(given: Any) -> int:
    if not isinstance(given, Integral) or given < 1:
        raise UserError(f"clients must be whole numbers of at least 1, not {given!r}")
    return int(given)


def _seeds(given: int | Sequence[int]) -> tuple[int, ...]:
    wrong = UserError(f"seeds is how many, at least 1, or a list of whole numbers; it is {given!r}")
    try:
        seeds = tuple(map(index, given)) if isinstance(given, Iterable) else tuple(range(index(given)))
    except TypeError:
        raise wrong from None
    if any(seed < 0 for seed in seeds) or not (seeds or isinstance(given, tuple)):
        raise wrong
    return seeds


def _text(value: Any) -> str:
    """A setting as it is typed: lists with `+` between their items."""
    return "+".join(map(str, value)) if isinstance(value, (list, tuple)) else format_value(value)


def _cells(request: Request, given: _Given) -> tuple[Cell, ...]:
    plan = make_plan(request, given.digests)
    for skip in plan.skipped:
        warnings.warn(f"skipped {skip.what}: {skip.reason}", stacklevel=3)
    return plan.cells


def _check_can_run(cells: Sequence[Cell], kept: Records | None) -> None:
    """Raises UserError where the graph of a cell that is to run cannot be had, or its record not be kept."""
    _, missing = keep_available(cells, download=True)
    if missing:
        raise UserError("; ".join(f"{skip.what}: {skip.reason}" for skip in missing))
    if kept is not None:
        for name in {cell.protocol for cell in cells}:
            kept.store(name).check_writable()


def _done(records: Records, cells: Sequence[Cell]) -> dict[str, Record]:
    """Key → success that answers the cell."""
    found = ((cell.key, records.get(cell)) for cell in cells)
    return {key: record for key, record in found if record is not None and record.status == OK}


def _made(
    engine: Engine, work: RunCell, cells: Sequence[Cell], kept: Records | None, request: Request
) -> Generator[Record]:
    """The records of the cells as they are made; with a folder claimed there and kept in it."""
    if kept is None:
        yield from engine.map(work, cells, failed)
    elif cells:
        with Leases(request.results) as leases:
            queue = Queue(cells, kept, leases, request.rerun)
            yield from run_queue(engine, work, queue, kept, request)


def _answer_equal(cells: Sequence[Cell], records: dict[str, Record], kept: Records | None) -> None:
    """Add what others finished meanwhile, and the records of equal work, for cells that have none."""
    if kept is not None:
        kept.refresh()
    made = [*records.values()]
    for cell in (cell for cell in cells if cell.key not in records):
        equal = next((record for record in made if answers(record.cell, cell)), None)
        found = kept.get(cell) if equal is None and kept is not None else None
        if equal is not None:
            records[cell.key] = equal.answering(cell)
        elif found is not None:
            records[cell.key] = found


@contextmanager
def _told(cells: Sequence[Cell], callbacks: Sequence[Callback], spread: bool) -> Iterator[Sequence[Callback]]:
    """The callbacks to call where cells run."""
    if not (spread and callbacks):
        yield callbacks
        return
    with relayed(cells, callbacks) as sender:
        yield [sender]


@contextmanager
def _closed(callbacks: Sequence[Callback]) -> Iterator[None]:
    """Afterwards no callback keeps a run open, of a cell that has failed."""
    try:
        yield
    finally:
        for callback in callbacks:
            if isinstance(callback, CellLogger):
                callback.close()


@contextmanager
def _threads_kept() -> Iterator[None]:
    """Cells in this process run on as many threads as asked; afterwards the program has its own again."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)
