"""Neighbourhood routing: every node's neighbours are assigned to its factors in several iterations.

Ma et al., Disentangled Graph Convolutional Networks, ICML 2019, algorithm 1. For node t and factor f, all x_f
and u_f of length one:

    u = x, then several times:  π_st = softmax over f of ⟨x_sf, u_tf⟩,  u_tf ∝ x_tf + Σ_{s ∈ N(t)} π_stf x_sf

With torch's operations each iteration writes and reads an (edges, F, D) tensor more than once. A node's u
depends only on its neighbours' x, so the compiled pass does all iterations of one node before the next, and
stores only π of an edge. The backward pass adds a node's terms to its neighbours' gradients after all
iterations, so that each of these gradients is read and written once.
"""

import math
from typing import Any

import dgl
import numpy as np
import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.methods.compiled import compile_pass, multiply_rows, spread_rows, sum_rows
from fedsub.methods.stacked import kernels
from fedsub.methods.stacked.propagation import Adjacency

SHORTEST = 1e-12
"""Lower bound of the length that a vector is divided by, as in torch's `normalize`."""


class Routing:
    """The routing over a graph's edges, sorted by target node."""

    def __init__(self, graph: dgl.DGLGraph, device: torch.device) -> None:
        self.source, self.target = (end.long().to(device) for end in graph.edges())
        self.pointer, self.neighbour, _ = Adjacency(graph, device).forward
        self.largest = int(self.pointer.diff().max())
        """Largest in-degree of a node."""

    def __call__(self, x: Tensor, iterations: int) -> Tensor:
        """Route x, (n, F, D) → (n, F, D); every resulting factor has length one or zero."""
        if kernels.compiled(x):
            return _Route.apply(x, self, iterations)
        x = _unit(x)
        message, u = x[self.source], x
        for _ in range(iterations):
            share = (message * u[self.target]).sum(dim=2, keepdim=True).softmax(dim=1)
            u = _unit(x.index_add(0, self.target, share * message))
        return u


def _unit(x: Tensor) -> Tensor:
    """Every factor scaled to length one, (n, F, D). A factor of zeros stays zero and has no gradient:
    `normalize` would multiply its gradient by 1e12, which overflows after a few routings."""
    zero = (x == 0).all(dim=2, keepdim=True)
    return functional.normalize(x, dim=2).masked_fill(zero, 0)


class _Route(torch.autograd.Function):
    """Routing by compiled passes over the nodes."""

    @staticmethod
    def forward(ctx: Any, given: Tensor, routing: Routing, iterations: int) -> Tensor:
        ends = routing.pointer.numpy(), routing.neighbour.numpy(), routing.largest
        # x, and u after each iteration, with the lengths by which they were divided.
        units = given.new_empty(iterations + 1, *given.shape)
        lengths = given.new_empty(iterations + 1, *given.shape[:2])
        shares = given.new_empty(iterations, given.shape[1], len(routing.source))
        rows = given.contiguous().flatten(0, 1), units.flatten(0, 2), lengths.flatten(), shares
        _assign(*ends, *(row.detach().numpy() for row in rows))
        ctx.ends = ends
        ctx.save_for_backward(*rows[1:])
        return units[-1].clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        to_x = torch.zeros_like(gradient, memory_format=torch.contiguous_format)
        rows = gradient.contiguous().flatten(0, 1), *ctx.saved_tensors, to_x.flatten(0, 1)
        _assign_backward(*ctx.ends, *(row.detach().numpy() for row in rows))
        return to_x, None, None


@compile_pass
def _scale(given: np.ndarray, at: int, units: np.ndarray, lengths: np.ndarray, row: int) -> None:
    """Scale given[at], (D,), to length one into units[row], (D,); write its length to lengths[row]."""
    square = np.float32(0)
    for position in range(given.shape[1]):
        square += given[at, position] * given[at, position]
    lengths[row] = np.sqrt(square)
    scale = np.float32(1) / max(lengths[row], np.float32(SHORTEST))
    for position in range(given.shape[1]):
        units[row, position] = given[at, position] * scale


@compile_pass
def _scale_backward(
    gradient: np.ndarray, at: int, units: np.ndarray, lengths: np.ndarray, row: int, out: np.ndarray, to: int
) -> None:
    """Write to row `to` of `out` the part of gradient row `at` orthogonal to the unit row, divided by the
    row's length; all (…, D). A row of zeros has gradient zero."""
    along = np.float32(0)
    for position in range(gradient.shape[1]):
        along += gradient[at, position] * units[row, position]
    scale = np.float32(1) / lengths[row] if lengths[row] > np.float32(SHORTEST) else np.float32(0)
    for position in range(gradient.shape[1]):
        out[to, position] = (gradient[at, position] - along * units[row, position]) * scale


SERIES = tuple(np.float32(1 / math.factorial(power)) for power in range(10, -1, -1))
"""Taylor coefficients of exp, highest power first; in [−1, 1] the remainder is below float32's rounding."""


