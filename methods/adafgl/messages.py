"""AdaFGL's dense message passing between all nodes of a client, without storing the m × m matrix R.

R_ij = βB_ij + (1 − β)⟨u_i, u_j⟩, 0 for i = j, where u is softmax z divided by its length. Then

    U_i = Σ_j (R_ij − μ) z_j over j with R_ij > μ,   V_i = Σ_j R_ij z_j over the other j,
    max(R', 0) Z = Z + U / (M − μ),   max(−R', 0) Z = V / μ

With torch's operations R and its derived matrices are (K, m, m) each. The compiled passes compute one row
of R, use it and discard it; the backward pass computes it again.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.methods.compiled import compile_pass
from fedsub.methods.stacked import kernels
from fedsub.methods.stacked.segments import Segments

ALIKE = 0.999
"""Cosine above which two predictions count as equal."""
SMALLEST = 1e-12
Receivers = tuple[Tensor, Segments]
"""The r nodes that receive messages, at most q of a client: their rows among all n nodes, (r,) ascending, and
the clients' segments of these rows."""


def unit_softmax(z: Tensor) -> Tensor:
    """Rows of softmax z divided by their lengths, so that their products are cosines; (n, C)."""
    return functional.normalize(z.softmax(dim=1), dim=1)


def alike_pairs(prior: Tensor, segments: Segments) -> Tensor:
    """B for P (n, C): (K, m, m) bool, m the nodes of the largest client; exactly symmetric."""
    unit = segments.pad(unit_softmax(prior))
    alike = torch.empty(*unit.shape[:2], segments.longest, dtype=torch.bool, device=unit.device)
    # One client after the other: the cosines of all clients at once may not fit in memory.
    for square, own in zip(alike, unit, strict=True):
        near = own @ own.T > ALIKE
        torch.logical_and(near, near.T.contiguous(), out=square)
        square.fill_diagonal_(False)
    return alike


class Messages:
    """Computes z₃ from Z and B = `alike`, (K, m, m) bool."""

    def __init__(self, alike: Tensor, beta: float, segments: Segments) -> None:
        self.alike, self.beta, self.segments = alike, beta, segments
        self.count = torch.stack([square.count_nonzero() for square in alike])
        """(K,) number of ones in B."""
        self.everyone: Receivers = torch.arange(segments.rows, device=alike.device), segments

    def __call__(self, z: Tensor, slope: Tensor, receivers: Receivers) -> Tensor:
        """z₃ for the receivers, Z for other nodes, (n, C); `slope` (K, 1) is φ's.

        With U' = max(R', 0) Z and V' = max(−R', 0) Z, φ(R')Z = U' − slope · V' and φ(−R')Z = V' − slope · U'.
        """
        rows, among = receivers
        unit = unit_softmax(z)
        padded = self.segments.pad(unit)
        mean, top = self._mean(padded), self._top(unit, padded)
        if kernels.compiled(z):
            above, below = _Sums.apply(unit, z, mean, self, receivers)
        else:
            above, below = self._sums(padded, z, mean, receivers)
        own = z.index_select(0, rows)
        above = above / (top - mean).clamp(min=SMALLEST).index_select(0, among.client).unsqueeze(1) + own
        below = below / mean.clamp(min=SMALLEST).index_select(0, among.client).unsqueeze(1)
        slope = slope.index_select(0, among.client)
        towards, away = above - slope * below, below - slope * above
        found = (towards.softmax(dim=1) - away.softmax(dim=1) + own) / 2
        return z.index_copy(0, rows, found)

    def _mean(self, unit: Tensor) -> Tensor:
        """μ, (K,), in float64, since R − μ may be small: Σ_i≠j ⟨u_i, u_j⟩ = Σ_i ⟨u_i, Σ_j u_j − u_i⟩."""
        unit = unit.double()
        cosines = (unit * (unit.sum(dim=1, keepdim=True) - unit)).sum(dim=(1, 2))
        sizes = self.segments.sizes.square().clamp(min=1).to(unit)
        return ((self.beta * self.count + (1 - self.beta) * cosines) / sizes).float()

    def _top(self, unit: Tensor, padded: Tensor) -> Tensor:
        """M, (K,), over all pairs, also in training; its gradient goes to one of the pairs that attain it."""
        client = torch.arange(len(padded), device=unit.device)
        if kernels.compiled(unit):
            node, other = torch.zeros(2, len(padded), dtype=torch.int64)
            _find_highest(self.arrays(unit), node.numpy(), other.numpy())
        else:
            with torch.no_grad():
                likeness = self._likeness(padded, self.everyone)
                node = likeness.amax(dim=2).argmax(dim=1)
                other = likeness[client, node].argmax(dim=1)
        cosine = (padded[client, node] * padded[client, other]).sum(dim=1)
        # A node that is alone is its own pair.
        return (self.beta * self.alike[client, node, other] + (1 - self.beta) * cosine) * (node != other)

    def _sums(self, unit: Tensor, z: Tensor, mean: Tensor, receivers: Receivers) -> tuple[Tensor, Tensor]:
        """U and V of the receivers, (r, C) each, by torch's operations."""
        likeness, padded = self._likeness(unit, receivers), self.segments.pad(z)
        mean = mean.view(-1, 1, 1)
        near = likeness > mean
        above = ((likeness - mean) * near) @ padded
        below = likeness.masked_fill(near, 0) @ padded
        _, among = receivers
        return among.unpad(above), among.unpad(below)

    def _likeness(self, unit: Tensor, receivers: Receivers) -> Tensor:
        """The receivers' rows of R, (K, q, m); `unit` is (K, m, C)."""
        rows, among = receivers
        place = self.segments.place[rows]
        heard, alike = (among.pad(whole.flatten(0, 1)[place]) for whole in (unit, self.alike))
        found = self.beta * alike + (1 - self.beta) * heard @ unit.transpose(1, 2)
        own = among.place * self.segments.longest + place % self.segments.longest
        found.view(-1).index_fill_(0, own, 0)
        return found

    def arrays(self, unit: Tensor) -> "Likeness":
        """The arrays from which every pass computes R."""
        rows, ends = unit.detach().contiguous().numpy(), self.segments.ends.numpy()
        shares = np.float32(self.beta), np.float32(1 - self.beta)
        starts = ends - self.segments.sizes.numpy()
        return Likeness(rows, rows.T.copy(), self.alike.numpy(), *shares, starts, ends)


