"""FedSpray's divergence from its targets."""

from __future__ import annotations

import torch
from torch.nn.functional import cross_entropy, kl_div, log_softmax, one_hot

from fedsub.methods.fedspray import Targets


def test_divergence_and_its_gradient_are_torchs():
    """From probabilities, from labels and from both at once; a node without weight has no gradient."""
    generator = torch.Generator().manual_seed(0)
    outputs, other = (5 * torch.randn(2, 40, 3, generator=generator, dtype=torch.float64)).unbind()
    weight = torch.rand(40, generator=generator, dtype=torch.float64)
    weight[7] = 0
    labels = torch.randint(3, (40,), generator=generator)
    soft = Targets.of(other, weight)
    hard = Targets((one_hot(labels, 3) * weight.unsqueeze(1)).t(), torch.zeros(()))
    outputs.requires_grad_()
    kl = kl_div(log_softmax(outputs, dim=1), log_softmax(other, dim=1), reduction="none", log_target=True)
    divergence = torch.dot(kl.sum(dim=1), weight)
    entropy = torch.dot(cross_entropy(outputs, labels, reduction="none"), weight)
    for targets, expected in (
        (soft, divergence),
        (hard, entropy),
        (Targets(soft.weighted + hard.weighted, soft.constant), divergence + entropy),
    ):
        loss = targets.divergence(outputs)
        torch.testing.assert_close(loss, expected)
        (gradient,) = torch.autograd.grad(loss, outputs)
        torch.testing.assert_close(gradient, torch.autograd.grad(expected, outputs, retain_graph=True)[0])
        assert not gradient[7].any()
