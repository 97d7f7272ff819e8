"""Every method trains on and is scored by the softmax of its logits, and keeps its state in its class."""

from typing import Any

import pytest
import torch

from fedsub.methods.core import registry
from fedsub.methods.core.base import Architecture, FederatedMethod, Schedule
from fedsub.methods.core.steps import begin_round
from fedsub.methods.core.training import end_round, start_round
from tests.methods.federations import community_federation, make_method
from tests.methods.rounding import agree
from tests.methods.variants import CASES

SCHEDULE = Schedule(rounds=3, local_epochs=2, learning_rate=0.02)


def built(name: str, options: dict[str, Any], outputs: str) -> FederatedMethod:
    network = Architecture(registry.describe(name).backbones[0], (8, 8), dropout=0.0, outputs=outputs)
    federation = community_federation(clients=4, nodes=100)
    method: FederatedMethod = make_method(name, options, federation, network, SCHEDULE, seed=1)
    method.build()
    begin_round(method, 1)
    return method


@pytest.mark.parametrize(("name", "options"), CASES)
def test_outputs_are_the_softmax_and_every_part_learns_from_them(name: str, options: dict[str, Any]) -> None:
    """If a loss used logits for either kind of outputs, its parameters would move as before."""
    found, plain = (built(name, options, outputs) for outputs in ("probabilities", "logits"))
    torch.testing.assert_close(found.predict(), plain.predict().softmax(dim=1))
    start = {key: value.detach().clone() for key, value in plain.parameters.items()}
    for method in (found, plain):
        start_round(method, 1)
    moved = [key for key, value in plain.parameters.items() if not agree(value, start[key])]
    assert moved
    same = [key for key in moved if agree(found.parameters[key], plain.parameters[key])]
    assert same == []
    # A method's class declares all attributes that the method ever sets.
    end_round(plain)
    declared = {key for kind in type(plain).__mro__ for key in getattr(kind, "__annotations__", {})}
    assert set(vars(plain)) <= declared
