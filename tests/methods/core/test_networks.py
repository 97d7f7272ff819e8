"""Every method trains the further parts of an architecture, or is refused with a reason."""

from typing import Any

import pytest
import torch
from torch import Tensor

from fedsub.datasets.errors import UserError
from fedsub.methods.core import registry
from fedsub.methods.core.base import FederatedMethod, Schedule
from fedsub.methods.core.training import train
from fedsub.methods.stacked.architecture import Architecture
from tests.methods.federations import community_federation, make_method

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
    """No method silently ignores a requested part."""
    info = registry.describe(name)
    backbone = "gcn" if "gcn" in info.backbones else info.backbones[0]
    lacking = [part for part in info.lacks if part in further]
    if lacking:
        with pytest.raises(UserError, match=f"own layers do not support {lacking[0]}"):
            _outputs(name, backbone, further)
    elif name == "fedgcn" and "input_norm" in further:
        with pytest.raises(UserError, match="unnormalised features: set input_norm=false"):
            _outputs(name, backbone, further)
    else:
        found = _outputs(name, backbone, further)
        assert found.isfinite().all()
        is_unused = "backbone" in registry.make_options(name, {}).unused(backbone)
        assert is_unused or not torch.allclose(found, _outputs(name, backbone, {}))


def _outputs(name: str, backbone: str, further: dict[str, Any]) -> Tensor:
    network = Architecture(backbone, (8, 8), **further)
    method: FederatedMethod = make_method(name, QUICK.get(name), FEDERATION, network, Schedule(rounds=1))
    train(method)
    return method.predict()
