"""What changes the fingerprint of a class or a function, and what does not."""

from __future__ import annotations

import types
from dataclasses import replace

import numpy as np
import pytest

import datasets
from benchmark import fingerprints
from datasets.graph import Dataset

SOURCE = '''
from dataclasses import dataclass
import torch
from methods.core.base import Options, register
from methods.fedavg import FedAvg

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
    known.append(replace(graph, official=~masks))
    assert len({fingerprints.of_dataset(each) for each in known}) == len(known)
    assert fingerprints.of_arrays([np.arange(3)]) != fingerprints.of_arrays([np.arange(3.0)])


def test_equal_values_count_each_time() -> None:
    first = SOURCE.replace("size = 3", "a, b, c = 3, 4, 3")
    second = SOURCE.replace("size = 3", "a, b, c = 3, 4, 4")
    assert fingerprint_of(first) != fingerprint_of(second)
