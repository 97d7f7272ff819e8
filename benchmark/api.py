"""Python interface: `run`, `tune` and `results`."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from numbers import Integral, Real
from operator import index
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import networkx
import numpy as np
import torch

from fedsub.benchmark.analysis.frame import Results
from fedsub.benchmark.analysis.trials import Outcome, Trials
from fedsub.benchmark.execution.callbacks.base import Callback
from fedsub.benchmark.execution.callbacks.loggers import CellLogger
from fedsub.benchmark.execution.run import execute
from fedsub.benchmark.execution.tuning import CAP
from fedsub.benchmark.execution.tuning import tune as search
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.spec import custom
from fedsub.benchmark.spec.custom import NOUNS
from fedsub.benchmark.spec.request import MOST_SEEDS, Request
from fedsub.benchmark.spec.settings import setting_from_text, takes_list
from fedsub.benchmark.spec.space import TRIALS
from fedsub.datasets import registry as graphs
from fedsub.datasets.errors import UserError
from fedsub.datasets.graph import Dataset
from fedsub.datasets.options import Spec, format_value
from fedsub.datasets.own import as_own
from fedsub.datasets.partition import SCHEMES, Partition
from fedsub.datasets.partition.base import clients_from, is_grouped, of_component
from fedsub.methods.core import registry
from fedsub.methods.core.base import FederatedMethod
from fedsub.methods.stacked.backbones import BACKBONES


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
    checkpoint: float = 600.0,
    save: str | Sequence[str] = (),
    progress: bool = True,
    **settings: Any,
) -> Results:
    """Run every combination of what is given, and return the records.

    `dataset`, `partition`, `clients`, `method` and `backbone` are each one thing or a list. What is left out
    comes from the `table`: a protocol's name or the path of a .toml file, else the default protocol.

    - `dataset`: a name (`fedsub list`), with options as `"community[nodes=500]"`; a path; a
      `fedsub.datasets.Dataset`, a PyG `Data`, a DGLGraph or a networkx graph
    - `partition`: a scheme's name or path; a function `(dataset, clients, seed) -> array`; the client of
      every node, as an array, a list or a dict; a list of sets of nodes
    - `method`: a name or path, or a subclass of `FederatedMethod` marked by `@register`
    - `backbone`: a name or path, or a function `(features, classes) -> torch.nn.Module`
    - `seeds`: how many, from 0, or a list
    - `results`: the folder that keeps the records; finished cells in it are not run again. None keeps nothing
    - `workers`: processes. With one, cells run in this process; with more, a script needs Python's usual
      `if __name__ == "__main__":`
    - `callbacks`: called after every round with a `fedsub.benchmark.execution.callbacks.Round`. One that
      raises `Stop` ends its cell (with one worker)
    - `checkpoint`: seconds between two checkpoints of a cell, from which it goes on after an interruption;
      0 keeps none. Needs `results`
    - `save`: `predictions`, `model`, `embeddings` of each cell, in `saved/KEY` of the results folder; KEY is
      `Record.stored_key`. A finished cell leaves them only with `rerun`
    - `progress`: whether finished cells are told on standard error
    - `settings`: those of a protocol: `rounds`, `local_epochs`, `learning_rate`, `weight_decay`, `hidden`,
      `dropout`, `split`, `task`, `largest_component`, `features`, `device`, … A list of values makes a grid:
      `learning_rate=[0.01, 0.03]`

    A cell that fails does not stop the others: `Results.failures` holds it, and a warning names it. Raises
    UserError for an unknown name or setting, for a graph that cannot be had, and where every cell fails.
    """
    given = _Given()
    _check_callbacks(callbacks)
    if save and results is None:
        raise UserError("save needs results: name the folder in which the files are to lie")
    with _folder(results) as folder, _threads_kept(), _closed(callbacks):
        request = given.request(
            dataset,
            partition,
            clients,
            method,
            settings,
            rerun=rerun,
            table=tuple(map(str, _listed(table))),
            backbone=tuple(given.backbone(each) for each in _listed(backbone)),
            seeds=_seeds(seeds),
            results=folder,
            workers=workers,
            threads=threads,
            checkpoint=checkpoint if results or checkpoint != Request.checkpoint else 0.0,
            save=tuple(_listed(save)) if save else (),
        )
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
    answer = Results(tuple(found[cell.key] for cell in done.plan.cells if cell.key in found))
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
    trials: int = TRIALS,
    cap: float = CAP,
    results: str | Path | None = None,
    workers: int = 1,
    threads: int = 1,
    progress: bool = True,
    **settings: Any,
) -> Trials:
    """Search for the settings of each method on each graph, and return the trials.

        found = tune("cora", "louvain", 10, "fedprox", workers=2)
        run("cora", "louvain", 10, seeds=5, **found.best())

    The defaults come first, then points of a scrambled Sobol sequence over the method's space (`fedsub list
    METHOD`), which are the same for all methods in the settings that they share. Every trial runs a third of
    the rounds on one draw of the data; the best third goes on to all rounds on two draws. Validation scores
    choose. The draws are those of the seeds 1000 and 1001: no run of other seeds sees them.

    - `trials`: how many, the defaults counted
    - `cap`: core-seconds that a method may take on a graph, in those that FedAvg takes there by default; 0:
      no cap. `Outcome.left_out` counts the trials that did not fit
    - `settings`: those of `run`; what is given is not tuned
    - the others: as in `run`. With `results` an interrupted search goes on

    Raises UserError as `run` does.
    """
    given = _Given()
    with _folder(results) as folder, _threads_kept():
        request = given.request(
            dataset,
            partition,
            clients,
            method,
            settings,
            table=tuple(map(str, _listed(table))),
            backbone=tuple(given.backbone(each) for each in _listed(backbone)),
            results=folder,
            workers=workers,
            threads=threads,
            checkpoint=Request.checkpoint if results else 0.0,
        )
        found = search(
            request,
            trials,
            cap,
            given.digests,
            objects=given.objects,
            warn=partial(warnings.warn, stacklevel=3),
            inform=lambda sentence: None,
            quiet=not progress,
        )
        return Trials(tuple(map(Outcome, found.standings)))


def results(folder: str | Path = "results") -> Results:
    """All records of a results folder; warns about lines that hold none. Raises UserError if it holds
    none."""
    records = Records(Path(folder))
    found = Results(tuple(records.every()))
    for sentence in records.warnings():
        warnings.warn(sentence, stacklevel=2)
    if not found.records:
        raise UserError(f"{folder} holds no records: name the folder in which runs/*.jsonl lies")
    return found


@dataclass
class _Given:
    """Objects passed to `run`, by kind and name, with digests of their content."""

    objects: dict[tuple[str, str], Any] = field(default_factory=dict)
    digests: dict[tuple[str, str], str] = field(default_factory=dict)

    def request(
        self,
        dataset: Any,
        partition: Any,
        clients: Any,
        method: Any,
        settings: Mapping[str, Any],
        **others: Any,
    ) -> Request:
        """The request for these; `others` are further fields of it."""
        return Request(
            dataset=tuple(self.dataset(each) for each in _listed(dataset)),
            partition=tuple(self.partition(each, dataset) for each in _partitions(partition)),
            method=tuple(self.method(each) for each in _listed(method)),
            clients=tuple(int(each) if isinstance(each, Integral) else each for each in _listed(clients)),
            settings=tuple(_settings(settings)),
            engine="in-process" if others["workers"] == 1 else "process",
            **others,
        )

    def dataset(self, given: Any) -> str:
        """Register a graph; returns its name."""
        if isinstance(given, (str, Spec, Path)):
            return str(given)
        found: Dataset = as_own(given)
        return self._add("dataset", found.name, found, custom.of_dataset(found), graphs.names())

    def partition(self, given: Any, graph: Any) -> str:
        """Register a partition of a graph; returns its name."""
        if isinstance(given, (str, Spec, Path)):
            return str(given)
        if callable(given):
            name, digest = getattr(given, "__name__", "own").replace("_", "-"), custom.of_object(given)
            return self._add("partition", name.strip("<>"), given, digest, SCHEMES.names())
        nodes = list(graph.nodes) if isinstance(graph, networkx.Graph) else None
        fixed = list(given.nodes) if isinstance(given, Partition) else clients_from(given, nodes)
        parts = [np.asarray(part) for part in (fixed if isinstance(fixed, list) else [fixed])]
        digest = custom.of_arrays(parts)
        return self._add("partition", "own", partial(_fixed, clients_of=fixed), digest, SCHEMES.names())

    def method(self, given: Any) -> str:
        """Register a method; returns its name."""
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
        return self._add("method", name, given, custom.of_object(given), registry.names())

    def backbone(self, given: Any) -> str:
        """The name under which a network is known from here on."""
        if isinstance(given, (str, Path)):
            return str(given)
        if not callable(given):
            raise UserError(f"a backbone cannot be {given!r}: give a name, a path, a function or a class")
        name = getattr(given, "__name__", "own").strip("<>")
        return self._add("backbone", name, given, custom.of_object(given), BACKBONES.names())

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


def _partitions(given: Any) -> list[Any]:
    """One partition or several as a list; a list of clients, or of sets of nodes, is one."""
    several = _listed(given)
    numbers = all(isinstance(each, (bool, Real, np.bool_)) for each in several)
    return [given] if several and (numbers or is_grouped(given)) else several


def _listed(given: Any) -> list[Any]:
    """One value or several as a list; an array is one value. Raises UserError for an empty list, which would
    choose nothing.
    """
    if isinstance(given, list) and not given:
        raise UserError("an empty list chooses nothing: leave the argument out to take the table's own")
    return list(given) if isinstance(given, (list, tuple)) else [given]


def _check_callbacks(callbacks: Any) -> None:
    """Raises UserError unless it is a list of functions."""
    if not isinstance(callbacks, Sequence) or not all(map(callable, callbacks)):
        raise UserError(f"callbacks must be a list of functions that take a round, not {callbacks!r}")


def _seeds(given: int | Sequence[int]) -> tuple[int, ...]:
    wrong = UserError(f"seeds is how many, at least 1, or a list of whole numbers; it is {given!r}")
    try:
        counted = given if isinstance(given, Iterable) else range(min(index(given), MOST_SEEDS + 1))
        seeds = tuple(map(index, counted))
    except TypeError:
        raise wrong from None
    if not (seeds or isinstance(given, tuple)):
        raise wrong
    return seeds


def _settings(given: Mapping[str, Any]) -> Iterator[str]:
    """Settings in the form `name=value`; a list of values makes a grid."""
    for name, value in given.items():
        several = isinstance(value, list) and (not takes_list(name) or any(map(_is_list, value)))
        for each in value if several else [value]:
            setting = f"{name}={'+'.join(map(str, each)) if _is_list(each) else format_value(each)}"
            setting_from_text(setting, "run")
            yield setting


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


@contextmanager
def _folder(results: str | Path | None) -> Iterator[Path]:
    """The results folder, or a temporary one."""
    if results is not None:
        yield Path(results)
        return
    with TemporaryDirectory(prefix="fedsub-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextmanager
def _closed(callbacks: Sequence[Callback]) -> Iterator[None]:
    """Close the runs that callbacks keep open for failed cells."""
    try:
        yield
    finally:
        for callback in callbacks:
            if isinstance(callback, CellLogger):
                callback.close()


@contextmanager
def _threads_kept() -> Iterator[None]:
    """Set the threads for cells in this process, and restore the program's own afterwards."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)
