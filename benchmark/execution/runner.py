"""Run of one cell: load, prepare, partition, split, federate, train."""

import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cache, partial
from operator import attrgetter
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
import torch

from fedsub.benchmark.execution.artifacts import Saving
from fedsub.benchmark.execution.callbacks import Callback, Round, Stop
from fedsub.benchmark.execution.setting import setting_of
from fedsub.benchmark.machine import ROOT, SOURCES, commit, environment, peak_memory_mb, reset_peak_memory
from fedsub.benchmark.records.record import Failure, Record, Result
from fedsub.benchmark.spec.catalog import FEDAVG
from fedsub.benchmark.spec.cell import NODE_CLASSIFICATION, Cell
from fedsub.benchmark.spec.custom import check_unchanged, paths_of, user_objects_of
from fedsub.datasets.catalogue import REGISTRY
from fedsub.datasets.errors import UserError
from fedsub.datasets.federation import Federation, federate
from fedsub.datasets.graph import (
    BETA_NOTICE,
    Dataset,
    as_array,
    binarised,
    largest_component,
    row_normalised,
    standardised,
    weakened,
)
from fedsub.datasets.partition import partition as divide
from fedsub.datasets.partition.base import Partition
from fedsub.datasets.partition.statistics import describe as describe_partition
from fedsub.datasets.plugins import user_objects
from fedsub.datasets.registry import load
from fedsub.datasets.splits import make_split
from fedsub.datasets.summary import in_words
from fedsub.datasets.synthetic import GENERATORS
from fedsub.methods.core import registry, rounds
from fedsub.methods.core.draws import seed_draws
from fedsub.methods.core.state import Checkpoint
from fedsub.methods.core.training import CheckpointError, Outcome, train
from fedsub.methods.stacked.memory import keep_freed_memory, return_freed_memory

DIVERGED = 1e5
"""A loss of this size says only that training diverged; smaller ones fit in 32 bits in a packed curve."""
OVER_CLIENTS = {"worst_client": 0.0, "client_q1": 0.25, "client_median": 0.5, "client_q3": 0.75}
"""End of the name of a score over clients → its quantile."""


class Hooks(TypedDict, total=False):
    """Optional arguments of a run; all but `apart` leave the record's figures as they are."""

    callbacks: Sequence[Callback]
    """Called after every round."""
    save: Saving
    """Writes files of the trained method."""
    checkpoint: Callable[[Cell, Federation], Checkpoint]
    """Makes the checkpoint to write and to continue from."""
    apart: Callable[[Cell, Federation], Outcome]
    """Trains with each client in a process of its own, in place of this one."""


