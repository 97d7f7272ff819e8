"""Every method trains what its architecture adds to the layers, or says why not."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fedsub.datasets.errors import UserError
from fedsub.methods.core import registry
from fedsub.methods.core.base import Schedule
from fedsub.methods.core.setting import make_setting
from fedsub.methods.core.training import train
from fedsub.methods.stacked.architecture import Architecture
from tests.methods.federations import community_federation

FEDERATION = community_federation(nodes=60)
QUICK: dict[str, dict[str, Any]] = {
    "fedsage+": {"wide": 16, "narrow": 8, "latent": 8, "generator_epochs": 2},
    "fedtad": {"server_rounds": 1, "nodes": 20},
}


@pytest.mark.parametrize(
    "further", [{"norm": "layer", "residual": True}, {"input_norm": True}, {"head": "convolution"}]
)
@pytest.mark.parametrize("name", registry.names())
def test_further_parts_of_a_network_train_or_are_refused(name: str, further: dict[str, Any]) -> None:
    """Norm and residual are trained where they are asked for: no method passes over them in silence."""
    info = registry.describe(name)
    backbone = "gcn" if "gcn" in info.backbones else info.backbones[0]
    setting = make_setting(
        FEDERATION, Architecture(backbone, (8, 8), **further), Schedule(rounds=3), merged=info.merged
    )
    method = registry.create(name, QUICK.get(name, {}), setting)
    if info.lacks and "norm" in further:
        with pytest.raises(UserError, match=f"{name} has layers of its own, without {info.lacks[0]}"):
            train(method)
        return
    if name in ("fedgcn", "fediih") and "input_norm" in further:
        with pytest.raises(UserError, match="features as they are: set input_norm=false"):
            train(method)
        return
    assert all(map(math.isfinite, train(method).curve["loss"]))
    own = "backbone" in registry.make_options(name, {}).unused(backbone)
    if "norm" in further and not own:
        assert any(part.endswith("layers.0.gain") for part in method.parameters)
