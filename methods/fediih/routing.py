"""Neighbourhood routing: every node's neighbours are shared out among its factors, again and again.

Ma et al., Disentangled Graph Convolutional Networks, ICML 2019, algorithm 1. For node t and factor f, all x_f
and u_f of length one:

    u = x, then several times:  π_st = softmax over f of ⟨x_sf, u_tf⟩,  u_tf ∝ x_tf + Σ_{s ∈ N(t)} π_stf x_sf

By torch's operations each time writes and reads an (edges, F, D) tensor more than once. A node's u hangs on
its neighbours' x alone, so that the compiled pass does all times of one node before the next, and keeps of an
edge π alone. It takes edges by fours: what a node has is then read once for four neighbours.
"""

from __future__ import annotations

from typing import Any

import dgl
import numpy as np
import torch
import torch.nn.functional as functional
from torch import Tensor

from methods.stacked import kernels
from methods.stacked.propagation import Adjacency

SHORTEST = 1e-12
"""What a shorter vector is divided by, as torch's `normalize` does."""


class Routing:
    """The edges along which is routed, sorted by the node that they reach."""

    def __init__(self, graph: dgl.DGLGraph, device: torch.device) -> None:
        self.source, self.target = (end.long().to(device) for end in graph.edges())
        self.pointer, self.neighbour, _ = Adjacency(graph, device).forward
        self.largest = int(self.pointer.diff().max())
        """Edges that reach one node, at most."""

    def __call__(self, x: Tensor, iterations: int) -> Tensor:
        """(n, F, D) → (n, F, D), every factor of length one or zero."""
        if kernels.compiled(x):
            return _Route.apply(x, self, iterations)
        x = _unit(x)
        message, u = x[self.source], x
        for _ in range(iterations):
            share = (message * u[self.target]).sum(dim=2, keepdim=True).softmax(dim=1)
            u = _unit(x.index_add(0, self.target, share * message))
        return u


def _unit(x: Tensor) -> Tensor:
    """Every factor at length one, (n, F, D). One of zeros stays, and has no gradient: `normalize` hands back
    1e12 times what it is given, which is soon beyond all numbers where routings follow each other."""
    zero = (x == 0).all(dim=2, keepdim=True)
    return functional.normalize(x, dim=2).masked_fill(zero, 0)


class _Route(torch.autograd.Function):
    """The same by compiled passes over the nodes."""

    @staticmethod
    def forward(ctx: Any, given: Tensor, routing: Routing, iterations: int) -> Tensor:
        ends, given = (routing.pointer.numpy(), routing.neighbour.numpy()), given.contiguous()
        # x, and u after each time, with the lengths that they were divided by.
        units = given.new_empty(iterations + 1, *given.shape)
        lengths = given.new_empty(iterations + 1, *given.shape[:2])
        shares = given.new_empty(iterations, len(routing.source), given.shape[1])
        near = given.new_zeros(given.shape[1], routing.largest + 3)
        _assign(*ends, *_arrays(given, units, lengths, shares, near))
        ctx.ends, ctx.near = ends, near
        ctx.save_for_backward(units, lengths, shares)
        return units[-1].clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        units, lengths, shares = ctx.saved_tensors
        to_x = torch.zeros_like(gradient, memory_format=torch.contiguous_format)
        _assign_backward(*ctx.ends, *_arrays(gradient.contiguous(), units, lengths, shares, ctx.near, to_x))
        return to_x, None, None


def _arrays(*tensors: Tensor) -> list[np.ndarray]:
    return [tensor.detach().numpy() for tensor in tensors]


@kernels.compile_pass
def _scale(given: np.ndarray, unit: np.ndarray, length: np.ndarray) -> None:
    """Factors, (F, D), at length one to `unit`, and their lengths, (F,)."""
    for factor in range(given.shape[0]):
        square = np.float32(0)
        for position in range(given.shape[1]):
            square += given[factor, position] * given[factor, position]
        length[factor] = np.sqrt(square)
        divisor = max(length[factor], np.float32(SHORTEST))
        for position in range(given.shape[1]):
            unit[factor, position] = given[factor, position] / divisor


@kernels.compile_pass
def _scale_backward(gradient: np.ndarray, unit: np.ndarray, length: np.ndarray, out: np.ndarray) -> None:
    """What stands at right angles to the unit factors, over their lengths, (F, D); one of zeros has no
    direction, and no gradient."""
    for factor in range(gradient.shape[0]):
        along = np.float32(0)
        for position in range(gradient.shape[1]):
            along += gradient[factor, position] * unit[factor, position]
        divisor = length[factor] if length[factor] > np.float32(SHORTEST) else np.float32(np.inf)
        for position in range(gradient.shape[1]):
            out[factor, position] = (gradient[factor, position] - along * unit[factor, position]) / divisor


