"""Link prediction: held-out edges, and pairs of nodes without an edge.

FedCog (section 5.3) and FED-PUB (Figure 10): positives are edges, negatives equally many pairs without one.
Edges held out for validation and test are removed from the graph, in both directions, before any method sees
it. If clients overlap, all copies of a held-out edge are removed.

By default edges are held out inside clients; edges between clients belong to no client's task and remain for
the methods that use them. With `pairs=everywhere` edges are held out on the whole graph, those between
clients included, and scored by one AUC. Training pairs are always inside clients.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fedsub.datasets.errors import UserError
from fedsub.datasets.federation import Federation, split_edges
from fedsub.datasets.graph import make_graph
from fedsub.datasets.limits import Count, ShareBelowOne
from fedsub.datasets.options import Spec, checked_options
from fedsub.datasets.sets import among, distinct

NAME = "link-prediction"
_SMALL = 2000
"""Maximum nodes of a client whose pairs are all listed; pairs of larger clients are sampled."""


@dataclass(frozen=True)
class LinkOptions:
    """Options of link prediction: the drawing of pairs and the width of embeddings."""

    width: Count = 100
    """Width of the embeddings."""
    test: ShareBelowOne = 0.1
    """Share of the edges held out for test."""
    validation: ShareBelowOne = 0.1
    """Share of the edges held out for validation."""
    negatives: Literal["fresh", "fixed"] = "fresh"
    """Whether training pairs without an edge are drawn anew in every epoch (`fresh`) or once (`fixed`)."""
    pairs: Literal["inside", "everywhere"] = "inside"
    """Whether held-out pairs are drawn `inside` clients or `everywhere` among all nodes."""

    def __post_init__(self) -> None:
        """Raises UserError for an invalid value."""
        checked_options(NAME, type(self), asdict(self))
        if self.test + self.validation >= 1:
            raise UserError(f"test and validation of {NAME} leave no edges to train on: lower one of them")
        if not self.test:
            raise UserError(f"{NAME}[test=0] leaves no edge for test: raise test")

    @classmethod
    def of(cls, given: str | Spec) -> "LinkOptions":
        """Parse the options of `link-prediction[…]`. Raises UserError for an unknown or invalid one."""
        return cls(**checked_options(NAME, cls, Spec.of(given).written))


@dataclass(frozen=True, eq=False)
class Pairs:
    """Labelled pairs of rows of a federation; P pairs."""

    ends: Tensor
    """(2, P) int64."""
    joined: Tensor
    """(P,) float32: 1 for an edge, else 0."""

    def to(self, device: torch.device | str) -> "Pairs":
        """Copy the pairs to another device."""
        return Pairs(self.ends.to(device), self.joined.to(device))


@dataclass(frozen=True, eq=False)
class Links:
    """A federation without its held-out edges, and the pairs of each role."""

    federation: Federation
    options: LinkOptions
    train: Pairs
    validation: Pairs
    test: Pairs
    barred: np.ndarray
    """Pairs of source ids that training never draws as negatives, as sorted codes u·n + v with u < v: edges
    and the held-out pairs of both labels. If only the held-out positives were barred, training would learn to
    distinguish them from the held-out negatives."""


def draw_links(federation: Federation, options: LinkOptions, seed: int) -> Links:
    """Hold out edges and draw the negatives.

    Roles are drawn among the distinct edges of the source graph and those that a partition adds, all of them
    or those inside a client (`pairs`). Every client's negatives are distinct pairs without an edge in the
    source graph. A client with too few such pairs gives them to test first, then to validation. With
    `everywhere`, each end of a held-out pair is the first row that is a copy of its node. Fixed training
    negatives are left out if they are also held out, for another client's copies or `everywhere`.
    Raises UserError if no edge is inside a client, or the shares leave no edge for training or for test.
    """
    generator = np.random.default_rng(seed)
    source, target = (end.numpy() for end in federation.graph.edges())
    once = source < target
    ends = np.stack([source[once], target[once]])
    total = federation.source.nodes
    origin = federation.origin.numpy()
    codes = _code(origin[ends[0]], origin[ends[1]], total)
    if not len(codes):
        raise UserError("no edge lies inside a client, so there is no link to predict: use fewer clients")
    start, end = federation.source.graph.edges()
    barred = distinct(_code(start.numpy(), end.numpy(), total))
    nodes, row = np.unique(origin, return_index=True)
    edges = distinct(codes)
    if options.pairs == "everywhere":
        # The graph's edges with both ends held by some client.
        edges = barred[np.isin(np.divmod(barred, total), nodes).all(axis=0)]
    order = generator.permutation(len(edges))
    tested = round(options.test * len(edges))
    held = tested + round(options.validation * len(edges))
    role = np.zeros(len(edges), dtype=np.int64)
    role[order[:tested]] = 2
    role[order[tested:held]] = 1
    roles = role[np.searchsorted(edges, codes)]
    positives = [ends[:, roles == each] for each in range(3)]
    if not tested or not positives[0].size:
        raise UserError(
            f"the shares of {NAME} leave {positives[0].shape[1]} of {len(edges)} edges to train on and"
            f" {tested} to test on: change them, or use fewer clients"
        )
    client = federation.client.numpy()
    counts = np.stack([np.bincount(client[each[0]], minlength=federation.clients) for each in positives])
    if options.pairs == "everywhere":
        counts[1:] = 0
    negatives = _negatives(federation, counts, barred, generator)
    if options.pairs == "everywhere":
        free = _free_pairs(nodes, held, barred, total, generator)
        for each, part in zip((2, 1), np.split(free, [tested], axis=1), strict=True):
            joined = np.stack(np.divmod(edges[role == each], total))
            positives[each] = row[np.searchsorted(nodes, joined)]
            negatives[each] = row[part]
    train, validation, test = (_pairs(*both) for both in zip(positives, negatives, strict=True))
    reduced = without(federation, edges[role > 0])
    scored = distinct(_codes_of((validation, test), origin, total))
    if options.negatives == "fixed":
        kept = train.joined > 0
        kept |= torch.from_numpy(~among(_codes_of((train,), origin, total), scored))
        train = Pairs(train.ends[:, kept], train.joined[kept])
    barred = distinct(np.concatenate([barred, scored]))
    return Links(reduced, options, train, validation, test, barred)


def merged_links(links: Links, seed: int) -> tuple[Links, Tensor]:
    """Return the task of one client that holds everything, and the merged row of each client's node, (n,).

    It trains on all remaining edges of the whole graph, inter-edges included, on none of the clients'
    held-out pairs, and has no validation or test pairs. `seed` draws its fixed negatives."""
    whole, rows = links.federation.merged()
    total = whole.source.nodes
    origin = whole.origin.numpy()
    source, target = (end.numpy() for end in whole.graph.edges())
    positives = np.stack([source[source < target], target[source < target]])
    held = _codes_of((links.validation, links.test), links.federation.origin.numpy(), total)
    barred = distinct(np.concatenate([_code(origin[source], origin[target], total), held]))
    counts = np.array([[positives.shape[1]], [0], [0]])
    negatives = _negatives(whole, counts, barred, np.random.default_rng(seed))
    nothing = _pairs(np.empty((2, 0), np.int64), np.empty((2, 0), np.int64))
    train = _pairs(positives, negatives[0])
    return Links(whole, links.options, train, nothing, nothing, barred), rows


def without(federation: Federation, edges: np.ndarray) -> Federation:
    """Return the federation without `edges` of its source graph (codes u·n + v with u < v, ascending), in all
    copies."""
    total = federation.source.nodes
    source, target = (end.numpy() for end in federation.source.graph.edges())
    kept = ~among(_code(source, target, total), edges)
    rest = replace(federation.source, graph=make_graph(source[kept], target[kept], total))
    intra, inter = split_edges(rest.adjacency(), federation.origin.numpy(), federation.client.numpy())
    return replace(federation, source=rest, graph=intra, inter=inter)


def _code(first: np.ndarray, second: np.ndarray, total: int) -> np.ndarray:
    """Return one number for each unordered pair of ids below `total`."""
    return np.minimum(first, second).astype(np.int64) * total + np.maximum(first, second)


def _codes_of(held: Iterable[Pairs], origin: np.ndarray, total: int) -> np.ndarray:
    """Return the codes of pairs of rows; row i is a copy of node `origin[i]`."""
    ends = [origin[each.ends.numpy()] for each in held]
    return np.concatenate([_code(each[0], each[1], total) for each in ends])


def _pairs(positives: np.ndarray, negatives: np.ndarray) -> Pairs:
    joined = torch.zeros(positives.shape[1] + negatives.shape[1])
    joined[: positives.shape[1]] = 1
    return Pairs(torch.from_numpy(np.concatenate([positives, negatives], axis=1)), joined)


def _negatives(
    federation: Federation, counts: np.ndarray, barred: np.ndarray, generator: np.random.Generator
) -> list[np.ndarray]:
    """Draw distinct pairs without an edge inside each client, `counts` (3, K) by role; 3 × (2, P)."""
    sizes = federation.sizes.numpy()
    starts = np.cumsum(sizes) - sizes
    origin = federation.origin.numpy()
    found = [[np.empty((2, 0), dtype=np.int64)] * 3]
    for k in np.flatnonzero(counts.sum(axis=0)):
        own = origin[starts[k] : starts[k] + sizes[k]]
        free = _free_pairs(own, int(counts[:, k].sum()), barred, federation.source.nodes, generator)
        cut = np.minimum(np.cumsum(counts[::-1, k]), free.shape[1])
        test, validation, train, _ = np.split(free + starts[k], cut, axis=1)
        found.append([train, validation, test])
    return [np.concatenate(parts, axis=1) for parts in zip(*found, strict=True)]


def _free_pairs(
    own: np.ndarray, wanted: int, barred: np.ndarray, total: int, generator: np.random.Generator
) -> np.ndarray:
    """Draw up to `wanted` distinct pairs i < j of positions in `own` ((n_k,) node ids) that are not `barred`,
    in random order; (2, ≤ wanted)."""
    size = len(own)
    if size <= _SMALL:
        pairs = np.stack(np.triu_indices(size, 1))
        pairs = pairs[:, ~among(_code(own[pairs[0]], own[pairs[1]], total), barred)]
        return pairs[:, generator.permutation(pairs.shape[1])[:wanted]]
    chosen = np.empty(0, dtype=np.int64)
    for _ in range(100):
        ends = generator.integers(0, size, (2, 2 * (wanted - len(chosen)) + 16))
        ends = ends[:, ends[0] != ends[1]]
        ends = ends[:, ~among(_code(own[ends[0]], own[ends[1]], total), barred)]
        chosen = distinct(np.concatenate([chosen, _code(ends[0], ends[1], size)]))
        if len(chosen) >= wanted:
            break
    chosen = chosen[generator.permutation(len(chosen))[:wanted]]
    return np.stack([chosen // size, chosen % size])
