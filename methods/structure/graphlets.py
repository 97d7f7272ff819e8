"""Graphlet degree vectors (GDV): each node's number of occurrences on each orbit of small connected graphs.

Pržulj, Biological network comparison using graphlet degree distribution, Bioinformatics 2007. The number of
rooted homomorphisms (`methods.structure.homomorphisms`) is a sum over the induced subgraphs that can be
their images (Lovász; Curticapean, Dell & Marx, STOC 2017). The orbit counts are the integer solution of this
triangular system. It takes seconds where hubs have thousands of neighbours, unlike enumeration and unlike
ORCA (Hočevar & Demšar 2014), against which tests check it.
"""

import functools
import itertools

import numpy as np
import scipy.sparse as sp

from fedsub.datasets import cache
from fedsub.datasets.errors import UserError
from fedsub.methods.structure.homomorphisms import Edges, by_messages, by_neighbourhoods

VERSION = 1
"""Raise when the counts change."""
EXACT = 2**53
"""Integers up to here are exact in double precision."""
ORBITS = 73
"""Number of orbits of graphlets of 2 to 5 nodes."""
GRAPHLETS = """
01: 0 0
01 02: 2 1 1
01 02 12: 3 3 3
01 03 12: 5 5 4 4
03 13 23: 6 6 6 7
01 03 12 23: 8 8 8 8
03 12 13 23: 9 10 10 11
01 02 03 12 23: 13 12 13 12
01 02 03 12 13 23: 14 14 14 14
01 04 12 23: 16 17 16 15 15
04 13 23 34: 18 19 19 21 20
04 14 24 34: 22 22 22 22 23
01 02 04 12 23: 26 25 26 24 24
04 12 13 23 34: 27 29 29 30 28
04 14 23 24 34: 31 31 32 32 33
01 04 12 23 34: 34 34 34 34 34
01 13 14 23 24: 35 38 36 37 37
01 12 13 14 23 24: 39 42 41 40 40
01 04 14 23 24 34: 43 43 43 43 44
01 13 14 23 24 34: 45 47 46 48 48
02 03 04 12 13 14: 50 50 49 49 49
01 03 04 12 23 34: 53 51 51 53 52
03 04 13 14 23 24 34: 54 54 54 55 55
04 12 13 14 23 24 34: 56 57 57 57 58
01 04 12 13 14 23 34: 59 61 59 60 60
02 03 04 12 13 14 24: 63 63 64 62 64
01 03 04 13 14 23 24 34: 66 66 65 67 67
01 03 04 12 14 23 24 34: 68 68 68 68 69
01 03 04 12 13 14 23 24 34: 70 71 70 71 71
01 02 03 04 12 13 14 23 24 34: 72 72 72 72 72
"""
"""Every connected graph of 2 to 5 nodes: its edges, and Pržulj's number of each node's orbit."""


def graphlet_degrees(adjacency: sp.csr_matrix) -> np.ndarray:
    """Counts of the orbits, (n, ORBITS) int64, in Pržulj's order (0 is the degree). Cached on disk.

    `adjacency` is a symmetric (n, n) 0/1 matrix without diagonal.
    Raises UserError for a hub with too many neighbours to count exactly.
    """
    parameters = {"orbits": ORBITS, "version": VERSION}
    return cache.remember("structure", "gdv", adjacency, parameters, lambda: count_orbits(adjacency))


def count_orbits(adjacency: sp.csr_matrix) -> np.ndarray:
    """Count the orbits as `graphlet_degrees` does, without the cache."""
    graph = adjacency.sorted_indices()
    largest = int(np.diff(graph.indptr).max(initial=0))
    # A pattern of five nodes has up to largest⁴ images at a node.
    if largest**4 > EXACT:
        raise UserError(f"a node with {largest} neighbours may have too many graphlets to count exactly")
    counts = np.zeros((graph.shape[0], ORBITS), dtype=np.int64)
    if not largest:
        return counts
    patterns = {orbit: (edges, own.index(orbit)) for edges, own in _graphlets() for orbit in own}
    images = by_messages(graph, patterns) | by_neighbourhoods(graph)
    table = _images()
    # A pattern's other images have fewer nodes, or as many nodes and more edges: they are counted before it.
    for _, own in sorted(_graphlets(), key=lambda graphlet: (len(graphlet[1]), -len(graphlet[0]))):
        for orbit in set(own):
            rest = images[orbit].astype(np.int64) - counts @ table[orbit]
            counts[:, orbit] = rest // table[orbit, orbit]
    return counts


def _graphlets() -> list[tuple[Edges, tuple[int, ...]]]:
    """Edges and orbits of the nodes, for every graphlet."""
    parsed = []
    for line in GRAPHLETS.strip().splitlines():
        edges, orbits = line.split(": ")
        ends = tuple((int(edge[0]), int(edge[1])) for edge in edges.split())
        parsed.append((ends, tuple(map(int, orbits.split()))))
    return parsed


@functools.cache
def _images() -> np.ndarray:
    """(ORBITS, ORBITS) int64: number of homomorphisms from the row's graphlet onto all nodes of the column's
    that map a given node on the row's orbit to a given node on the column's orbit."""
    table = np.zeros((ORBITS, ORBITS), dtype=np.int64)
    for (edges, orbits), (target, images) in itertools.product(_graphlets(), repeat=2):
        size = len(images)
        if size > len(orbits):
            continue
        joined = np.zeros((size, size), dtype=bool)
        joined[tuple(np.array(target).T)] = True
        joined |= joined.T
        maps = np.array(list(itertools.product(range(size), repeat=len(orbits))))
        maps = maps[joined[maps[:, [a for a, _ in edges]], maps[:, [b for _, b in edges]]].all(axis=1)]
        maps = maps[(maps[:, :, None] == np.arange(size)).any(axis=1).all(axis=1)]
        for orbit in set(orbits):
            places = np.bincount(maps[:, orbits.index(orbit)], minlength=size)
            for image in set(images):
                table[orbit, image] = places[images.index(image)]
    return table


def standardised(counts: np.ndarray) -> np.ndarray:
    """Scale columns to mean 0 and variance 1, and constant columns to 0; (m, orbits) float32."""
    deviation = counts.std(axis=0)
    return ((counts - counts.mean(axis=0)) / np.where(deviation > 0, deviation, 1)).astype(np.float32)
