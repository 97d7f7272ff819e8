"""Code from outside the tree: one loader for the four kinds, one sentence for whatever it raises."""

import importlib.metadata
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedsub.datasets import registry, splits
from fedsub.datasets.errors import UserError
from fedsub.datasets.graph import Dataset
from fedsub.datasets.partition import SCHEMES, partition
from fedsub.datasets.splits import make_split
from fedsub.datasets.synthetic import CommunityOptions, community
from fedsub.methods.core import registry as methods

SETTINGS = """

from dataclasses import dataclass, fields
from typing import ClassVar

@dataclass(frozen=True)
class Settings:
    size: int = 40
    kind: ClassVar[str] = "own"

assert [field.name for field in fields(Settings)] == ["size"]
"""
"""A dataclass looks up `ClassVar` in its module, which must therefore be in `sys.modules`."""

GRAPH = """
from fedsub.datasets.synthetic import CommunityOptions, community

def load(nodes: int = Settings().size):
    return community(CommunityOptions(nodes=nodes, communities=5))
"""
PARTITION = """
import numpy as np

def partition(dataset, clients, seed, *, shift: int = 0):
    \"\"\"Every K-th node.\"\"\"
    return (np.arange(dataset.nodes) + shift) % clients
"""
SPLIT = """
import numpy as np
from fedsub.datasets.splits.base import TEST, TRAIN

def split(labels, partition, generator, *, train: float = 0.5):
    \"\"\"One half or the other.\"\"\"
    return np.where(generator.random(len(partition.origin)) < train, TRAIN, TEST)
"""
METHOD = """
from fedsub.methods.core.base import Options, register
from fedsub.methods.fedavg import FedAvg

@dataclass(frozen=True)
class OwnOptions(Options):
    size: int = Settings().size

@register("own", title="Own", paper="none", options=OwnOptions)
class Own(FedAvg):
    pass
"""


def offer(monkeypatch: pytest.MonkeyPatch, point: importlib.metadata.EntryPoint) -> None:
    others = importlib.metadata.entry_points

    def entry_points(**group: str) -> Any:
        return [point] if group == {"group": point.group} else others(**group)

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)


def small() -> Dataset:
    return community(CommunityOptions(nodes=40, communities=5))


def split_by(scheme: str) -> splits.Split:
    dataset = small()
    return make_split(dataset.labels, partition(dataset, "random", 2, 0), scheme, 0, dataset.classes)


KINDS: dict[str, tuple[str, Callable[[str], Any], str]] = {
    "graph": (GRAPH, registry.load, registry.PLUGINS.group),
    "partition": (PARTITION, lambda name: partition(small(), name, 2, 0), SCHEMES.group),
    "split": (SPLIT, split_by, splits.SCHEMES.group),
    "method": (METHOD, methods.find, methods.GROUP),
}
"""Kind of plug-in → content of a file, function that uses it by name, and group of entry points."""


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


def test_a_dataclass_with_postponed_annotations_works_in_every_kind(kind: str, tmp_path: Path):
    text, use, _ = KINDS[kind]
    path = tmp_path / "own.py"
    path.write_text(SETTINGS + text)
    assert use(str(path)) is not None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1\nx / 0", r"ZeroDivisionError: .*, own.py line 2\): fix"),
        ("import sys\nsys.exit(3)", r"SystemExit: 3, own.py line 2\): fix"),
        (b"\xff\xfe", r"cannot be imported \(SyntaxError"),
        (None, "check the path"),
    ],
)
def test_a_file_that_cannot_be_imported_is_one_sentence_in_every_kind(
    kind: str, tmp_path: Path, text: str | bytes | None, words: str
):
    path = tmp_path / "own.py"
    if text is not None:
        path.write_bytes(text.encode() if isinstance(text, str) else text)
    before = set(sys.modules)
    with pytest.raises(UserError, match=words) as raised:
        KINDS[kind][1](str(path))
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)
    assert not {name for name in set(sys.modules) - before if name.startswith("fedsub_plugin")}


