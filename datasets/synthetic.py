"""Generated graphs: `community`, the default graph, and FED-PUB's two synthetic settings."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

import numpy as np
import scipy.sparse as sp

from fedsub.datasets.errors import UserError
from fedsub.datasets.graph import Dataset, build_dataset, ones_at
from fedsub.datasets.limits import Count, Limit, NonNegative, Positive, Share, Size, check_limits

Dial = Annotated[float, Limit("be a share in [0, 1], or -1", lambda value: 0 <= value <= 1 or value == -1)]


@dataclass(frozen=True)
class CommunityOptions:
    """Parameters of the embedded default graph."""

    nodes: Count = 2000
    classes: Count = 6
    features: Count = 500
    """Number of features, the size of the vocabulary."""
    homophily: Share = 0.8
    """Share of edges between nodes of one class, close to the measured edge homophily."""
    noise: Share = 0.5
    """Share of a node's words drawn from the whole vocabulary instead of its class's topic, in [0, 1]."""
    average_degree: Positive = 5.0
    """Mean number of neighbours, an upper bound: distinct edges of the wanted kinds may run out."""
    communities: Count = 24
    """Number of communities, densely connected groups of nodes that mostly share one class."""
    purity: Share = 0.8
    """Share of a community's nodes that have the community's own class, in [0, 1]; the others have any."""
    across: Dial = -1.0
    """Share of edges that join two communities, exactly unless edges run out; -1 leaves it to `locality`."""
    locality: Share = 0.85
    """Share of edges that end in their own community, in [0, 1]; others end in any, and all end anywhere if
    the community has no node of the wanted class."""
    imbalance: NonNegative = 1.0
    """Standard deviation of the logarithm of community sizes, at least 0; 0 makes them equal on average."""
    words: Count = 8
    """Number of words drawn per node; repeated ones count once."""
    seed: Size = 0

    def __post_init__(self) -> None:
        """Raises UserError for values outside their limits or too small for others."""
        check_limits("community's ", self)
        if self.features < self.classes:
            raise UserError(f"community's features must be at least classes, {self.classes}")
        if self.across > 0 and self.communities < 2:
            raise UserError("community's across needs at least 2 communities")
        if self.nodes < (least := max(self.communities, self.classes)):
            raise UserError(f"community's nodes must be at least communities and classes, {least}")


def community(options: CommunityOptions) -> Dataset:
    """Generate a citation-like graph: communities, homophilous edges, skewed degrees, sparse bags of words.

    Every community has a class that most of its nodes belong to. An edge ends in the same community with
    probability `locality`, and at a node of the same class with probability `homophily`. A node's words come
    from its class's topic (a Zipf-like distribution over the vocabulary in the topic's own order) or, with
    probability `noise`, uniformly from the whole vocabulary. So features carry some information on the class,
    neighbours carry more, and clients cut along communities differ in their label distribution. The attribute
    `community` holds the community of each node, for natural clients.
    """
    rng = np.random.default_rng(options.seed)
    nodes, classes, communities = options.nodes, options.classes, options.communities
    weight = np.exp(options.imbalance * rng.standard_normal(communities))
    # One node of every community and class is fixed first, so that none is empty.
    others = rng.choice(communities, nodes - communities, p=weight / weight.sum())
    group = np.concatenate([np.arange(communities), others])
    own_class = rng.permutation(np.arange(communities) % classes)
    pure = rng.random(nodes) < options.purity
    labels = np.where(pure, own_class[group], rng.integers(classes, size=nodes))
    labels[rng.choice(nodes, classes, replace=False)] = np.arange(classes)
    source, target = _edges(options, group, labels, rng)
    features = _bags_of_words(options, labels, rng)
    dataset = build_dataset("community", source, target, features, labels, classes)
    return replace(dataset, attributes={"community": group})


def _edges(
    options: CommunityOptions, group: np.ndarray, labels: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw edges until the wanted number of distinct edges exists, for at most 20 (with `across` 60) passes.

    With `across`, edges inside communities and edges between them are counted separately."""
    wanted = round(options.nodes * options.average_degree / 2)
    between = round(wanted * options.across)
    missing = [wanted] if options.across < 0 else [wanted - between, between]
    popularity = rng.pareto(2.5, options.nodes) + 0.3
    seen = np.zeros(0, dtype=np.int64)
    for _ in range(20 if options.across < 0 else 60):
        if not sum(missing):
            break
        source = rng.choice(options.nodes, 2 * sum(missing) + 16, p=popularity / popularity.sum())
        locality = options.locality if options.across < 0 else missing[0] / sum(missing)
        local = rng.random(len(source)) < locality
        alike = rng.random(len(source)) < options.homophily
        partner_group = np.where(local, group[source], rng.integers(options.communities, size=len(source)))
        shift = rng.integers(1, max(options.classes, 2), size=len(source))
        partner_label = np.where(alike, labels[source], (labels[source] + shift) % options.classes)
        cell = group * options.classes + labels
        target = _one_of(cell, partner_group * options.classes + partner_label, rng)
        # A community without a node of the wanted class: draw from all nodes of that class.
        nowhere = target < 0
        target[nowhere] = _one_of(labels, partner_label[nowhere], rng)
        low, high = np.minimum(source, target), np.maximum(source, target)
        fresh = (low * options.nodes + high)[(low != high) & (low >= 0)]
        _, first = np.unique(fresh, return_index=True)
        fresh = fresh[np.sort(first)]
        fresh = fresh[~np.isin(fresh, seen)]
        # Whether an edge is between communities; without `across` all count as one kind.
        kind = (group[fresh // options.nodes] != group[fresh % options.nodes]) & (len(missing) > 1)
        for each, count in enumerate(missing):
            taken = fresh[kind == each][:count]
            seen = np.concatenate([seen, taken])
            missing[each] -= len(taken)
    return seen // options.nodes, seen % options.nodes


def _one_of(cell: np.ndarray, wanted: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw a random node of each wanted cell, −1 if the cell is empty; `cell` is (n,), the rest (m,)."""
    order = np.argsort(cell, kind="stable")
    start = np.searchsorted(cell[order], wanted, side="left")
    size = np.searchsorted(cell[order], wanted, side="right") - start
    pick = start + (rng.random(len(wanted)) * size).astype(np.int64)
    return np.where(size > 0, order[np.minimum(pick, len(order) - 1)], -1)


def _bags_of_words(options: CommunityOptions, labels: np.ndarray, rng: np.random.Generator) -> sp.csr_matrix:
    """Draw features, (n, features) 0/1 in CSR form; each class's topic ranks all words in its own order."""
    frequency = 1.0 / np.arange(1, options.features + 1)
    ranks = rng.choice(options.features, (options.nodes, options.words), p=frequency / frequency.sum())
    topics = np.stack([rng.permutation(options.features) for _ in range(options.classes)])
    topical = topics[labels[:, None], ranks]
    anything = rng.integers(options.features, size=topical.shape)
    words = np.where(rng.random(topical.shape) < options.noise, anything, topical)
    rows = np.repeat(np.arange(options.nodes), options.words)
    counts = ones_at(rows, words.ravel(), (options.nodes, options.features))
    counts.data[:] = 1
    return counts


@dataclass(frozen=True)
class FedPubOptions:
    """Parameters of FED-PUB's synthetic settings (Appendix B.3) that its text leaves open."""

    purity: Share = 0.9
    """Share of a community's nodes with the community's own label, in [0, 1]; other labels are uniform. The
    paper's text says only that label distributions differ between communities."""
    features: Count = 32
    """Number of features; not in the paper's text."""
    noise: NonNegative = 2.0
    """Standard deviation of the features around their class mean (a random unit vector), at least 0; not in
    the paper's text."""
    seed: Size = 0

    def __post_init__(self) -> None:
        """Raises UserError for a value outside its limit."""
        check_limits("a FED-PUB graph's ", self)


@dataclass(frozen=True)
class FedPubSetting:
    """Parameters of one synthetic setting that FED-PUB's text states."""

    name: str
    subgraphs: tuple[int, ...]
    """Number of subgraphs, one per client, in each community."""
    inside: float
    """Probability of an edge within a community."""
    across: float
    """Probability of an edge between two communities."""
    nodes_each: int = 30
    """Number of nodes per subgraph."""


FEDPUB_FIGURE_1 = FedPubSetting("synthetic_figure1", (5, 5, 40), inside=0.5, across=0.1)
"""Setting of knowledge collapse: two small communities and a large one, 50 clients."""
FEDPUB_FIGURE_3 = FedPubSetting("synthetic_figure3", (5, 15), inside=0.7, across=0.01)
"""Setting of the similarity measures: two communities, 20 clients."""


def fedpub(setting: FedPubSetting, options: FedPubOptions) -> Dataset:
    """Generate a stochastic-block-model graph of FED-PUB; nodes ordered by client (see `planted_clients`).

    The sizes and edge probabilities are the paper's. Its description of labels and features is loose
    ("different label distributions", features not mentioned): `FedPubOptions` holds our choices. METIS mixes
    the communities here: with one label per community, 36 of 50 parts have one label in Figure 1's setting,
    12 of 20 in Figure 3's. Partition by the scheme `planted` instead.
    """
    rng = np.random.default_rng(options.seed)
    sizes = np.array(setting.subgraphs) * setting.nodes_each
    classes = len(sizes)
    block = np.repeat(np.arange(classes), sizes)
    nodes = len(block)
    drawn = rng.random((nodes, nodes), dtype=np.float32)
    probability = np.where(block[:, None] == block[None, :], setting.inside, setting.across)
    source, target = np.nonzero(np.triu(drawn < probability, k=1))
    labels = np.where(rng.random(nodes) < options.purity, block, rng.integers(classes, size=nodes))
    means = rng.standard_normal((classes, options.features))
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    features = means[labels] + options.noise * rng.standard_normal((nodes, options.features))
    return build_dataset(setting.name, source, target, features, labels, classes)


def planted_clients(setting: FedPubSetting) -> np.ndarray:
    """Return the client of each node as in the paper, (n,) int64; the scheme `planted`."""
    return np.repeat(np.arange(sum(setting.subgraphs)), setting.nodes_each)


@dataclass(frozen=True)
class Generator:
    """A generated graph of the registry."""

    title: str
    options: type[CommunityOptions] | type[FedPubOptions]
    build: Callable[..., Dataset]
    """Function from options to graph."""
    nodes: int
    """Default number of nodes; `features` and `classes` are default numbers too."""
    features: int
    classes: int
    citation: str = ""
    planted: Callable[[], np.ndarray] | None = None
    """Function that returns the client of each node, (n,) int64, if the graph is made of clients."""


GENERATORS: Mapping[str, Generator] = {
    "community": Generator(
        title="Generated communities",
        options=CommunityOptions,
        build=community,
        nodes=CommunityOptions.nodes,
        features=CommunityOptions.features,
        classes=CommunityOptions.classes,
    ),
    **{
        setting.name: Generator(
            title=f"FED-PUB synthetic, Figure {setting.name[-1]}",
            options=FedPubOptions,
            build=partial(fedpub, setting),
            nodes=sum(setting.subgraphs) * setting.nodes_each,
            features=FedPubOptions.features,
            classes=len(setting.subgraphs),
            citation="Baek et al. 2023 (FED-PUB), Appendix B.3",
            planted=partial(planted_clients, setting),
        )
        for setting in (FEDPUB_FIGURE_1, FEDPUB_FIGURE_3)
    },
}
"""Name → generated graph."""