def run(cell: Cell, **hooks: Unpack[Hooks]) -> Record:
    """Run one cell; only its record, saved files and checkpoint remain afterwards.

    Raises UserError for bad input and for a run that diverges.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=BETA_NOTICE, category=UserWarning)
        if "apart" not in hooks:
            _warm_up(cell.device)
        try:
            with user_objects(user_objects_of(cell)):
                return _run(cell, **hooks)
        finally:
            return_freed_memory()


@cache
def _warm_up(device: str) -> None:
    """Trigger torch's late imports, kernel compilation and the device's start once per process, before any
    cell is timed."""
    keep_freed_memory()
    if device != "cpu":
        torch.cuda.init()
    few = {"protocol": "", "clients": 2, "method": FEDAVG, "seed": 0, "hidden": [64, 64], "rounds": 2}
    graph = {"dataset": "community[nodes=60,communities=6]", "partition": "metis", "device": device}
    _run(Cell.from_dict({**few, **graph}))


def _run(cell: Cell, **hooks: Unpack[Hooks]) -> Record:
    reset_peak_memory()
    apart = hooks.get("apart")
    on_device = cell.device != "cpu" and not apart
    if on_device:
        torch.cuda.reset_peak_memory_stats(torch.device(cell.device))
    started, processor = time.perf_counter(), time.process_time()
    seed_draws(cell.seed)
    dataset, partition, federation = make_clients(cell)
    statistics = describe_partition(dataset, partition).to_dict()
    setting = setting_of(cell, federation)
    make_method = partial(registry.create, cell.method, dict(cell.options), setting)
    method = make_method()
    callbacks = hooks.get("callbacks", ())
    checkpoint = hooks["checkpoint"](cell, federation) if "checkpoint" in hooks else None
    setup, worked = time.perf_counter() - started, time.process_time() - processor
    check_unchanged(cell)

    def on_round(done: rounds.RoundDone) -> None:
        for callback in callbacks:
            callback(Round(cell=cell, **vars(done)))

    report = on_round if callbacks else None
    try:
        outcome = apart(cell, federation) if apart else train(method, report, checkpoint)
    except CheckpointError as error:
        warnings.warn(f"{error}; the cell starts from round 1", stacklevel=2)
        method = make_method()
        outcome = train(method, report, checkpoint)
    extras: dict[str, Any] = {"client_names": list(partition.names)} if partition.names else {}
    memory = peak_memory_mb()
    if on_device:
        extras["device_peak_memory_mb"] = torch.cuda.max_memory_allocated(torch.device(cell.device)) / 2**20
    if "save" in hooks and (missing := hooks["save"](cell.key, method)):
        extras["not_saved"] = missing
    share = (worked + outcome.processor_seconds) / (setup + sum(outcome.seconds.values()))
    chosen, own = dict(cell.options), dict(outcome.extras)
    by_round = own.pop("by_round", {})
    metrics = {**outcome.metrics, **_over_clients(outcome)}
    result = Result(
        metrics={name: float(value) * 100 for name, value in metrics.items()},
        seconds={**outcome.seconds, "setup": setup + outcome.seconds.get("setup", 0.0)},
        # Only over `seconds`: callbacks, checkpoints and saved files may wait for other things. A
        # federation's other processes do its work.
        core_share=None if apart else round(share, 3),
        selected_round=outcome.selected_round,
        peak_memory_mb=memory,
        bytes=dict(outcome.bytes),
        default_options={name: each for name, each in asdict(method.options).items() if name not in chosen},
        note=dataset.note,
        privacy=method.info.privacy_of(method.options),
        partition_statistics=statistics,
        curve={name: _curve(name, values) for name, values in {**outcome.curve, **outcome.spent}.items()},
        by_round=by_round,
        by_client={"test": [round(100 * score, 4) for score in outcome.test_by_client]},
        extras={**own, **extras},
    )
    return Record(cell, result, environment(cell.kernel, cell.device), commit())


def attempt(cell: Cell, **hooks: Unpack[Hooks]) -> Record:
    """Run a cell and turn any exception into a failed record.

    A record that could not be stored, as of a method that returns no numbers, is a failure too.
    """
    try:
        return run(cell, **hooks).reread()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # Catches SystemExit too: a plug-in must not end the whole run.
        return ended(cell, error)


def ended(cell: Cell, error: BaseException) -> Record:
    """Return the record of a cell that an exception ends: stopped by `Stop`, failed by any other."""
    if isinstance(error, UserError):
        return failed(cell, str(error))
    if isinstance(error, Stop):
        outcome = Failure(_printable(str(error) or "a callback stopped it"), stopped=True)
        return Record(cell, outcome, environment(cell.kernel, cell.device), commit())
    trace = "".join(traceback.format_exception(error))
    return failed(cell, f"{type(error).__name__}: {error}{_place(error)}", trace)


def _place(error: BaseException) -> str:
    """Return the place of an exception in user code, ` (FILE line N)`: the deepest line outside the benchmark
    and libraries; empty if there is none."""
    aside = (sys.prefix, sys.base_prefix, *(str(ROOT / name) for name in (*SOURCES, "fedsub")), "<")
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(aside)]
    return f" ({Path(own[-1].filename).name} line {own[-1].lineno})" if own else ""


def debugged(cell: Cell, **hooks: Unpack[Hooks]) -> Record:
    """Run a cell as `attempt` does, but open the debugger where it raises."""
    try:
        return run(cell, **hooks).reread()
    except Exception as error:
        import pdb

        traceback.print_exc()
        pdb.post_mortem(error.__traceback__)
        return failed(cell, f"{type(error).__name__}: {error}", traceback.format_exc())


def failed(cell: Cell, error: str, trace: str | None = None) -> Record:
    """Return the record of a failed cell."""
    failure = Failure(_printable(" ".join(error.split())), None if trace is None else _printable(trace))
    return Record(cell, failure, environment(cell.kernel, cell.device), commit())


def _printable(text: str) -> str:
    """Return `text` with lone surrogates escaped, which no file can store."""
    return text.encode("utf-8", "backslashreplace").decode()


def prepare(cell: Cell) -> Dataset:
    """Return the cell's graph, loaded and prepared by the cell's settings.

    Raises UserError if the graph cannot be obtained or read.
    """
    dataset = whole = load(cell.dataset)
    if cell.largest_component:
        dataset = largest_component(dataset)
    if cell.binarise:
        dataset = binarised(dataset)
    own = is_own(cell)
    if cell.feature_transform == "row-normalised":
        if own and as_array(dataset.features).min() < 0:
            raise UserError(
                f"some features of {dataset.name} are negative: dividing rows by their sums would change "
                "signs; set features=standardised (mean 0, deviation 1) or features=raw"
            )
        dataset = row_normalised(dataset)
    elif cell.feature_transform == "standardised":
        dataset = standardised(dataset)
    if not own:
        return dataset
    parts = [in_words(whole), whole.note]
    if lost := whole.nodes - dataset.nodes:
        parts.append(
            f"{lost:,} of {whole.nodes:,} nodes lie outside the largest component and are left out "
            "(largest_component=false keeps them)"
        )
    if cell.feature_transform == "row-normalised":
        parts.append("rows of features are divided by their sums (features=raw keeps them)")
    return replace(dataset, note="; ".join(filter(None, parts)))


def is_own(cell: Cell) -> bool:
    """Whether the cell's graph is a user's, not one of the benchmark's."""
    return cell.dataset.name not in REGISTRY and cell.dataset.name not in GENERATORS


