"""Neighbourhood routing: every node's neighbours are shared out among its factors, again and again.

Ma et al., Disentangled Graph Convolutional Networks, ICML 2019, algorithm 1. For node t and factor f, all x_f
and u_f of length one:

    u = x, then several times:  π_st = softmax over f of ⟨x_sf, u_tf⟩,  u_tf ∝ x_tf + Σ_{s ∈ N(t)} π_stf x_sf

By torch's operations each time writes and reads an (edges, F, D) tensor more than once; compiled, a time is
one pass over the edges each way, that keeps π, (edges, F), alone.
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
LONGEST = 1e38
"""What a gradient is divided by that is to be none."""


class Routing:
    """The edges along which is routed, sorted by the node that they reach."""

    def __init__(self, graph: dgl.DGLGraph, device: torch.device) -> None:
        self.source, self.target = (end.long().to(device) for end in graph.edges())
        self.pointer, self.neighbour, _ = Adjacency(graph, device).forward

    def __call__(self, x: Tensor, iterations: int) -> Tensor:
        """(n, F, D) → (n, F, D), every factor of length one or zero."""
        x = _unit(x)
        if kernels.compiled(x):
            return _Route.apply(x, self, iterations)
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
    """The same, for x of length one: a compiled pass each time."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, routing: Routing, iterations: int) -> Tensor:
        ends = routing.pointer.numpy(), routing.neighbour.numpy()
        x, times = x.contiguous(), [x.contiguous()]
        lengths, shares = [], []
        for _ in range(iterations):
            times.append(torch.empty_like(x))
            lengths.append(x.new_empty(x.shape[:2]))
            shares.append(x.new_empty(len(routing.source), x.shape[1]))
            u, before, length, share = times[-1], times[-2], lengths[-1], shares[-1]
            _assign(*ends, *_arrays(x, before, u, length, share))
        ctx.ends = ends
        ctx.save_for_backward(*times, *lengths, *shares)
        return times[-1]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        saved = ctx.saved_tensors
        iterations = len(saved) // 3
        x, *times = saved[: iterations + 1]
        lengths, shares = saved[iterations + 1 : 2 * iterations + 1], saved[2 * iterations + 1 :]
        befores = (x, *times[:-1])
        to_u, to_x = gradient.contiguous(), torch.zeros_like(x)
        for step in reversed(range(iterations)):
            to_before = torch.empty_like(x)
            # What is zero has no direction, and no gradient.
            length = lengths[step].masked_fill(lengths[step] <= SHORTEST, LONGEST)
            here = times[step], length, shares[step]
            _assign_backward(*ctx.ends, *_arrays(to_u, x, befores[step], *here, to_x, to_before))
            to_u = to_before
        return to_x.add_(to_u), None, None


def _arrays(*tensors: Tensor) -> list[np.ndarray]:
    return [tensor.detach().numpy() for tensor in tensors]


@kernels.compile_pass
def _assign(
    pointer: np.ndarray,
    neighbour: np.ndarray,
    x: np.ndarray,
    before: np.ndarray,
    u: np.ndarray,
    length: np.ndarray,
    share: np.ndarray,
) -> None:
    """One time from `before` to u, (n, F, D), with the lengths that u was divided by, (n, F), and π."""
    factors, width = x.shape[1], x.shape[2]
    for node in range(x.shape[0]):
        for factor in range(factors):
            total, own = u[node, factor], x[node, factor]
            for position in range(width):
                total[position] = own[position]
        for edge in range(pointer[node], pointer[node + 1]):
            source, mass = neighbour[edge], np.float32(0)
            highest = np.float32(-np.inf)
            for factor in range(factors):
                message, old = x[source, factor], before[node, factor]
                score = np.float32(0)
                for position in range(width):
                    score += message[position] * old[position]
                share[edge, factor] = score
                highest = max(highest, score)
            for factor in range(factors):
                share[edge, factor] = np.exp(share[edge, factor] - highest)
                mass += share[edge, factor]
            for factor in range(factors):
                part = share[edge, factor] / mass
                share[edge, factor] = part
                message, total = x[source, factor], u[node, factor]
                for position in range(width):
                    total[position] += part * message[position]
        for factor in range(factors):
            total, square = u[node, factor], np.float32(0)
            for position in range(width):
                square += total[position] * total[position]
            long = max(np.sqrt(square), np.float32(SHORTEST))
            length[node, factor] = long
            for position in range(width):
                total[position] /= long


@kernels.compile_pass
def _assign_backward(
    pointer: np.ndarray,
    neighbour: np.ndarray,
    to_u: np.ndarray,
    x: np.ndarray,
    before: np.ndarray,
    u: np.ndarray,
    length: np.ndarray,
    share: np.ndarray,
    to_x: np.ndarray,
    to_before: np.ndarray,
) -> None:
    """Adds to `to_x` and writes to `to_before`, (n, F, D), what `_assign` hands back of `to_u`."""
    factors, width = x.shape[1], x.shape[2]
    slope = np.empty((factors, width), np.float32)
    to_share = np.empty(factors, np.float32)
    for node in range(x.shape[0]):
        # u = v / |v|, so that v has the part of its gradient that is at right angles to u.
        for factor in range(factors):
            given, own = to_u[node, factor], u[node, factor]
            along = np.float32(0)
            for position in range(width):
                along += given[position] * own[position]
            for position in range(width):
                value = (given[position] - along * own[position]) / length[node, factor]
                slope[factor, position] = value
                to_x[node, factor, position] += value
                to_before[node, factor, position] = np.float32(0)
        for edge in range(pointer[node], pointer[node + 1]):
            source, mean = neighbour[edge], np.float32(0)
            for factor in range(factors):
                message, total = x[source, factor], np.float32(0)
                for position in range(width):
                    total += message[position] * slope[factor, position]
                to_share[factor] = total
                mean += share[edge, factor] * total
            for factor in range(factors):
                part = share[edge, factor]
                to_score = part * (to_share[factor] - mean)
                message, to_message = x[source, factor], to_x[source, factor]
                old, to_old = before[node, factor], to_before[node, factor]
                for position in range(width):
                    to_message[position] += part * slope[factor, position] + to_score * old[position]
                    to_old[position] += to_score * message[position]
