"""What changes the fingerprint of a class or a function, and what does not."""

from __future__ import annotations

import functools
import math
import threading
import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import dgl
import numpy as np
import pytest
import torch

from fedsub import datasets, run
from fedsub.benchmark.spec import fingerprints
from fedsub.datasets.errors import UserError
from fedsub.datasets.graph import Dataset

SOURCE = '''
from dataclasses import dataclass
import torch
from fedsub.methods.core.base import Options, register
from fedsub.methods.fedavg import FedAvg

SHIFT = 0.5


def helper(x):
    """What it does."""
    return [each + SHIFT for each in x]


@dataclass(frozen=True)
class MineOptions(Options):
    mu: float = 0.25
    """Its meaning."""


@register("mine", title="Mine", paper="none", options=MineOptions)
class Mine(FedAvg):
    """What it is."""

    size = 3

    @torch.no_grad()
    def average(self):
        """Doc."""
        # A comment.
        return helper(super().average())

    @property
    def both(self):
        return lambda x: x * 2
'''


def fingerprint_of(source: str, module: str = "some_module") -> str:
    found = types.ModuleType(module)
    # Dataclasses look their module up by its name.
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(__import__("sys").modules, module, found)
        exec(source, found.__dict__)
        return fingerprints.of_object(found.Mine)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# A comment.", "# Another one,\n        # longer."),
        ('"""What it is."""', '"""What it really is."""'),
        ('"""What it does."""', '"""What it really does."""'),
        ('"""Its meaning."""', '"""Its real meaning."""'),
        ("SHIFT = 0.5", "SHIFT = 0.5\nUNUSED = 7"),
    ],
)
def test_what_changes_no_figure_changes_no_fingerprint(old: str, new: str) -> None:
    assert SOURCE.count(old) == 1
    assert fingerprint_of(SOURCE.replace(old, new)) == fingerprint_of(SOURCE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("SHIFT = 0.5", "SHIFT = 0.75"),
        ("each + SHIFT", "each - SHIFT"),
        ("mu: float = 0.25", "mu: float = 0.5"),
        ("size = 3", "size = 4"),
        ("x * 2", "x * 3"),
        ("helper(super().average())", "super().average()"),
        ("(FedAvg)", "(FedAvg, object)"),
    ],
)
def test_what_may_change_a_figure_changes_the_fingerprint(old: str, new: str) -> None:
    assert SOURCE.count(old) == 1
    assert fingerprint_of(SOURCE.replace(old, new)) != fingerprint_of(SOURCE)


def test_the_name_of_its_module_does_not_count() -> None:
    assert fingerprint_of(SOURCE, "one") == fingerprint_of(SOURCE, "two")


def test_a_graph_is_known_by_its_edges_features_and_labels() -> None:
    graph = datasets.load("community", nodes=300)
    again = datasets.load("community", nodes=300)
    assert fingerprints.of_dataset(graph) == fingerprints.of_dataset(again)
    labels = graph.labels.clone()
    labels[0] = -1
    other = Dataset(graph.name, graph.graph, graph.features, labels, graph.classes)
    assert fingerprints.of_dataset(graph) != fingerprints.of_dataset(other)
    years = [np.full(300, year) for year in (2003, 2004)]
    masks = np.zeros((3, 1, 300), dtype=bool)
    known = [replace(graph, attributes={"year": year}) for year in years]
    known += [replace(graph, attributes={"born": years[0]}), graph, replace(graph, official=masks)]
    known += [replace(graph, official=~masks), replace(graph, classes=graph.classes + 1)]
    assert len({fingerprints.of_dataset(each) for each in known}) == len(known)
    assert fingerprints.of_arrays([np.arange(3)]) != fingerprints.of_arrays([np.arange(3.0)])


def test_equal_values_count_each_time() -> None:
    first = SOURCE.replace("size = 3", "a, b, c = 3, 4, 3")
    second = SOURCE.replace("size = 3", "a, b, c = 3, 4, 4")
    assert fingerprint_of(first) != fingerprint_of(second)


def cut(nodes: int, *, how: Any = 0) -> Any:
    return how


class Cut:
    """A callable object, which may hold itself."""

    def __init__(self, how: Any) -> None:
        self.how = how
        self.lock = threading.Lock()
        self.me = self

    def __call__(self, nodes: int) -> Any:
        return self.how

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "lock"}


def closing_over(how: Any) -> Callable[..., Any]:
    return lambda nodes: how


def looking_up(how: Any) -> Callable[..., Any]:
    """A function of a module of its own, in which TABLE is `how`."""
    names: dict[str, Any] = {"TABLE": how, "__name__": "some_module"}
    exec("def own(nodes):\n    return TABLE", names)
    found: Callable[..., Any] = names["own"]
    return found