def users_graphs(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield a line on each user's graph among the cells: what was read, and how it is prepared."""
    prepared = attrgetter("dataset", "largest_component", "binarise", "feature_transform")
    own = {(prepared(cell), paths_of(cell).get("dataset")): cell for cell in cells if is_own(cell)}
    for cell in own.values():
        # A graph that cannot be read is reported by its failing cells.
        with suppress(UserError), user_objects(user_objects_of(cell)):
            yield f"{cell.dataset}: {prepare(cell).note}"


def make_clients(cell: Cell) -> tuple[Dataset, Partition, Federation]:
    """Return the cell's graph, its partition, and the federation.

    Raises UserError if the graph cannot be obtained or partitioned.
    """
    dataset = weakened(prepare(cell), cell.class_edges_removed, cell.drawn_with)
    partition = divide(dataset, cell.partition, cell.clients, cell.drawn_with)
    split = make_split(dataset, partition, cell.split, cell.drawn_with)
    classifies = cell.task.name == NODE_CLASSIFICATION.name
    return dataset, partition, federate(dataset, partition, split, reads_roles=classifies)


def _over_clients(outcome: Outcome) -> dict[str, float]:
    """Return the minimum and quartiles of the clients' main score; clients without a score are left out."""
    main, scores = next(iter(outcome.metrics)), np.array(outcome.test_by_client, dtype=float)
    scores = scores[~np.isnan(scores)]
    if not len(scores):
        return {}
    figures = np.quantile(scores, [*OVER_CLIENTS.values()]).tolist()
    return {f"{main}_{name}": figure for name, figure in zip(OVER_CLIENTS, figures, strict=True)}


def _curve(name: str, values: Sequence[float]) -> list[float | None]:
    """Return scores in percent and losses with four decimals, bytes and seconds with three significant
    digits. A loss above DIVERGED becomes None."""
    if name == "round":
        return list(values)
    if name in ("bytes", "seconds"):
        values = [float(f"{value:.3g}") for value in values]
    if name == "loss":
        return [round(value, 4) if abs(value) < DIVERGED else None for value in values]
    return [round(value * 100 if name in ("validation", "test") else value, 4) for value in values]