@kernels.compile_pass
def _products(x: np.ndarray, sources: np.ndarray, own: np.ndarray, out: np.ndarray) -> None:
    """⟨x_sf, own_f⟩ of every source s, (F, sources and up to three); `own` is (F, D)."""
    last = len(sources) - 1
    for factor in range(own.shape[0]):
        value, found = own[factor], out[factor]
        for place in range(0, len(sources), 4):
            a, b = x[sources[place], factor], x[sources[min(place + 1, last)], factor]
            c, d = x[sources[min(place + 2, last)], factor], x[sources[min(place + 3, last)], factor]
            of_a, of_b, of_c, of_d = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
            for position in range(own.shape[1]):
                of_a += a[position] * value[position]
                of_b += b[position] * value[position]
                of_c += c[position] * value[position]
                of_d += d[position] * value[position]
            found[place], found[place + 1], found[place + 2], found[place + 3] = of_a, of_b, of_c, of_d


@kernels.compile_pass
def _add(x: np.ndarray, sources: np.ndarray, weight: np.ndarray, total: np.ndarray) -> None:
    """Σ_s weight_fs x_sf added to `total`, (F, D); `weight` is shaped as `_products` leaves it, its
    last three made zero."""
    last = len(sources) - 1
    for factor in range(total.shape[0]):
        share, out = weight[factor], total[factor]
        for place in range(last + 1, last + 4):
            share[place] = np.float32(0)
        for place in range(0, len(sources), 4):
            a, b = x[sources[place], factor], x[sources[min(place + 1, last)], factor]
            c, d = x[sources[min(place + 2, last)], factor], x[sources[min(place + 3, last)], factor]
            of_a, of_b, of_c, of_d = share[place], share[place + 1], share[place + 2], share[place + 3]
            for position in range(total.shape[1]):
                out[position] += (
                    of_a * a[position] + of_b * b[position] + of_c * c[position] + of_d * d[position]
                )


@kernels.compile_pass
def _assign(
    pointer: np.ndarray,
    neighbour: np.ndarray,
    given: np.ndarray,
    units: np.ndarray,
    lengths: np.ndarray,
    shares: np.ndarray,
    near: np.ndarray,
) -> None:
    """x and u after each time, (1 + T, n, F, D), their lengths before, (1 + T, n, F), and π, (T, edges, F).

    `near`, (F, most edges of a node and three), is room to work in.
    """
    nodes, factors, width = given.shape
    x = units[0]
    for node in range(nodes):
        _scale(given[node], x[node], lengths[0, node])
    for node in range(nodes):
        start, end = pointer[node], pointer[node + 1]
        sources = neighbour[start:end]
        for time in range(shares.shape[0]):
            u = units[time + 1, node]
            _products(x, sources, units[time, node], near)
            for place in range(end - start):
                highest, mass = np.float32(-np.inf), np.float32(0)
                for factor in range(factors):
                    highest = max(highest, near[factor, place])
                for factor in range(factors):
                    near[factor, place] = np.exp(near[factor, place] - highest)
                    mass += near[factor, place]
                for factor in range(factors):
                    near[factor, place] /= mass
                    shares[time, start + place, factor] = near[factor, place]
            for factor in range(factors):
                for position in range(width):
                    u[factor, position] = x[node, factor, position]
            _add(x, sources, near, u)
            _scale(u, u, lengths[time + 1, node])


@kernels.compile_pass
def _assign_backward(
    pointer: np.ndarray,
    neighbour: np.ndarray,
    gradient: np.ndarray,
    units: np.ndarray,
    lengths: np.ndarray,
    shares: np.ndarray,
    near: np.ndarray,
    to_given: np.ndarray,
) -> None:
    """Adds to `to_given`, (n, F, D), what `_assign` hands back of the last u's gradient, (n, F, D)."""
    nodes, factors, width = gradient.shape
    x, to_u, slope = units[0], np.empty((factors, width), np.float32), np.empty((factors, width), np.float32)
    for node in range(nodes):
        start, end = pointer[node], pointer[node + 1]
        sources = neighbour[start:end]
        for factor in range(factors):
            for position in range(width):
                to_u[factor, position] = gradient[node, factor, position]
        for time in range(shares.shape[0] - 1, -1, -1):
            before = units[time, node]
            _scale_backward(to_u, units[time + 1, node], lengths[time + 1, node], slope)
            _products(x, sources, slope, near)
            for factor in range(factors):
                for position in range(width):
                    to_given[node, factor, position] += slope[factor, position]
                    to_u[factor, position] = np.float32(0)
            for place in range(end - start):
                mean = np.float32(0)
                for factor in range(factors):
                    mean += shares[time, start + place, factor] * near[factor, place]
                for factor in range(factors):
                    kept = shares[time, start + place, factor]
                    moved = kept * (near[factor, place] - mean)
                    near[factor, place] = moved
                    to_message, known, old = to_given[sources[place], factor], slope[factor], before[factor]
                    for position in range(width):
                        to_message[position] += kept * known[position] + moved * old[position]
            _add(x, sources, near, to_u)
        for factor in range(factors):
            for position in range(width):
                to_given[node, factor, position] += to_u[factor, position]
    for node in range(nodes):
        _scale_backward(to_given[node], x[node], lengths[0, node], to_given[node])
