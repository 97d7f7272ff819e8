"""Optimisers for stacked parameters: one Adam with state (K, …) is K Adams.

torch's own load its compiler at their first use, which nothing here needs: a quarter of the processor time of
a small run. These do not.
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fedsub.methods.stacked.mixing import column

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
"""Adam's constants, torch's defaults."""


class _Plain(torch.optim.Optimizer):
    """What torch's optimisers do, without their request to torch's compiler."""

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)
    state_dict = inspect.unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Optimizer.load_state_dict)


class _Adam(_Plain, torch.optim.Adam):
    step = torch.no_grad()(inspect.unwrap(torch.optim.Adam.step))


class Descent(_Plain, torch.optim.SGD):
    """Plain gradient descent."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.SGD.step))


def make_adam(parameters: list[Tensor], learning_rate: float, weight_decay: float) -> torch.optim.Optimizer:
    """Adam with L2 weight decay, in one fused pass over its state where this torch has one."""
    try:
        adam = _Adam(parameters, lr=learning_rate, weight_decay=weight_decay, fused=True)
    except RuntimeError:
        # torch before 2.4 refuses fused=True on the CPU.
        return _Adam(parameters, lr=learning_rate, weight_decay=weight_decay)
    adam.register_step_post_hook(_mark_as_written)
    return adam


def _mark_as_written(adam: torch.optim.Optimizer, *_: Any) -> None:
    """Increment the parameters' versions, which caches compare; the fused kernel does not."""
    for group in adam.param_groups:
        for value in group["params"]:
            torch.autograd.graph.increment_version(value)


class MaskedOptimiser(_Plain):
    """Adam or gradient descent for some clients; slices, moments and step counts of the others stay."""

    def __init__(
        self,
        parameters: list[Tensor],
        learning_rate: float,
        weight_decay: float,
        moving: Callable[[], Tensor],
        adam: bool = True,
    ) -> None:
        """`moving` returns at every step which slices are updated, (K,) bool for parameters (K, …)."""
        super().__init__(parameters, {"lr": learning_rate, "weight_decay": weight_decay})
        self.moving, self.adam = moving, adam

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Take a step: Kingma & Ba 2015, algorithm 1, in torch's order of operations, or w ← w − η g."""
        rows = self.moving().nonzero().squeeze(1)
        for group in self.param_groups:
            for value in group["params"]:
                if value.grad is None:
                    continue
                now = value.detach()[rows]
                change = value.grad[rows].add(now, alpha=group["weight_decay"])
                if self.adam:
                    change = self._adapted(value, change, rows)
                value[rows] = now.sub_(change, alpha=group["lr"])

    def _adapted(self, value: Tensor, gradient: Tensor, rows: Tensor) -> Tensor:
        """Adam's direction for the slices `rows`; `gradient` holds their gradients."""
        state = self.state[value]
        if not state:
            state["step"] = torch.zeros(len(value), dtype=torch.float64, device=value.device)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(value), torch.zeros_like(value)
        state["step"][rows] += 1
        step = column(state["step"][rows], value)
        first = state["exp_avg"][rows].lerp_(gradient, 1 - BETA1)
        second = state["exp_avg_sq"][rows].mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
        state["exp_avg"][rows], state["exp_avg_sq"][rows] = first, second
        root = second.sqrt().div_((1 - BETA2**step).sqrt().to(value.dtype)).add_(EPSILON)
        return first.div_((1 - BETA1**step).to(value.dtype)).div_(root)
