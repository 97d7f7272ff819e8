"""Held-out edges are in no client's graph, negatives are not edges, and no client holds missing edges."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fedsub.datasets.errors import UserError
from fedsub.datasets.federation import Federation, federate
from fedsub.datasets.graph import build_dataset
from fedsub.datasets.links import LinkOptions, Links, Pairs, draw_links, merged_links
from fedsub.datasets.partition import partition
from fedsub.datasets.partition.base import Partition
from fedsub.datasets.splits import make_split
from tests.methods.federations import SPLIT, divided, small_federation


def planted() -> Federation:
    """Four groups that share features; every edge stays in its group, so that links can be learned."""
    generator = np.random.default_rng(0)
    group = np.arange(160) % 4
    same = group[:, None] == group[None, :]
    source, target = np.nonzero(np.triu(same & (generator.random((160, 160)) < 0.25), 1))
    features = np.eye(4, dtype=np.float32)[group].repeat(3, axis=1)
    features += generator.normal(scale=0.2, size=features.shape).astype(np.float32)
    return divided(build_dataset("planted", source, target, features, group), 3, "random")


def links_of(federation: Federation, **options: float | str) -> Links:
    return draw_links(federation, LinkOptions(**{"test": 0.2, "validation": 0.1} | options), seed=5)  # type: ignore[arg-type]


def codes(federation: Federation, ends: torch.Tensor) -> set[tuple[int, int]]:
    """Unordered pairs of source ids."""
    origin = federation.origin
    return {
        (min(a, b), max(a, b))
        for a, b in zip(origin[ends[0]].tolist(), origin[ends[1]].tolist(), strict=True)
    }


def edges_of(federation: Federation) -> set[tuple[int, int]]:
    source, target = federation.source.graph.edges()
    return {(a, b) for a, b in zip(source.tolist(), target.tolist(), strict=True) if a < b}


def split(pairs: Pairs) -> tuple[torch.Tensor, torch.Tensor]:
    return pairs.ends[:, pairs.joined > 0], pairs.ends[:, pairs.joined == 0]


def test_pairs_everywhere_cross_clients_and_leave_every_graph():
    federation = planted()
    links = links_of(federation, pairs="everywhere")
    edges, client = edges_of(federation), federation.client
    for pairs, share in ((links.test, 0.2), (links.validation, 0.1)):
        positive, negative = split(pairs)
        assert positive.shape[1] == negative.shape[1] == round(share * len(edges))
        assert len(codes(federation, positive)) == positive.shape[1]
        assert len(codes(federation, negative)) == negative.shape[1]
        assert codes(federation, positive) <= edges
        assert not codes(federation, negative) & edges
        # With three clients, two thirds of random pairs join two clients.
        assert (client[pairs.ends[0]] != client[pairs.ends[1]]).float().mean() > 0.5
    held = codes(federation, split(links.test)[0]) | codes(federation, split(links.validation)[0])
    assert not codes(federation, split(links.test)[0]) & codes(federation, split(links.validation)[0])
    assert edges_of(links.federation) == edges - held
    for graph in (links.federation.graph, links.federation.inter):
        assert not codes(federation, torch.stack(graph.edges())) & held
    positive, negative = split(links.train)
    assert torch.equal(client[positive[0]], client[positive[1]])
    assert torch.equal(client[negative[0]], client[negative[1]])
    assert codes(federation, positive) <= edges - held


@pytest.mark.parametrize(("scheme", "clients"), [("random", 3), ("metis", 4), ("metis-overlapping", 10)])
def test_held_out_edges_are_nowhere(scheme: str, clients: int) -> None:
    federation = small_federation(clients=clients, nodes=150, scheme=scheme)
    links = links_of(federation)
    reduced = links.federation
    held = set()
    for pairs in (links.validation, links.test):
        held |= codes(federation, split(pairs)[0])
    assert held
    assert held <= edges_of(federation)
    for graph in (reduced.graph, reduced.inter):
        assert not held & codes(reduced, torch.stack(graph.edges()))
    assert edges_of(reduced) == edges_of(federation) - held
    merged, _ = reduced.merged()
    assert not held & codes(merged, torch.stack(merged.graph.edges()))
    trained = split(links.train)[0]
    assert codes(reduced, trained) == codes(reduced, torch.stack(reduced.graph.edges()))
    assert 2 * trained.shape[1] == reduced.graph.num_edges()


@pytest.mark.parametrize("large", [False, True])
def test_negatives_are_as_many_distinct_non_edges_of_one_client(
    large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:
        monkeypatch.setattr("fedsub.datasets.links._SMALL", 0)
    federation = small_federation(clients=3, nodes=150)
    links = links_of(federation)
    edges = edges_of(federation)
    seen: set[tuple[int, int]] = set()
    for pairs in (links.train, links.validation, links.test):
        positive, negative = split(pairs)
        client = federation.client
        assert torch.equal(client[negative[0]], client[negative[1]])
        assert torch.equal(
            torch.bincount(client[positive[0]], minlength=3), torch.bincount(client[negative[0]], minlength=3)
        )
        found = codes(federation, negative)
        assert len(found) == negative.shape[1]
        assert not found & (edges | seen)
        seen |= found


def test_where_pairs_without_an_edge_are_few_test_has_them_first_and_training_last() -> None:
    """Of the 21 pairs of seven nodes 18 are joined: only three negatives for nine held-out positives."""
    source, target = np.stack(np.triu_indices(7, 1))[:, 3:]
    dataset = build_dataset("dense", source, target, np.eye(7), np.arange(7) % 2)
    parts = Partition("whole", (np.arange(7),))
    federation = federate(dataset, parts, make_split(dataset, parts, SPLIT, 0))
    for test, expected in ((1 / 9, (2, 1, 0)), (1 / 3, (3, 0, 0))):
        links = links_of(federation, test=test, validation=1 / 6)
        found = [split(pairs)[1].shape[1] for pairs in (links.test, links.validation, links.train)]
        assert tuple(found) == expected


@pytest.mark.parametrize(
    ("scheme", "clients", "pairs"), [("metis", 3, "everywhere"), ("metis-overlapping", 10, "inside")]
)
def test_no_fixed_negative_is_held_out(scheme: str, clients: int, pairs: str) -> None:
    """This holds with copies of nodes at other clients, and with pairs between clients."""
    federation = small_federation(clients=clients, nodes=60, scheme=scheme)
    for seed in range(10):
        links = draw_links(federation, LinkOptions(test=0.3, negatives="fixed", pairs=pairs), seed)  # type: ignore[arg-type]
        held = codes(federation, links.validation.ends) | codes(federation, links.test.ends)
        assert not codes(federation, links.train.ends) & held
        assert len(split(links.train)[1][0])
        fresh = draw_links(federation, LinkOptions(test=0.3, pairs=pairs), seed)  # type: ignore[arg-type]
        assert torch.equal(fresh.test.ends, links.test.ends)
        assert torch.equal(split(fresh.train)[0], split(links.train)[0])


@pytest.mark.parametrize(
    ("test", "validation", "said"), [(0.1, 0.1, "4 of 4 .* and 0"), (0.5, 0.4, "0 of 4 .* and 2")]
)
def test_edges_too_few_to_train_and_to_test_on(test: float, validation: float, said: str) -> None:
    """A score over zero pairs would look like any other figure."""
    dataset = build_dataset("path", np.arange(4), np.arange(1, 5), np.eye(5), np.arange(5) % 2)
    parts = partition(dataset, "random", 1, 0)
    federation = federate(dataset, parts, make_split(dataset, parts, "ratio[train=0.4,test=0.2]", 0))
    with pytest.raises(UserError, match=f"leave {said} to test on: change them"):
        links_of(federation, test=test, validation=validation)


def test_the_seed_decides() -> None:
    federation = small_federation(clients=3, nodes=150)
    first, again, other = (draw_links(federation, LinkOptions(), seed) for seed in (0, 0, 1))
    assert torch.equal(first.test.ends, again.test.ends)
    assert not torch.equal(first.test.ends, other.test.ends)


def test_no_edge_inside_a_client() -> None:
    with pytest.raises(UserError, match="no edge lies inside a client"):
        draw_links(small_federation(clients=60, nodes=60), LinkOptions(), 0)


def test_the_merged_client_trains_on_inter_edges_but_on_no_held_out_pair() -> None:
    federation = small_federation(clients=3, nodes=150)
    links = links_of(federation)
    whole, rows = merged_links(links, seed=0)
    assert torch.equal(whole.federation.origin[rows], federation.origin)
    held = codes(federation, links.validation.ends) | codes(federation, links.test.ends)
    assert not held & codes(whole.federation, whole.train.ends)
    positive = codes(whole.federation, split(whole.train)[0])
    assert positive == edges_of(links.federation)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("link-prediction[test=0.6,validation=0.5]", "leave no edges to train on"),
        ("link-prediction[test=0]", "leaves no edge for test: raise test"),
        ("link-prediction[validation=-0.1]", r"validation must be in \[0, 1\)"),
    ],
)
def test_impossible_options_are_refused(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        LinkOptions.of(text)


def test_overlapping_clients_without_an_edge_between_them(tmp_path: Path) -> None:
    """Two edges, 0-1 and 3-4, one at each of two clients that share node 2."""
    labels = np.array([0, 1, 0, 1, 0])
    graph = build_dataset("two edges", np.array([0, 3]), np.array([1, 4]), np.eye(5), labels)
    np.savez(tmp_path / "clients.npz", own_nodes=np.array([0, 1, 2, 2, 3, 4]), own_sizes=np.array([3, 3]))
    clients = partition(graph, f"file[path={tmp_path / 'clients.npz'},key=own]", 2, 0)
    split = make_split(labels, clients, "ratio[train=0.4,validation=0.2,test=0.4]", 0, 2)
    federation = federate(graph, clients, split)
    assert federation.graph.num_edges() == 4
    assert federation.missing_edges().tolist() == [[0, 0], [0, 0]]
