"""Every method trains what norm and residual change, or says why not."""

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


@pytest.mark.parametrize("name", registry.names())
def test_norm_and_residual_train_or_are_refused(name: str) -> None:
    """What they change is trained: no method passes over them in silence."""
    info = registry.describe(name)
    backbone = "gcn" if "gcn" in info.backbones else info.backbones[0]
    architecture = Architecture(backbone, (8, 8), norm="layer", residual=True)
    setting = make_setting(FEDERATION, architecture, Schedule(rounds=3), merged=info.merged)
    method = registry.create(name, QUICK.get(name, {}), setting)
    if info.lacks:
        with pytest.raises(UserError, match=f"{name} has layers of its own, without {info.lacks[0]}"):
            train(method)
        return
    outcome = train(method)
    assert all(map(math.isfinite, outcome.curve["loss"]))
    own = "backbone" in registry.make_options(name, {}).unused(backbone)
    if not own:
        assert any(part.endswith("layers.0.gain") for part in method.parameters)