class Likeness(NamedTuple):
    """The arrays from which R of all clients is computed."""

    unit: np.ndarray
    across: np.ndarray
    """u, (n, C), and uᵀ, (C, n)."""
    alike: np.ndarray
    """B, (K, m, m)."""
    beta: np.float32
    rest: np.float32
    """1 − β."""
    starts: np.ndarray
    ends: np.ndarray
    """(K,) first row of each client, and one past its last."""


class _Sums(torch.autograd.Function):
    """U and V by compiled passes."""

    @staticmethod
    def forward(
        ctx: Any, unit: Tensor, z: Tensor, mean: Tensor, messages: Messages, receivers: Receivers
    ) -> tuple[Tensor, Tensor]:
        rows, among = receivers
        found = z.new_empty(2, len(rows), z.shape[1])
        ctx.given = messages.arrays(unit), z.detach().numpy().T.copy(), mean.detach().numpy()
        ctx.at = rows.numpy(), among.client_array
        _sum_messages(*ctx.given, *ctx.at, *found.numpy())
        return found[0], found[1]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        likeness, messages, mean = ctx.given
        slopes = [gradient.contiguous().numpy() for gradient in gradients]
        handed = [np.zeros_like(value) for value in (likeness.unit, likeness.across, messages, mean)]
        _sum_messages_backward(*ctx.given, *ctx.at, *slopes, *handed)
        to_unit, to_across, to_z, to_mean = handed
        to_unit += to_across.T
        return torch.from_numpy(to_unit), torch.from_numpy(to_z.T), torch.from_numpy(to_mean), None, None


@compile_pass
def _make_row(likeness: Likeness, client: int, node: int, first: int, row: np.ndarray) -> None:
    """Write R between one node and the client's nodes from `first` on to `row`, (m,); `node` and `first`
    count from the client's start."""
    start, unit, across = likeness.starts[client], likeness.unit, likeness.across
    row, same = row[first:], likeness.alike[client, node, first:]
    for other in range(len(row)):
        row[other] = likeness.beta if same[other] else np.float32(0)
    for column in range(unit.shape[1]):
        factor, value = likeness.rest * unit[start + node, column], across[column, start + first :]
        for other in range(len(row)):
            row[other] += factor * value[other]
    row[node - first] = np.float32(0)