@compile_pass
def _exponential(value: np.float32) -> np.float32:
    """exp(value) for value in [−1, 1]; unlike `np.exp`, the compiler vectorises it."""
    total = np.float32(0)
    for factor in SERIES:
        total = total * value + factor
    return total


@compile_pass
def _assign(
    pointer: np.ndarray,
    neighbour: np.ndarray,
    largest: int,
    given: np.ndarray,
    units: np.ndarray,
    lengths: np.ndarray,
    shares: np.ndarray,
) -> None:
    """From `given`, (n F, D), write x and u after each iteration to `units`, ((1 + T) n F, D), their lengths
    before scaling to `lengths`, ((1 + T) n F,), and π to `shares`, (T, F, edges)."""
    times, factors, _ = shares.shape
    rows, width = given.shape
    flat = units.ravel()
    # A node counts as the last of its own neighbours, with weight one.
    room = largest + 1
    column, near = np.empty((factors, room), np.int32), np.empty((factors, room), np.float32)
    mass, u = np.empty(room, np.float32), np.empty((factors, width), np.float32)
    for row in range(rows):
        _scale(given, row, units, lengths, row)
    for node in range(rows // factors):
        start, count = pointer[node], pointer[node + 1] - pointer[node]
        for factor in range(factors):
            for place in range(count):
                column[factor, place] = neighbour[start + place] * factors + factor
            column[factor, count] = node * factors + factor
            for position in range(width):
                u[factor, position] = units[node * factors + factor, position]
        for time in range(times):
            for place in range(count):
                mass[place] = np.float32(0)
            for factor in range(factors):
                multiply_rows(0, count, column[factor], flat, u[factor], near[factor])
                for place in range(count):
                    near[factor, place] = _exponential(near[factor, place])
                    mass[place] += near[factor, place]
            for factor in range(factors):
                for place in range(count):
                    near[factor, place] /= mass[place]
                    shares[time, factor, start + place] = near[factor, place]
                near[factor, count] = np.float32(1)
                row = (time + 1) * rows + node * factors + factor
                sum_rows(0, count + 1, column[factor], near[factor], flat, u[factor], np.uint64(width))
                _scale(u, factor, units, lengths, row)
                # The next iteration reads u here, without waiting for memory.
                for position in range(width):
                    u[factor, position] = units[row, position]


@compile_pass
def _assign_backward(
    pointer: np.ndarray,
    neighbour: np.ndarray,
    largest: int,
    gradient: np.ndarray,
    units: np.ndarray,
    lengths: np.ndarray,
    shares: np.ndarray,
    to_given: np.ndarray,
) -> None:
    """Add to `to_given`, (n F, D), the gradient of `given` for the last u's `gradient`, (n F, D)."""
    times, factors, _ = shares.shape
    rows, width = gradient.shape
    flat, to_flat = units.ravel(), to_given.ravel()
    column, near = np.empty((factors, largest), np.int32), np.empty((factors, largest), np.float32)
    mean, to_u = np.empty(largest, np.float32), np.empty((factors, width), np.float32)
    # For each factor and iteration: the sum's gradient and the previous u, and a neighbour's weights of both.
    steps = 2 * times
    vectors = np.empty((factors * steps, width), np.float32)
    weights = np.empty((factors, steps, largest), np.float32)
    for node in range(rows // factors):
        start, count = pointer[node], pointer[node + 1] - pointer[node]
        for factor in range(factors):
            for place in range(count):
                column[factor, place] = neighbour[start + place] * factors + factor
            for position in range(width):
                to_u[factor, position] = gradient[node * factors + factor, position]
        for time in range(times - 1, -1, -1):
            for place in range(count):
                mean[place] = np.float32(0)
            for factor in range(factors):
                row, slope = node * factors + factor, factor * steps + 2 * time
                _scale_backward(to_u, factor, units, lengths, (time + 1) * rows + row, vectors, slope)
                multiply_rows(0, count, column[factor], flat, vectors[slope], near[factor])
                for place in range(count):
                    mean[place] += shares[time, factor, start + place] * near[factor, place]
                for position in range(width):
                    to_given[row, position] += vectors[slope, position]
                    vectors[slope + 1, position] = units[time * rows + row, position]
            for factor in range(factors):
                for place in range(count):
                    kept = shares[time, factor, start + place]
                    near[factor, place] = kept * (near[factor, place] - mean[place])
                    weights[factor, 2 * time, place] = kept
                    weights[factor, 2 * time + 1, place] = near[factor, place]
                sum_rows(0, count, column[factor], near[factor], flat, to_u[factor], np.uint64(width))
        for factor in range(factors):
            for position in range(width):
                to_given[node * factors + factor, position] += to_u[factor, position]
            own = vectors[factor * steps : (factor + 1) * steps]
            spread_rows(0, count, column[factor], weights[factor], own, to_flat)
    for row in range(rows):
        _scale_backward(to_given, row, units, lengths, row, to_given, row)