HOLDERS = {
    "partial": lambda how: functools.partial(cut, how=how),
    "partial of a partial": lambda how: functools.partial(functools.partial(cut, how=how)),
    "object": Cut,
    "method": lambda how: Cut(how).__call__,
    "closure": closing_over,
    "variable of the module": looking_up,
    "default": lambda how: lambda nodes, how=how: how,
    "cached": lambda how: functools.lru_cache(closing_over(how)),
}
HELD = {
    "number": (lambda: 0, lambda: 1),
    "array": (lambda: np.arange(3), lambda: np.arange(3) % 2),
    "masked array": (
        lambda: np.ma.array([1, 2], mask=[False, True]),
        lambda: np.ma.array([1, 2], mask=[True, False]),
    ),
    "array of objects": (lambda: np.array([1, "a"], object), lambda: np.array([2, "a"], object)),
    "number of numpy": (lambda: np.int64(1), lambda: np.int64(2)),
    "tensor": (lambda: torch.arange(3), lambda: torch.arange(3) % 2),
    "half tensor": (lambda: torch.ones(2).bfloat16(), lambda: torch.zeros(2).bfloat16()),
    "sparse tensor": (lambda: torch.eye(3).to_sparse_csr(), lambda: 2 * torch.eye(3).to_sparse_csr()),
    "graph": (lambda: dgl.graph(([0], [1])), lambda: dgl.graph(([1], [0]))),
    "generator of draws": (lambda: np.random.default_rng(0), lambda: np.random.default_rng(1)),
    "lists": (lambda: [[1], [2, 3]], lambda: [[1, 2], [3]]),
    "list or tuple": (lambda: [1], lambda: (1,)),
    "set": (lambda: {"a", ("b", 1)}, lambda: {"a", ("b", 2)}),
    "dictionary of functions": (lambda: {"a": closing_over(1)}, lambda: {"a": closing_over(2)}),
    "function of C": (lambda: math.sin, lambda: math.cos),
    "ufunc": (lambda: np.add, lambda: np.subtract),
    "module": (lambda: math, lambda: np),
    "path": (lambda: Path("a"), lambda: Path("b")),
    "object": (lambda: Cut(1), lambda: Cut(2)),
    "large constant": (lambda: lambda x: [x * 2000], lambda: lambda x: [x * 3000]),
}


@pytest.mark.parametrize("holder", HOLDERS.values(), ids=HOLDERS.keys())
@pytest.mark.parametrize(("one", "other"), HELD.values(), ids=HELD.keys())
def test_what_a_function_or_an_object_holds_counts_by_its_content(
    holder: Callable[[Any], Any], one: Callable[[], Any], other: Callable[[], Any]
) -> None:
    found = [fingerprints.of_object(holder(each())) for each in (one, one, other)]
    assert found[0] == found[1]
    assert found[0] != found[2]


def test_circles_end() -> None:
    circles: list[list[Any]] = [[1], [2]]
    for each in circles:
        each.append(each)
    assert len({fingerprints.of_object(Cut(each)) for each in circles}) == 2


def test_an_attribute_is_no_variable_of_the_module() -> None:
    with_variable = SOURCE.replace("SHIFT = 0.5", "SHIFT = 0.5\naverage = open")
    assert fingerprint_of(with_variable) == fingerprint_of(SOURCE)


@pytest.mark.parametrize(
    "unread",
    [lambda: (x for x in [1]), lambda: np.frompyfunc(abs, 1, 1), lambda: torch.empty(1, device="meta")],
)
def test_what_cannot_be_read_is_refused(unread: Callable[[], Any]) -> None:
    with pytest.raises(UserError, match=r"that a partial holds cannot be told .*: make it where it is used"):
        fingerprints.of_object(functools.partial(cut, how=unread()))


def test_a_stored_record_is_not_that_of_another_partial(tmp_path: Path) -> None:
    def sliced(dataset: Dataset, clients: int, seed: int, *, alternating: bool) -> np.ndarray:
        nodes = np.arange(dataset.nodes)
        return nodes % clients if alternating else nodes * clients // dataset.nodes

    edges = [
        run(
            dataset="community[nodes=120]",
            partition=functools.partial(sliced, alternating=alternating),
            clients=3,
            method="local",
            seeds=1,
            rounds=1,
            results=tmp_path,
        )
        .records[0]
        .result.partition_statistics["inter_edges"]
        for alternating in (False, True)
    ]
    assert edges[0] != edges[1]
