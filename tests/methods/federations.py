"""Small generated federations, and methods on them."""

from typing import Any

import networkx as nx
import numpy as np
import scipy.sparse as sp

from fedsub.datasets.federation import Federation, federate
from fedsub.datasets.graph import Dataset, build_dataset
from fedsub.datasets.partition import Partition, partition
from fedsub.datasets.registry import load
from fedsub.datasets.splits import make_split
from fedsub.methods.core import registry
from fedsub.methods.core.setting import make_setting

SPLIT = "ratio[train=0.4,validation=0.3,test=0.3]"


def small_dataset(
    nodes: int = 60,
    features: int = 12,
    classes: int = 3,
    degree: float = 4.0,
    sparse: bool = True,
    seed: int = 0,
) -> Dataset:
    """A random graph whose classes show in edges and features; every feature row has an entry, or no
    entry is zero where `sparse` is false."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, classes, nodes)
    labels[:classes] = np.arange(classes)
    same = labels[:, None] == labels[None, :]
    share = degree / nodes * np.where(same, 2.0, 0.5)
    edges = np.triu(generator.random((nodes, nodes)) < share, 1)
    source, target = np.nonzero(edges)
    block = features // classes
    values = generator.random((nodes, features)) < 0.2
    values[np.arange(nodes), labels * block + generator.integers(0, block, nodes)] = True
    matrix = values.astype(np.float32)
    if not sparse:
        matrix += 0.1 * generator.random((nodes, features), dtype=np.float32)
    return build_dataset(
        "small", source, target, sp.csr_matrix(matrix) if sparse else matrix, labels, classes
    )


def divided(dataset: Dataset, clients: int, scheme: str, seed: int = 0, split: str = SPLIT) -> Federation:
    parts = partition(dataset, scheme, clients, seed)
    return federate(dataset, parts, make_split(dataset, parts, split, seed))


def small_federation(
    clients: int = 3,
    nodes: int = 60,
    features: int = 12,
    classes: int = 3,
    scheme: str = "random",
    split: str = SPLIT,
    sparse: bool = True,
    seed: int = 0,
) -> Federation:
    dataset = small_dataset(nodes, features, classes, sparse=sparse, seed=seed)
    return divided(dataset, clients, scheme, seed, split)


def overlapping_federation() -> Federation:
    """Two clients that share 20 of 60 nodes."""
    dataset = small_dataset()
    parts = Partition("overlap", (np.arange(40), np.arange(20, 60)))
    return federate(dataset, parts, make_split(dataset, parts, "ratio", 0))


def as_matrix(graph: nx.Graph) -> sp.csr_matrix:
    """Symmetric 0/1 matrix, nodes in ascending order."""
    return sp.csr_matrix(nx.to_scipy_sparse_array(graph, nodelist=sorted(graph), dtype=np.float32))


def random_graph(nodes: int, share: float, seed: int) -> sp.csr_matrix:
    """A symmetric 0/1 matrix."""
    upper = np.triu(np.random.default_rng(seed).random((nodes, nodes)) < share, 1)
    return sp.csr_matrix((upper | upper.T).astype(np.float32))


def community_federation(clients: int = 3, nodes: int = 120, seed: int = 0, split: str = SPLIT) -> Federation:
    """A `community` graph divided over clients by METIS."""
    return divided(load(f"community[nodes={nodes}]"), clients, "metis", seed, split)


def make_method(
    name: str,
    options: dict[str, Any] | None = None,
    federation: Federation | None = None,
    *given: Any,
    **named: Any,
) -> Any:
    """A method that is not built yet; what follows the federation goes to `make_setting`."""
    merged = registry.describe(name).merged
    setting = make_setting(federation or small_federation(), *given, merged=merged, **named)
    return registry.create(name, options or {}, setting)
