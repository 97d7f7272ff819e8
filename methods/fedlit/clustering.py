"""Latent link types: clustering of all clients' edges at once, and their alignment at the server.

An edge {u, v}, u < v, is embedded as [x_u ‖ x_v]. The embedding is never stored: dot products and norms are
sums over the two ends.
"""

import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.methods.stacked.segments import Segments, segment_product

STEPS = 10
"""Lloyd steps of the first clustering."""


class EdgeClustering:
    """T centroids (K, T, 2·width) and a type for each of the m undirected edges, per client.

    `source` and `target` (m,) are rows of the n nodes of `segments`, both of one client.
    """

    def __init__(self, source: Tensor, target: Tensor, segments: Segments, types: int) -> None:
        self.source, self.target, self.segments, self.types = source, target, segments, types
        self.client = segments.client[source]
        self.edges = torch.bincount(self.client, minlength=segments.clients)
        """(K,) undirected edges of each client."""

    def dots(self, x: Tensor, centroids: Tensor) -> Tensor:
        """⟨[x_u ‖ x_v], c⟩ of every edge with its client's centroids, (m, T)."""
        near, far = centroids.transpose(1, 2).split(x.shape[1], dim=1)
        left = segment_product(x, near.contiguous(), self.segments)
        right = segment_product(x, far.contiguous(), self.segments)
        return left[self.source] + right[self.target]

    def nearest(self, x: Tensor, centroids: Tensor) -> Tensor:
        """Type whose centroid is nearest to each edge, (m,) int64."""
        squares = centroids.square().sum(dim=2)[self.client]
        return (squares - 2 * self.dots(x, centroids)).argmin(dim=1)

    def most_similar(self, x: Tensor, centroids: Tensor) -> Tensor:
        """Type whose centroid has the highest cosine with each edge, (m,) int64 (the E step)."""
        # An edge's own length scales all its similarities equally.
        return self.dots(x, functional.normalize(centroids, dim=2)).argmax(dim=1)

    def means(self, x: Tensor, kind: Tensor, centroids: Tensor) -> Tensor:
        """Mean embedding of each client's edges of each type (the M step), (K, T, 2·width); a type without an
        edge keeps its centroid."""
        cell = self.client * self.types + kind
        cells = self.segments.clients * self.types
        count = torch.bincount(cell, minlength=cells).unsqueeze(1)
        zeros = x.new_zeros(cells, x.shape[1])
        total = [zeros.index_add(0, cell, x[end]) for end in (self.source, self.target)]
        mean = (torch.cat(total, dim=1) / count.clamp(min=1)).view_as(centroids)
        return torch.where(count.view(*centroids.shape[:2], 1) > 0, mean, centroids)

    def k_means(self, x: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Centroids and types by Lloyd's algorithm from k-means++ seeds, for all clients in parallel."""
        centroids = self._seeds(x, generator)
        for _ in range(STEPS):
            centroids = self.means(x, self.nearest(x, centroids), centroids)
        return centroids, self.nearest(x, centroids)

    def _seeds(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """k-means++ (Arthur & Vassilvitskii 2007): draw an edge with a probability proportional to its
        squared distance to the seeds so far, as the largest log-weight plus Gumbel noise in each client."""
        chosen = torch.zeros(len(self.edges), self.types, 2 * x.shape[1], device=x.device)
        held = self.edges > 0
        length = x.square().sum(dim=1)
        length = length[self.source] + length[self.target]
        distance = torch.ones_like(length)
        for index in range(self.types):
            uniform = torch.rand(len(distance), generator=generator).to(x.device)
            score = distance.log() - (-uniform.log()).log()
            # order.argsort() is each edge's rank by score; each client's highest leads back to its edge.
            order = torch.argsort(score)
            highest = torch.zeros_like(self.edges).scatter_reduce(0, self.client, order.argsort(), "amax")
            edge = order[highest[held]]
            chosen[held, index] = torch.cat([x[self.source[edge]], x[self.target[edge]]], dim=1)
            dots = self.dots(x, chosen[:, index : index + 1]).squeeze(1)
            squares = chosen[:, index].square().sum(dim=1)[self.client]
            distance_to_new = (length - 2 * dots + squares).clamp(min=1e-12)
            distance = distance_to_new if index == 0 else torch.minimum(distance, distance_to_new)
        return chosen


def align(centroids: Tensor, centers: Tensor) -> Tensor:
    """The server's type for each client's link type, (K, T), one to one: the highest remaining cosine of
    `centroids` (K, T, w) and the server's `centers` (T, w) is taken repeatedly."""
    left = functional.normalize(centroids, dim=2) @ functional.normalize(centers, dim=1).T
    clients, types, _ = left.shape
    match = torch.zeros(clients, types, dtype=torch.int64, device=left.device)
    every = torch.arange(clients, device=left.device)
    for _ in range(types):
        best = left.flatten(1).argmax(dim=1)
        own, server = best // types, best % types
        match[every, own] = server
        left[every, own, :] = -torch.inf
        left[every, :, server] = -torch.inf
    return match


def regroup(values: Tensor, match: Tensor) -> Tensor:
    """Reorder clients' values (K, T, …) to the server's order of types, by `match` (K, T)."""
    inverse = torch.argsort(match, dim=1)
    return values[torch.arange(len(values), device=values.device).unsqueeze(1), inverse]


def average_channels(values: Tensor, match: Tensor, occupied: Tensor, previous: Tensor) -> Tensor:
    """Mean of the clients' channels for each of the server's types, (T, …); `previous` where all are empty.

    `values` (K, T, …) are in the clients' order, `match` is (K, T), `occupied` (K, T) 0/1 in the server's.
    """
    weight = occupied.view(*occupied.shape, *(1,) * (values.dim() - 2))
    count = weight.sum(dim=0)
    mean = (regroup(values, match) * weight).sum(dim=0) / count.clamp(min=1)
    return torch.where(count > 0, mean, previous)
