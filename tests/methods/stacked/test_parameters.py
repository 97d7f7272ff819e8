"""Where parameters start: torch's own draws, whose scale the papers' codes take over."""

import torch

from fedsub.methods.stacked.parameters import glorot, linear_start


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