@compile_pass
def _find_highest(likeness: Likeness, node: np.ndarray, other: np.ndarray) -> None:
    """Write each client's two nodes with the highest R, counted from its first, to `node`, `other` (K,)."""
    room = np.empty(likeness.alike.shape[1], np.float32)
    for client in range(len(likeness.starts)):
        best, row = np.float32(0), room[: likeness.ends[client] - likeness.starts[client]]
        for place in range(len(row) - 1):
            # R is symmetric.
            _make_row(likeness, client, place, place, row)
            highest = np.float32(0)
            for value in row[place:]:
                highest = max(highest, value)
            if highest > best:
                best, node[client] = highest, place
                other[client] = place + row[place:].argmax()


@compile_pass
def _part(row: np.ndarray, mean: np.float32, near: np.ndarray, far: np.ndarray) -> None:
    """Write R − μ where R > μ to `near`, and R elsewhere to `far`; all other entries are zero, (m,) each."""
    for other in range(len(row)):
        is_near = row[other] > mean
        near[other] = row[other] - mean if is_near else np.float32(0)
        far[other] = np.float32(0) if is_near else row[other]


@compile_pass
def _sum_messages(
    likeness: Likeness,
    messages: np.ndarray,
    mean: np.ndarray,
    receiver: np.ndarray,
    client: np.ndarray,
    above: np.ndarray,
    below: np.ndarray,
) -> None:
    """U and V, (r, C), for nodes `receiver` of `client`, (r,) each; `messages` is Z transposed, (C, n)."""
    room = np.empty((3, likeness.alike.shape[1]), np.float32)
    for index in range(len(receiver)):
        own = client[index]
        start, end = likeness.starts[own], likeness.ends[own]
        row, near, far = room[0, : end - start], room[1, : end - start], room[2, : end - start]
        _make_row(likeness, own, receiver[index] - start, 0, row)
        _part(row, mean[own], near, far)
        for column in range(messages.shape[0]):
            value, high, low = messages[column, start:end], np.float32(0), np.float32(0)
            for other in range(len(value)):
                high += near[other] * value[other]
                low += far[other] * value[other]
            above[index, column], below[index, column] = high, low


@compile_pass
def _sum_messages_backward(
    likeness: Likeness,
    messages: np.ndarray,
    mean: np.ndarray,
    receiver: np.ndarray,
    client: np.ndarray,
    to_above: np.ndarray,
    to_below: np.ndarray,
    to_unit: np.ndarray,
    to_across: np.ndarray,
    to_messages: np.ndarray,
    to_mean: np.ndarray,
) -> None:
    """Add the gradients that `_sum_messages` returns for U's and V's gradients, (r, C) each. The gradient of
    u is split into one for its rows, (n, C), and one for its transpose, (C, n)."""
    unit, across = likeness.unit, likeness.across
    room = np.empty((6, likeness.alike.shape[1]), np.float32)
    for index in range(len(receiver)):
        own = client[index]
        start, end = likeness.starts[own], likeness.ends[own]
        row, near, far = room[0, : end - start], room[1, : end - start], room[2, : end - start]
        to_near, to_far, to_row = room[3, : end - start], room[4, : end - start], room[5, : end - start]
        node = receiver[index] - start
        _make_row(likeness, own, node, 0, row)
        _part(row, mean[own], near, far)
        to_near[:] = 0
        to_far[:] = 0
        for column in range(messages.shape[0]):
            value, to_value = messages[column, start:end], to_messages[column, start:end]
            high, low = to_above[index, column], to_below[index, column]
            for other in range(len(value)):
                to_near[other] += high * value[other]
                to_far[other] += low * value[other]
                to_value[other] += high * near[other] + low * far[other]
        total = np.float32(0)
        for other in range(len(row)):
            is_near = row[other] > mean[own]
            total += to_near[other] if is_near else np.float32(0)
            to_row[other] = likeness.rest * (to_near[other] if is_near else to_far[other])
        to_mean[own] -= total
        to_row[node] = np.float32(0)
        for column in range(unit.shape[1]):
            value, to_value = across[column, start:end], to_across[column, start:end]
            factor, slope = unit[start + node, column], np.float32(0)
            for other in range(len(value)):
                slope += to_row[other] * value[other]
                to_value[other] += to_row[other] * factor
            to_unit[start + node, column] += slope
