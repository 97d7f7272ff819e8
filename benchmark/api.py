"""Python interface: `run`, `tune` and `results`."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from fedsub.benchmark.analysis.frame import Results
from fedsub.benchmark.analysis.trials import Outcome, Trials
from fedsub.benchmark.execution.callbacks import Callback, CellLogger
from fedsub.benchmark.execution.run import execute
from fedsub.benchmark.execution.tuning import tune as search
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.spec.given import Given
from fedsub.benchmark.spec.request import Request
from fedsub.datasets.errors import UserError
from fedsub.datasets.files import expanded
from fedsub.datasets.plugins import running_only
from fedsub.methods.core.draws import GlobalDraws


def run(
    dataset: Any = (),
    partition: Any = (),
    clients: int | Sequence[int] = (),
    method: Any = (),
    *,
    table: str | Sequence[str] = (),
    backbone: Any = (),
    seeds: int | Sequence[int] = (),
    results: str | Path | None = None,
    workers: int = 1,
    threads: int = 1,
    callbacks: Sequence[Callback] = (),
    rerun: bool = False,
    checkpoint: float = Request.checkpoint,
    save: str | Sequence[str] = (),
    trust: bool = False,
    progress: bool = True,
    **settings: Any,
) -> Results:
    """Run every combination of the given values and return the records.

    `dataset`, `partition`, `clients`, `method` and `backbone` are each one value or a list. Omitted ones come
    from the `table`: a protocol's name or the path of a .toml file, else the default protocol.

    - `dataset`: a name (`fedsub list`), with options as `"community[nodes=500]"`; a path; a
      `fedsub.datasets.Dataset`, a PyG `Data`, a DGLGraph or a networkx graph
    - `partition`: a scheme's name or path; a function `(dataset, clients, seed) -> array`; the client of
      every node, as an array, a list or a dict; a list of sets of nodes
    - `method`: a name or path, or a subclass of `FederatedMethod` marked by `@register`
    - `backbone`: a name or path, or a function `(features, classes) -> torch.nn.Module`
    - `seeds`: the number of seeds, from 0, or a list of seeds
    - `results`: the folder that keeps the records; finished cells in it are not run again. None keeps nothing
    - `workers`: number of processes. With one, cells run in this process; with more, a script needs Python's
      usual `if __name__ == "__main__":`
    - `callbacks`: called after every round with a `fedsub.benchmark.execution.callbacks.Round`. A callback
      that raises `Stop` ends its cell as stopped, any other exception as failed; the others go on
    - `checkpoint`: seconds between two checkpoints of a cell, from which it continues after an interruption;
      0 keeps none. Needs `results`
    - `save`: `predictions`, `model`, `embeddings` of each cell, in `saved/KEY` of the results folder; KEY is
      `Record.key`. Finished cells write them only with `rerun`
    - `trust`: whether to run .py files that are named in a table but not in this call
    - `progress`: whether to report finished cells on standard error
    - `settings`: settings of a protocol: `rounds`, `local_epochs`, `learning_rate`, `weight_decay`, `hidden`,
      `dropout`, `split`, `task`, `largest_component`, `features`, `device`, … A list of values makes a grid:
      `learning_rate=[0.01, 0.03]`

    A cell that fails does not stop the others: `Results.failures` holds it, and a warning names the first.
    Raises UserError for an unknown name or setting, for an unavailable graph, and if every cell fails.
    """
    if not isinstance(callbacks, Sequence) or not all(map(callable, callbacks)):
        raise UserError(f"callbacks must be a list of functions that take a round, not {callbacks!r}")
    if save and results is None:
        raise UserError("save needs a folder for the files: give results")
    given = Given()
    with _surroundings(results, callbacks) as folder:
        request = given.request(
            folder, settings, dataset=dataset, partition=partition, clients=clients, method=method,
            table=table, backbone=backbone, seeds=seeds, workers=workers, threads=threads, rerun=rerun,
            checkpoint=checkpoint if results or checkpoint != Request.checkpoint else 0.0, save=save,
        )  # fmt: skip
        with nullcontext() if trust else running_only(request.files):
            done = execute(
                request,
                objects=given.objects,
                digests=given.digests,
                callbacks=callbacks,
                warn=partial(warnings.warn, stacklevel=3),
                inform=partial(print, file=sys.stderr) if progress else lambda sentence: None,
                quiet=not progress,
            )
    found = {**done.records, **{record.key: record for record in done.failures}}
    answer = Results(tuple(found.values()))
    if answer.failures:
        first = answer.failures[0]
        said = f"{len(answer.failures)} of {len(found)} cells failed; {first.cell.title}: {first.error}"
        if len(answer.failures) == len(found):
            raise UserError(said)
        warnings.warn(said, stacklevel=2)
    return answer


def tune(
    dataset: Any = (),
    partition: Any = (),
    clients: int | Sequence[int] = (),
    method: Any = (),
    *,
    table: str | Sequence[str] = (),
    backbone: Any = (),
    trials: int = Request.trials,
    cap: float = Request.cap,
    sampler: Any = None,
    results: str | Path | None = None,
    workers: int = 1,
    threads: int = 1,
    trust: bool = False,
    progress: bool = True,
    **settings: Any,
) -> Trials:
    """Search for the settings of each method on each graph and return the trials.

        found = tune("cora", "louvain", 10, "fedprox", workers=2)
        run("cora", "louvain", 10, seeds=5, **found.best())

    The first trial has the defaults. The others are points of a scrambled Sobol sequence over the method's
    space (`fedsub list METHOD`); all methods have the same points in the settings that they share. Every
    trial runs a third of the rounds on one draw of the data, and the best third all rounds on two draws.
    Validation scores choose. The draws have the seeds 1000 and 1001, which runs of other seeds never see.

    - `trials`: number of trials, the defaults included
    - `cap`: maximum core-seconds of a method on a graph, in units of a FedAvg run with its defaults there; 0:
      no cap. `Outcome.left_out` counts the trials that did not fit
    - `sampler`: a sampler of Optuna, such as `optuna.samplers.TPESampler(seed=0)`. A copy for each search
      chooses its trials by the scores of earlier ones, in place of the Sobol sequence. With a seed, an
      interrupted search can continue
    - `settings`: as in `run`; given settings are not tuned
    - other arguments: as in `run`. With `results` an interrupted search continues

    Raises UserError as `run` does.
    """
    given = Given()
    with _surroundings(results) as folder:
        request = given.request(
            folder, settings, dataset=dataset, partition=partition, clients=clients, method=method,
            table=table, backbone=backbone, workers=workers, threads=threads,
            checkpoint=Request.checkpoint if results else 0.0, trials=trials, cap=cap,
        )  # fmt: skip
        with nullcontext() if trust else running_only(request.files):
            found = search(
                request,
                given.digests,
                sampler,
                objects=given.objects,
                warn=partial(warnings.warn, stacklevel=3),
                inform=lambda sentence: None,
                quiet=not progress,
            )
        return Trials(tuple(Outcome(each, found.records, request) for each in found.searches))


def results(folder: str | Path = "results") -> Results:
    """Return all records of a results folder and warn about unreadable lines. Raises UserError if there are
    no records."""
    records = Records(expanded(folder))
    found = Results(tuple(records.every()))
    for sentence in records.warnings():
        warnings.warn(sentence, stacklevel=2)
    if not found.records:
        raise UserError(f"{folder} holds no records: give another results folder")
    return found


@contextmanager
def _surroundings(results: str | Path | None, callbacks: Sequence[Callback] = ()) -> Iterator[Path]:
    """Yield the results folder, or a temporary one. At the end, close the loggers' runs of failed cells and
    restore the program's number of torch threads and its random generators, which cells in this process
    change."""
    with ExitStack() as stack:
        if results is None:
            results = stack.enter_context(TemporaryDirectory(prefix="fedsub-", ignore_cleanup_errors=True))
        stack.callback(torch.set_num_threads, torch.get_num_threads())
        stack.callback(setattr, GlobalDraws(), "values", GlobalDraws().values)
        for callback in callbacks:
            if isinstance(callback, CellLogger):
                stack.callback(callback.close)
        yield expanded(results)
