"""Weighted cross-entropy of chosen rows, its gradient made in the same pass."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor
from torch.autograd.function import once_differentiable

from fedsub.methods.stacked import kernels


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
