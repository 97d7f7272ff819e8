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
LARGEST_GRAPHLET = {15: 4, 73: 5}
"""Number of orbits → nodes of the largest graphlet."""
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


def graphlet_degrees(adjacency: sp.csr_matrix, orbits: int = 73) -> np.ndarray:
    """Counts of the 15 orbits of 2- to 4-node graphlets or the 73 of 2- to 5-node ones.

    `adjacency` is a symmetric (n, n) 0/1 matrix without diagonal; returns (n, orbits) int64, orbits
    in Pržulj's order (0 is the degree). Cached on disk.
    Raises UserError for a hub with too many neighbours to count exactly.
    """
    parameters = {"orbits": orbits, "version": VERSION}
    return cache.remember("structure", "gdv", adjacency, parameters, lambda: count_orbits(adjacency, orbits))


def count_orbits(adjacency: sp.csr_matrix, orbits: int) -> np.ndarray:
    """Count the orbits as `graphlet_degrees` does, without the cache."""
    graph = sp.csr_matrix(adjacency)
    graph.sort_indices()
    degrees = np.diff(graph.indptr)
    largest = int(degrees.max(initial=0))
    if largest ** (LARGEST_GRAPHLET[orbits] - 1) > EXACT:
        raise UserError(f"a node with {largest} neighbours may have too many graphlets to count exactly")
    counts = np.zeros((graph.shape[0], orbits), dtype=np.int64)
    if not largest:
        return counts
    patterns = {
        orbit: (edges, own.index(orbit)) for edges, own in _graphlets() for orbit in own if orbit < orbits
    }
    images = by_messages(graph, patterns) | by_neighbourhoods(graph, orbits)
    table = _images()[:orbits, :orbits]
    # A pattern's other images have fewer nodes, or as many nodes and more edges: they are counted before it.
    for orbit in sorted(patterns, key=lambda orbit: _size(patterns[orbit][0])):
        rest = images[orbit].astype(np.int64) - counts @ table[orbit]
        counts[:, orbit] = rest // table[orbit, orbit]
    return counts


def _size(edges: Edges) -> tuple[int, int]:
    """Number of nodes, and minus the number of edges."""
    return 1 + max(map(max, edges)), -len(edges)


@functools.cache
def _graphlets() -> tuple[tuple[Edges, tuple[int, ...]], ...]:
    """Edges and orbits of the nodes, for every graphlet."""
    parsed = []
    for line in GRAPHLETS.split("\n")[1:-1]:
        edges, orbits = line.split(": ")
        ends = tuple((int(edge[0]), int(edge[1])) for edge in edges.split())
        parsed.append((ends, tuple(map(int, orbits.split()))))
    return tuple(parsed)


@functools.cache
def _images() -> np.ndarray:
    """(73, 73) int64: number of homomorphisms from the row's graphlet onto all nodes of the column's that map
    a given node on the row's orbit to a given node on the column's orbit."""
    table = np.zeros((73, 73), dtype=np.int64)
    for edges, orbits in _graphlets():
        for target, images in _graphlets():
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
