"""Generated graphs: seeded, and with the properties their parameters name."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsub.datasets.errors import UserError
from fedsub.datasets.graph import as_scipy
from fedsub.datasets.partition import partition
from fedsub.datasets.partition.statistics import describe
from fedsub.datasets.summary import summarise
from fedsub.datasets.synthetic import (
    FEDPUB_FIGURE_1,
    FEDPUB_FIGURE_3,
    GENERATORS,
    CommunityOptions,
    FedPubOptions,
    FedPubSetting,
    community,
    fedpub,
    planted_clients,
)


@pytest.mark.parametrize("name", GENERATORS)
def test_the_catalogue_states_the_true_size(name: str):
    generator = GENERATORS[name]
    dataset = generator.build(generator.options())
    assert dataset.nodes == generator.nodes
    assert dataset.features.shape == (generator.nodes, generator.features)
    assert dataset.classes == generator.classes


@settings(max_examples=15)
@given(
    nodes=st.integers(30, 300),
    classes=st.integers(1, 7),
    communities=st.integers(1, 30),
    homophily=st.floats(0, 1),
    purity=st.floats(0, 1),
    locality=st.floats(0, 1),
    noise=st.floats(0, 1),
    imbalance=st.floats(0, 2),
    seed=st.integers(0, 99),
)
def test_any_parameters_give_a_proper_graph(**parameters):
    dataset = community(CommunityOptions(features=20, **parameters))
    assert dataset.nodes == parameters["nodes"]
    assert torch.bincount(dataset.labels, minlength=parameters["classes"]).min() > 0
    source, target = dataset.graph.edges()
    assert not (source == target).any()
    assert dataset.features.shape == (dataset.nodes, 20)
    assert set(np.unique(as_scipy(dataset.features).data)) == {1.0}
    assert np.diff(as_scipy(dataset.features).indptr).min() > 0


@pytest.mark.parametrize("homophily", [0.1, 0.5, 0.9])
def test_homophily_is_what_was_asked(homophily: float):
    dataset = community(CommunityOptions(homophily=homophily))
    assert summarise(dataset).homophily == pytest.approx(homophily, abs=0.06)


def test_imbalance_spreads_community_sizes_and_locality_keeps_edges_inside():
    even = community(CommunityOptions(purity=1, classes=6, communities=6, imbalance=0))
    uneven = community(CommunityOptions(purity=1, classes=6, communities=6, imbalance=2))
    sizes = [np.bincount(dataset.labels.numpy()) for dataset in (even, uneven)]
    assert sizes[0].max() < 1.3 * sizes[0].min()
    assert sizes[1].max() > 3 * sizes[1].min()


@pytest.mark.parametrize("across", [0, 0.05, 0.5, 0.95, 1])
def test_the_share_of_edges_across_communities_is_what_was_asked(across: float):
    graph = community(CommunityOptions(across=across, seed=1))
    group = graph.attributes["community"]
    source, target = (end.numpy() for end in graph.graph.edges())
    assert graph.undirected_edges == 5000
    assert (group[source] != group[target]).mean() == pytest.approx(across)
    assert summarise(graph).homophily == pytest.approx(0.8, abs=0.03)
    parts = partition(graph, "attribute[key=community]", 24, 0)
    assert describe(graph, parts).intra_share == pytest.approx(1 - across)


@pytest.mark.parametrize(
    ("setting", "nodes", "sizes"),
    [(FEDPUB_FIGURE_1, 1500, (150, 150, 1200)), (FEDPUB_FIGURE_3, 600, (150, 450))],
)
def test_fedpub_settings_follow_the_paper(setting: FedPubSetting, nodes: int, sizes: tuple[int, ...]):
    dataset = fedpub(setting, FedPubOptions(purity=1))
    assert dataset.nodes == nodes
    assert tuple(np.bincount(dataset.labels.numpy())) == sizes
    block = dataset.labels.numpy()
    adjacency = dataset.adjacency().toarray()
    inside = block[:, None] == block[None, :]
    pairs_inside = inside.sum() - nodes
    assert adjacency[inside].sum() / pairs_inside == pytest.approx(setting.inside, abs=0.01)
    assert adjacency[~inside].mean() == pytest.approx(setting.across, abs=0.01)
    clients = planted_clients(setting)
    assert np.bincount(clients).tolist() == [30] * sum(setting.subgraphs)
    # no client lies in two communities
    assert all(len(np.unique(block[clients == client])) == 1 for client in range(clients.max() + 1))


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"homophily": 1.5}, r"homophily must be in \[0, 1\]"),
        ({"across": 1.5}, r"across must be a share in \[0, 1\], or -1"),
        ({"across": 0.5, "communities": 1}, "across needs at least 2 communities"),
        ({"nodes": 10}, "nodes must be at least communities and classes"),
        ({"features": 2}, "features must be at least classes"),
    ],
)
def test_impossible_parameters_are_refused(parameters: dict[str, float], sentence: str):
    with pytest.raises(UserError, match=sentence):
        CommunityOptions(**parameters)  # type: ignore[arg-type]
