"""The registry: the published counts hold, names resolve, plug-ins load, bad input is one sentence."""

import importlib.metadata
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedsub.datasets import registry
from fedsub.datasets.archive import write_archive
from fedsub.datasets.catalogue import DatasetInfo
from fedsub.datasets.errors import UserError
from fedsub.datasets.files import user_cache
from fedsub.datasets.graph import Dataset, as_scipy
from fedsub.datasets.loaders.raw import RawGraph
from fedsub.datasets.summary import summarise
from fedsub.datasets.synthetic import CommunityOptions, community
from tests.datasets import formats

HERE = [name for name in registry.REGISTRY if name not in ("ogbn_arxiv", "wikics", "flickr_saint")]


def plugged(nodes: int = 50) -> Dataset:
    """A plug-in as another package would offer it."""
    return community(CommunityOptions(nodes=nodes, communities=5))


def tiny_info(**changes: object) -> DatasetInfo:
    info = replace(
        registry.info("cora"),
        name="tiny",
        nodes=formats.NODES,
        undirected_edges=formats.UNDIRECTED_EDGES,
        features=formats.FEATURES,
        classes=formats.CLASSES,
    )
    return replace(info, **changes)  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with only tiny.npz, which the registry knows."""
    monkeypatch.delenv("FEDSUB_DATA", raising=False)
    monkeypatch.setitem(registry.REGISTRY, "tiny", tiny_info())
    data = tmp_path / "data"
    raw = RawGraph(formats.SOURCE, formats.TARGET, formats.SPARSE, formats.LABELS)
    write_archive(data / "tiny.npz", raw, {"name": "tiny"})
    return data


@pytest.mark.parametrize("name", HERE)
def test_published_graphs_match_the_registry(data_directory: Path, name: str):
    dataset = registry.load(name, data_directory, download=False)
    info = registry.info(name)
    figures = summarise(dataset)
    assert dataset.name == name
    assert (figures.nodes, figures.features, figures.classes) == (info.nodes, info.features, info.classes)
    labelled = dataset.labels[dataset.labels >= 0]
    assert torch.bincount(labelled, minlength=info.classes).min() > 0
    if name == "amazon_ratings":
        assert figures.undirected_edges == 91904
        assert "1,146 of 93,050 edges missing" in dataset.note
    else:
        assert figures.undirected_edges == info.undirected_edges
        assert figures.homophily == pytest.approx(info.homophily, abs=6e-4)
        assert figures.largest_component == info.largest_component
        assert dataset.note == ""


@pytest.mark.parametrize(
    "name", [name for name in HERE if registry.info(name).loader in ("heterophilous", "planetoid")]
)
def test_official_splits_of_published_graphs(data_directory: Path, name: str):
    """Ten splits that cover the graph; for Planetoid's graphs one, with twenty training nodes per class."""
    dataset = registry.load(name, data_directory, download=False)
    if name in ("amazon_ratings", "chameleon"):
        # archives from before they kept splits
        assert dataset.official is None
        return
    assert dataset.official is not None
    train, _, test = dataset.official
    if registry.info(name).loader == "planetoid":
        assert np.bincount(dataset.labels[train[0]]).tolist() == [20] * dataset.classes
        assert dataset.official.sum(axis=(1, 2)).tolist() == [20 * dataset.classes, 500, 1000]
    else:
        assert len(train) == 10
        assert dataset.official.any(axis=0).all()
        assert len(np.unique(test, axis=0)) == 10


def test_graphs_are_fetched_by_https():
    urls = [url for info in registry.REGISTRY.values() for url in info.urls]
    assert len(urls) >= len(registry.REGISTRY)
    assert all(url.startswith("https://") for url in urls)


def test_archives_are_found_in_the_given_folder_then_the_environment_then_the_cache(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    assert registry.locate("tiny", folder) == folder / "tiny.npz"
    assert registry.locate("tiny") is None
    assert not registry.is_available("tiny")
    monkeypatch.setenv("FEDSUB_DATA", str(folder))
    assert registry.locate("tiny") == folder / "tiny.npz"
    monkeypatch.delenv("FEDSUB_DATA")
    cache = user_cache()
    (folder / "tiny.npz").rename(cache / "tiny.npz")
    assert registry.load("tiny", folder, download=False).nodes == formats.NODES


def test_an_archive_of_ones_own_is_not_to_be_deleted(tmp_path: Path) -> None:
    path = tmp_path / "mine [old].npz"
    arrays = {"label": np.zeros(2, dtype=int), "feat": np.eye(2), "train_mask": np.ones(2, dtype=bool)}
    np.savez(path, **arrays)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"\(the array 'edge_src' is missing\): .* the arrays edge_src"):
        registry.load(path)
    ends = np.array([0, 1])
    np.savez(path, **arrays, edge_src=ends, edge_dst=ends[:1].repeat(2), meta=np.array('{"classes": 3}'))  # type: ignore[arg-type]
    found = registry.load(path)
    assert (found.name, found.classes, found.note) == ("mine [old]", 3, "left out: train_mask, 1 loops")


def test_coauthor_features_are_binary_unless_asked(data_directory: Path):
    counts = registry.load("coauthor_cs[binary=false]", data_directory)
    binary = registry.load("coauthor_cs", data_directory)
    assert counts.name == "coauthor_cs[binary=false]"
    assert as_scipy(counts.features).data.max() > 1
    assert set(np.unique(as_scipy(binary.features).data)) == {1.0}
    assert as_scipy(binary.features).nnz == as_scipy(counts.features).nnz


def test_entry_points(monkeypatch: pytest.MonkeyPatch):
    entry = importlib.metadata.EntryPoint("theirs", f"{__name__}:plugged", registry.PLUGINS.group)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [entry])
    assert "theirs" in registry.names()
    assert registry.load("theirs[nodes=60]").nodes == 60
