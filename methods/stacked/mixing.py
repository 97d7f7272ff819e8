"""Similarities between clients, distances to the server's model, and its step new_i = Σ_j M_ij w_j."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def by_client(value: Tensor) -> Tensor:
    """One row for each client, (K, …) → (K, m); one number for each, (K,), becomes (K, 1)."""
    return value.reshape(len(value), -1)


def gram(vectors: Iterable[Tensor]) -> Tensor:
    """Inner products between clients of the concatenation of `vectors`, each (K, …); (K, K) float64.

    One product for each vector, so that the concatenation is never built.
    """
    products = [each @ each.T for each in map(by_client, vectors)]
    return torch.stack(products).double().sum(dim=0)


def cosine(products: Tensor) -> Tensor:
    """Cosines from inner products (K, K), clamped to [−1, 1]; 0 where a vector is zero."""
    norms = products.diagonal().clamp(min=0).sqrt()
    return (products / (norms.unsqueeze(0) * norms.unsqueeze(1)).clamp(min=1e-12)).clamp(-1, 1)


def mix(matrix: Tensor, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """M w for each stacked parameter (K, …); `matrix` is (R, K), the results (R, …)."""
    return {
        name: (matrix @ by_client(value.detach())).view(len(matrix), *value.shape[1:])
        for name, value in parameters.items()
    }


def column(each: Tensor, value: Tensor) -> Tensor:
    """Reshape one entry for each client, (K,), to the axes of a stacked value, (K, 1, …)."""
    return each.view(-1, *(1,) * (value.dim() - 1))


def weighted_mean(value: Tensor, weights: Tensor) -> Tensor:
    """Mean over clients with weights p_k, (K,), of a stacked value, (K, …) → (1, …), detached."""
    return (weights @ by_client(value.detach())).view_as(value[:1])


def for_clients(new: Tensor, old: Tensor, who: Tensor) -> Tensor:
    """`new` for the clients of `who`, (K,) bool, `old` for the others; (K, …).

    Either may be (1, …). If `who` is everyone, `new` itself.
    """
    return new if bool(who.all()) else torch.where(column(who, new), new, old)


class _SquaredDistance(torch.autograd.Function):
    """‖w − s‖², whose gradient is 2 (w − s): the difference is formed once and becomes the gradient.

    All clients' parameters do not fit a cache, and torch's own operations pass over them twice as often.
    """

    @staticmethod
    def forward(ctx: Any, value: Tensor, received: Tensor) -> Tensor:
        difference = value - received
        ctx.save_for_backward(difference)
        # Client by client, because one sum over all clients loses digits in single precision.
        return torch.linalg.vector_norm(by_client(difference), dim=1).square().sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (difference,) = ctx.saved_tensors
        return difference.mul_(2 * gradient), None


def squared_distance(value: Tensor, received: Tensor) -> Tensor:
    """Σ (value − received)², (), for `value` (K, …) and a constant `received`, (1, …) or (K, …)."""
    return _SquaredDistance.apply(value, received)
