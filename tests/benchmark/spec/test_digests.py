"""Which changes alter the digest of a user's class, function or graph, or of a method, and which do not."""

import functools
import importlib.util
import linecache
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from fedsub import datasets
from fedsub.benchmark.spec import digests, sources
from fedsub.datasets.errors import UserError
from fedsub.datasets.graph import Dataset

SOURCE = '''
SHIFT = 0.5


def helper(x):
    """What it does."""
    return [each + SHIFT for each in x]


class Mine:
    """What it is."""

    def average(self):
        # A comment.
        return helper([1])
'''


def digest_of(folder: Path, source: str) -> str:
    (folder / "some.py").write_text(source)
    spec = importlib.util.spec_from_file_location("some", folder / "some.py")
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "some", module)
        exec(compile(source, folder / "some.py", "exec"), module.__dict__)
        return digests.of_object(module.Mine)


@pytest.mark.parametrize(
    ("old", "new", "counts"),
    [
        ("# A comment.", "# Another one,\n        # longer.", False),
        ('"""What it is."""', '"""What it really is."""', False),
        ('"""What it does."""', "", False),
        ("SHIFT = 0.5", "SHIFT = 0.75", True),
        ("each + SHIFT", "each - SHIFT", True),
        ("helper([1])", "[1]", True),
    ],
)
def test_only_code_counts(tmp_path: Path, old: str, new: str, counts: bool) -> None:
    assert (digest_of(tmp_path, SOURCE.replace(old, new)) != digest_of(tmp_path, SOURCE)) is counts


NOTEBOOK = """
from types import SimpleNamespace
import numpy as np
STEPS = [1, 2]
TABLE = np.arange(9)
SHIFT = 0.25
class Extra:
    share: float = 0.5
class Base:
    def start(self):
        return 7
class Mine(Base):
    info = SimpleNamespace(options=Extra)
    def average(self):
        return [STEPS[each] + SHIFT + np.sum(TABLE) for each in range(2)]
"""


@pytest.mark.parametrize(
    ("old", "new"), [("2]", "3]"), ("0.25", "0.75"), ("0.5", "0.1"), ("7", "8"), ("9)", "8)")]
)
def test_in_a_notebook_bases_options_and_variables_count(old: str, new: str) -> None:
    found, module = [], ModuleType("some")
    for source in (NOTEBOOK, NOTEBOOK, NOTEBOOK.replace(old, new)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, "some", module)
            patch.setitem(linecache.cache, "<cell>", (len(source), None, source.splitlines(True), "<cell>"))
            exec(compile(source, "<cell>", "exec"), module.__dict__)
            found.append(digests.of_object(module.Mine))
    assert found[0] == found[1] != found[2]


def test_a_graph_is_known_by_its_edges_features_and_labels() -> None:
    graph = datasets.load("community", nodes=300)
    assert digests.of_dataset(graph) == digests.of_dataset(datasets.load("community", nodes=300))
    labels = graph.labels.clone()
    labels[0] = -1
    years = [np.full(300, year) for year in (2003, 2004)]
    masks = np.zeros((3, 1, 300), dtype=bool)
    graphs = [replace(graph, attributes={"year": year}) for year in years]
    graphs += [replace(graph, attributes={"born": years[0]}), graph, replace(graph, official=masks)]
    graphs += [replace(graph, official=~masks), replace(graph, classes=graph.classes + 1)]
    graphs += [Dataset(graph.name, graph.graph, graph.features, labels, graph.classes)]
    assert len({digests.of_dataset(each) for each in graphs}) == len(graphs)
    assert digests.of_arrays([np.arange(3)]) != digests.of_arrays([np.arange(3.0)])


def cut(nodes: int, *, how: Any = 0) -> Any:
    return how


def closing_over(how: Any) -> Callable[..., Any]:
    return lambda nodes: how


HOLDERS: dict[str, Callable[[Any], Any]] = {
    "partial": lambda how: functools.partial(cut, how=how),
    "closure": closing_over,
    "default": lambda how: lambda nodes, how=how: how,
    "cached": lambda how: functools.lru_cache(closing_over(how)),
}
HELD: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "number": (lambda: 0, lambda: 1),
    "array": (lambda: np.arange(3), lambda: np.arange(3) % 2),
    "tensor": (lambda: torch.arange(3), lambda: torch.arange(3) % 2),
    "lists": (lambda: [[1], [2, 3]], lambda: [[1, 2], [3]]),
    "list or tuple": (lambda: [1], lambda: (1,)),
    "dictionary of functions": (lambda: {"a": closing_over(1)}, lambda: {"a": closing_over(2)}),
}


@pytest.mark.parametrize("holder", HOLDERS.values(), ids=HOLDERS.keys())
@pytest.mark.parametrize(("one", "other"), HELD.values(), ids=HELD.keys())
def test_values_that_a_function_holds_count(
    holder: Callable[[Any], Any], one: Callable[[], Any], other: Callable[[], Any]
) -> None:
    found = [digests.of_object(holder(each())) for each in (one, one, other)]
    assert found[0] == found[1]
    assert found[0] != found[2]


def test_without_source_or_plain_values_it_is_refused() -> None:
    with pytest.raises(UserError, match="holds a generator"):
        digests.of_object(functools.partial(cut, how=(x for x in [1])))
    names: dict[str, Any] = {"__name__": "nowhere"}
    exec("def own(nodes):\n    return 1", names)
    with pytest.raises(UserError, match="cannot read the source of own"):
        digests.of_object(names["own"])


def test_the_list_holds_the_methods_as_they_are() -> None:
    assert not sources.edited(), (
        "records of these methods no longer answer: raise its version where figures move, or see "
        "`python -m benchmark verify 20 --method …` find no difference; then `make sources`"
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "base.py").write_text("one = 1\n")
    (tmp_path / "local.py").write_text('"""A method."""\none = 1\n')
    sources.write(tmp_path)
    return tmp_path


def test_comments_docstrings_and_shared_modules_change_no_method(folder: Path) -> None:
    assert sources.edited(folder) == {}
    (folder / "local.py").write_text('"""Another."""\none = 1  # A comment.\n')
    (folder / "core" / "base.py").write_text("one = 2\n")
    assert sources.edited(folder) == {}


def test_other_code_and_new_files_are_told(folder: Path) -> None:
    (folder / "local.py").write_text("one = 2\n")
    (folder / "new.py").write_text("one = 1\n")
    assert [*sources.edited(folder)] == ["local.py", "new.py"]
