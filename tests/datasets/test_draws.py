"""Every seed draws anew: each scheme, split and generated graph, whatever is registered."""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedsub.datasets import splits
from fedsub.datasets.graph import Dataset, build_dataset
from fedsub.datasets.partition import SCHEMES, Partition, partition
from fedsub.datasets.partition.kmeans import degenerate
from fedsub.datasets.registry import load
from fedsub.datasets.splits import make_split
from fedsub.datasets.synthetic import FEDPUB_FIGURE_1, FEDPUB_FIGURE_3, GENERATORS, FedPubOptions, fedpub

SEEDS = range(10)
CLIENTS = 10
VARIANTS = {
    "kmeans": ["kmeans", "kmeans[slack=0]", "kmeans[balanced=false]"],
    "louvain": ["louvain", "louvain[slack=0]", "louvain[merge=random]"],
    "metis": ["metis", "metis[recursive=true]"],
    "random": ["random", "random[balanced=true]"],
}
"""Scheme → variants that draw in another way; other schemes are tested with their defaults."""
DRAWS_NOTHING = {
    "attribute": "the nodes say whose they are",
    "file": "it reads the clients",
    "planted": "the graph is made of them",
}
"""Schemes that give the same for every seed, with the reason."""
READ = ("file", "official")
"""Splits that draw nothing."""
SPELT = {"per-class": "per-class[train=20,test=200]"}
"""Splits whose defaults ask for more nodes than the test's graph has."""


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    """A graph so large that METIS coarsens it for 20 parts, as metis-imbalanced asks: n ≥ 40·20."""
    return load("community[nodes=1500]")


def fingerprints(partitions: list[Partition]) -> set[bytes]:
    """Return one fingerprint per distinct partition: the nodes of every client, in any order of clients."""
    return {b"|".join(sorted(nodes.tobytes() for nodes in each.nodes)) for each in partitions}


def schemes() -> list[str]:
    built_in = [name for name in SCHEMES.built_in() if name not in DRAWS_NOTHING]
    return [spelt for name in built_in for spelt in VARIANTS.get(name, [name])]


@pytest.mark.parametrize("scheme", schemes())
def test_ten_seeds_give_ten_partitions(
    scheme: str, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = [partition(dataset, scheme, CLIENTS, seed) for seed in SEEDS]
    assert len(fingerprints(drawn)) == len(SEEDS)
    monkeypatch.setenv("FEDSUB_CACHE", str(tmp_path))
    again = partition(dataset, scheme, CLIENTS, SEEDS[0])
    assert all(np.array_equal(one, two) for one, two in zip(drawn[0].nodes, again.nodes, strict=True))


def test_metis_does_not_draw_where_it_does_not_coarsen(dataset: Dataset) -> None:
    """k-way METIS coarsens down to 40·K nodes, and draws only while coarsening."""
    clients = dataset.nodes // 40 + 1
    assert len(fingerprints([partition(dataset, "metis", clients, seed) for seed in SEEDS])) == 1
    bisected = [partition(dataset, "metis[recursive=true]", clients, seed) for seed in SEEDS]
    assert len(fingerprints(bisected)) == len(SEEDS)


@pytest.mark.parametrize(
    "split", [SPELT.get(name, name) for name in splits.SCHEMES.built_in() if name not in READ]
)
class TestSplits:
    def drawn(self, dataset: Dataset, split: str, scheme: str, clients: int, seed: int) -> bytes:
        """The role of every node of a partition without overlap, in the dataset's order."""
        parts = partition(dataset, scheme, clients, 0)
        made = make_split(dataset.labels, parts, split, seed, dataset.classes)
        roles = np.empty(dataset.nodes, dtype=np.int8)
        roles[parts.origin] = made.train + 2 * made.validation + 3 * made.test
        return roles.tobytes()

    def test_ten_seeds_give_ten_splits(self, split: str, dataset: Dataset) -> None:
        drawn = [self.drawn(dataset, split, "random", 5, seed) for seed in (*SEEDS, 0)]
        assert len(set(drawn)) == len(SEEDS)
        assert drawn[0] == drawn[-1]

    def test_partitions_of_one_graph_have_splits_of_their_own(self, split: str, dataset: Dataset) -> None:
        places = list(itertools.product(("random", "louvain", "metis", "metis[recursive=true]"), (5, 10)))
        assert len({self.drawn(dataset, split, *place, 0) for place in places}) == len(places)


def small_graph(name: str, seed: int) -> Dataset:
    """A generated graph, as small as its kind allows."""
    for setting in (FEDPUB_FIGURE_1, FEDPUB_FIGURE_3):
        if name == setting.name:
            return fedpub(replace(setting, nodes_each=5), FedPubOptions(seed=seed))
    return load(f"{name}[nodes=300,seed={seed}]")


@pytest.mark.parametrize("name", GENERATORS)
def test_ten_seeds_give_ten_generated_graphs(name: str) -> None:
    drawn = [small_graph(name, seed) for seed in (*SEEDS, 0)]
    for parts in (
        [torch.stack(each.graph.edges()) for each in drawn],
        [each.features.to_dense() for each in drawn],
        [each.labels for each in drawn],
    ):
        found = [part.numpy().tobytes() for part in parts]
        assert len(set(found)) == len(SEEDS)
        assert found[-1] == found[0]


@pytest.mark.parametrize(
    ("sizes", "verdict"),
    [
        ([3130, 100, 97], True),
        ([2, 2, 2], False),
        ([75, 25], False),
        ([76, 24], True),
        ([55, 5, 5, 5, 5, 5, 5, 5, 5, 5], False),
        ([56, 4, 5, 5, 5, 5, 5, 5, 5, 5], True),
        ([9, 0, 0], True),
        ([9], False),
    ],
)
def test_a_cluster_nearer_to_all_nodes_than_to_an_even_share_is_degenerate(
    sizes: list[int], verdict: bool
) -> None:
    assert degenerate(np.array(sizes)) is verdict


def test_degenerate_clusterings_are_drawn_anew(data_directory: Path) -> None:
    """With seed 1 on CiteSeer's raw features, one start puts most nodes into a single cluster."""
    dataset = load("citeseer", data_directory)
    drawn = partition(dataset, "kmeans[balanced=false]", 100, 1)
    assert not degenerate(drawn.sizes)


def test_features_that_always_degenerate_are_taken_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    features = np.zeros((60, 2))
    features[0] = 9
    features[1] = -9
    dataset = build_dataset("lump", np.array([0]), np.array([1]), features, np.zeros(60, dtype=int))
    found = partition(dataset, "kmeans[balanced=false]", 3, 0)
    assert sorted(found.sizes.tolist()) == [1, 1, 58]
    assert "holds most nodes in each of 20 draws" in caplog.text
