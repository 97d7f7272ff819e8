"""Ditto as a loop over clients, from algorithm 1 of Li et al., ICML 2021.

Client k has two models. One is FedAvg's: it begins at the received w, descends on F_k, and is averaged. The
other, v_k, never leaves the client; it takes as many steps on

    F_k(v_k) + λ/2 ‖v_k − w‖²                                                             (1)

with the w that was received, not what the first model becomes in training. Nodes are classified by v_k.
"""

from typing import Any

import pytest
from torch import Tensor

from fedsub.methods.stacked.parameters import Parameters
from tests.methods.oracle import forward
from tests.methods.second_derivation.common import COMMUNITY, Pair, divided
from tests.methods.second_derivation.rounds import EVERYONE, SOME, distance
from tests.methods.second_derivation.served import average, cross_entropy, play

CLIENTS, DECAY, PERSONAL = 5, 1e-2, "personal."
SGD = {"optimiser": "sgd", "learning_rate": 0.2, "local_epochs": 2, "weight_decay": DECAY}
ADAM = {"optimiser": "adam", "learning_rate": 0.01, "local_epochs": 2, "weight_decay": DECAY}


def own(model: Parameters) -> Parameters:
    return {n.removeprefix(PERSONAL): value for n, value in model.items() if n.startswith(PERSONAL)}


@pytest.mark.parametrize("attendance", [EVERYONE, SOME], ids=["everyone", "some"])
@pytest.mark.parametrize(("optimiser", "strength"), [(SGD, 2.0), (ADAM, 0.1)])
@pytest.mark.parametrize("backbone", ["gcn", "sgc", "graphsage", "mlp"])
def test_rounds_agree(
    backbone: str, strength: float, optimiser: dict[str, Any], attendance: dict[str, Any]
) -> None:
    """Every round's two models, the bytes and the last prediction are the stacked method's."""
    options = {"strength": strength}
    pair = Pair(divided(COMMUNITY, CLIENTS), "ditto", options, backbone, **optimiser, **attendance)

    def loss(k: int, model: Parameters, received: Parameters) -> Tensor:
        """F_k of the first model, and (1): no number of one is in the other's derivatives."""
        part, mine = pair.parts[k], own(model)
        personal = cross_entropy(part, mine, backbone) + strength / 2 * distance(mine, received)
        return cross_entropy(part, {name: model[name] for name in received}, backbone) + personal

    play(pair, loss, average, lambda name: not name.startswith(PERSONAL))
    pair.compare_predictions(lambda k, model: forward(pair.parts[k], own(model), backbone))
