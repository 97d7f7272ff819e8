"""Where parameters start: torch's own draws, whose scale the papers' codes take over."""

from __future__ import annotations

import torch

from fedsub.methods.stacked.parameters import glorot, linear_start, stack


def test_glorots_start_is_torchs() -> None:
    expected = torch.nn.init.xavier_uniform_(torch.empty(50, 7), generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(glorot((50, 7), torch.Generator().manual_seed(3)), expected)


def test_a_linear_layers_start_is_torchs() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        layer = torch.nn.Linear(50, 7)
    start = linear_start(50, 7, torch.Generator().manual_seed(3))
    assert start["weight"].shape == (50, 7)
    torch.testing.assert_close(start["weight"].flatten(), layer.weight.detach().flatten())
    torch.testing.assert_close(start["bias"], layer.bias.detach())


def test_every_client_starts_from_the_same_leaf() -> None:
    start = linear_start(4, 3, torch.Generator().manual_seed(0))
    for name, value in stack(start, 5).items():
        assert value.is_leaf
        assert value.requires_grad
        assert all(torch.equal(own, start[name]) for own in value)
