"""Cross-entropy, and the squared distance to received parameters, with gradients in the same pass."""

from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor
from torch.autograd.function import once_differentiable

from fedsub.methods.stacked import kernels
from fedsub.methods.stacked.mixing import by_client


def cross_entropy(output: Tensor, rows: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
    """Σ_i weight[i] · cross-entropy of output[rows[i]] against labels[i]; output (n, C), the others (m,)."""
    if kernels.compiled(output):
        return _CrossEntropy.apply(output, rows, labels, weight)
    return torch.dot(functional.cross_entropy(output[rows], labels, reduction="none"), weight)


class _CrossEntropy(torch.autograd.Function):
    """The loss and its gradient in one pass."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, rows: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
        wanted = ctx.needs_input_grad[0]
        gradient = torch.zeros_like(output) if wanted else output.new_empty(0, 0)
        total = kernels.cross_entropy(
            output.detach().contiguous().numpy(),
            rows.numpy(),
            labels.numpy(),
            weight.numpy(),
            gradient.numpy(),
        )
        if wanted:
            ctx.save_for_backward(gradient)
        return output.new_tensor(total)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * upstream, None, None, None


class _SquaredDistance(torch.autograd.Function):
    """‖w − s‖², whose gradient is 2 (w − s): the difference is formed once and becomes the gradient.

    Parameters of all clients do not fit a cache; torch's own chain of operations passes over memory twice
    as often.
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
    """Σ (value − received)², (), which keeps clients near the server's model; `value` (K, …), `received`
    (1, …) or (K, …), constant."""
    return _SquaredDistance.apply(value, received)
