"""Every method runs with every network that it lists, or says why not."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

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


PAIRS = [(name, each) for name in registry.names() for each in registry.describe(name).backbones]


@pytest.mark.parametrize(("name", "backbone"), [pair for pair in PAIRS if pair[1] in ("gat", "gprgnn")])
def test_attention_and_pagerank_train_wherever_they_are_listed(name: str, backbone: str) -> None:
    """For three rounds, absent clients included; what is theirs alone moves unless the network is another."""
    info = registry.describe(name)
    schedule = Schedule(rounds=3, local_epochs=2, participation=1.0 if info.needs_everyone else 0.7)
    setting = make_setting(FEDERATION, Architecture(backbone, (8, 8)), schedule, merged=info.merged)
    trained, begun = (registry.create(name, QUICK.get(name, {}), setting) for _ in range(2))
    outcome = train(trained)
    begun.build()
    assert all(map(math.isfinite, outcome.curve["loss"]))
    if "backbone" not in registry.make_options(name, {}).unused(backbone):
        own = [part for part in begun.parameters if part.endswith(("layers.0.sent", "head.pagerank"))]
        assert own
        assert all(not torch.equal(trained.parameters[part], begun.parameters[part]) for part in own)


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