def test_a_plug_in_says_which_of_its_options_cannot_stand_together(tmp_path: Path):
    path = tmp_path / "own.py"
    path.write_text(
        f"""{SPLIT}
from fedsub.datasets.errors import UserError

def check_options(*, train):
    if train > 0.9:
        raise UserError("too many to train on")
"""
    )
    assert splits.SCHEMES.check(f"{path}[train=0.9]") == {"train": 0.9}
    assert splits.SCHEMES.check(str(path)) == {}
    with pytest.raises(UserError, match="too many"):
        splits.SCHEMES.check(f"{path}[train=0.95]")


def test_an_edited_file_is_read_again(tmp_path: Path):
    path = tmp_path / "own.py"
    for size in (40, 60):
        # the same length in the same second: Python's cache of compiled files would not notice
        path.write_text((SETTINGS + GRAPH).replace("40", str(size)))
        assert registry.load(str(path)).nodes == size
    assert registry.load(str(path)).nodes == 60
    assert not (tmp_path / "__pycache__").exists()


def test_an_entry_point_that_cannot_be_imported_is_one_sentence(kind: str, monkeypatch: pytest.MonkeyPatch):
    _, use, own_group = KINDS[kind]
    offer(monkeypatch, importlib.metadata.EntryPoint("theirs", "no_such_package:thing", own_group))
    with pytest.raises(UserError, match=r"theirs cannot be imported from no_such_package:thing \(.*\): fix"):
        use("theirs")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("theirs", "tests.datasets.test_registry:plugged", "theirs is not a method: .* an @register class"),
        ("theirs", "fedsub.methods.core.base:FederatedMethod", "the plug-in theirs is not a method"),
        ("theirs", "fedsub.methods.fedavg:FedAvg", "registers the method fedavg: give both"),
    ],
)
def test_an_entry_point_that_is_no_method_of_its_name_stops_no_other(
    name: str, value: str, words: str, monkeypatch: pytest.MonkeyPatch
):
    offer(monkeypatch, importlib.metadata.EntryPoint(name, value, methods.GROUP))
    assert name in methods.names()
    assert methods.find("fedavg").info.name == "fedavg"
    with pytest.raises(UserError, match=words):
        methods.find(name)


@pytest.mark.parametrize(
    ("kind", "result", "words"),
    [
        ("split", "[0, 1]", r"int64 values of shape \(2,\): give one role for each of the 40 copies"),
        ("split", "[7] * 40", "0 to train"),
        ("split", "1 / 0", r"fails \(ZeroDivisionError: .*, own.py line 2\): fix the plug-in"),
        ("graph", "3", "returns int"),
        ("graph", "__import__('fedsub').load('coraa')", "^unknown dataset 'coraa'"),
    ],
    indirect=["kind"],
)
def test_a_plug_in_that_breaks_its_contract_is_one_sentence(
    kind: str, tmp_path: Path, result: str, words: str
):
    path = tmp_path / "own.py"
    head = {"split": "split(labels, partition, generator)", "graph": "load()"}[kind]
    path.write_text(f"def {head}:\n    return {result}\n")
    with pytest.raises(UserError, match=words) as raised:
        KINDS[kind][1](str(path))
    assert "\n" not in str(raised.value)


def test_a_new_file_in_the_folder_is_all_that_a_scheme_or_split_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):

    (tmp_path / "every_other.py").write_text(f'"""`every-other`: in turn."""\nVERSION = 3\n{PARTITION}')
    (tmp_path / "coin_flip.py").write_text(f'"""`coin-flip`: heads or tails."""\n{SPLIT}')
    packages = (sys.modules["fedsub.datasets.splits"], sys.modules["fedsub.datasets.partition"])
    for package in packages:
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    assert "every-other" in SCHEMES.names()
    assert SCHEMES.summary("every-other") == "in turn."
    assert SCHEMES.version("every-other") == 3
    assert SCHEMES.version("random") == 1
    assert partition(small(), "every-other[shift=1]", 2, 0).scheme == "every-other[shift=1]"
    assert splits.SCHEMES.version("coin-flip") == 1
    assert split_by("coin-flip").train.any()
    for package in packages:
        for name in ("every_other", "coin_flip"):
            sys.modules.pop(f"{package.__name__}.{name}", None)
