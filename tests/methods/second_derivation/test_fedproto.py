"""FedProto as a loop over clients, from Tan et al., AAAI 2022, their code, and OpenFGL's.

No model is exchanged. With h_v what the classifier of client k reads at node v, T_kc its training nodes of
class c and m_kc their number, these are the client's prototypes and those of all, over the clients N_c with
m_kc > 0:

    P_kc = mean of h_v over T_kc,                                                         (1)
    P_c = Σ_k m_kc P_kc / Σ_k m_kc.                                                      (2)

In print (2) is divided by |N_c| once more; the public code takes the plain mean over N_c, and OpenFGL the
mean over all clients by their number of nodes, in which a class that a client lacks is a zero vector. From
the second round on a client descends on CE + λR, R over the classes that it has and that have a P_c:

    Σ_c mean over dimensions of (P_kc − P_c)², P_kc of the model in training              (3)
    mean over v ∈ T_k and dimensions of (h_v − P_y(v))²                    public code    (4)
    Σ_c mean over v ∈ T_kc and dimensions of (h_v − P_c)²                  OpenFGL        (5)

In print (3) is the L2 distance; `methods.fedproto` takes the mean square, as public code does, and so does
this loop. A node is of the class whose P_c is nearest to h_v, in print, or what its client's classifier says.
The paper is silent on a class that no client of the round has: as in `methods.fedproto` its P_c stays, and
clients that are absent predict by the newest P_c. A class that never had one is at squared distance 10⁶.
"""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from fedsub.methods.stacked.parameters import Parameters
from tests.methods.loops import Part, hidden_of
from tests.methods.oracle import forward
from tests.methods.second_derivation.common import COMMUNITY, Pair, divided
from tests.methods.second_derivation.rounds import EVERYONE, SOME, fit, supervised, turn

CLIENTS, STRENGTH, DECAY = 6, 0.7, 1e-3
SGD = {"optimiser": "sgd", "learning_rate": 0.2, "local_epochs": 2, "weight_decay": DECAY}
ADAM = {"optimiser": "adam", "learning_rate": 0.01, "local_epochs": 2, "weight_decay": DECAY}
LACKING = {**EVERYONE, "leavers": "3@1"}
"""Schedule without the only client that has nodes of class 0."""
FEW = {"rounds": 3, "participation": 0.34}
"""Schedule in which that client first trains in round 3, when other classes have a prototype."""
FAR = 1e6
Prototypes = dict[int, Tensor]
"""Class → its prototype, (width,), if it has one."""


def members(part: Part) -> dict[int, Tensor]:
    """Return class → the client's training nodes, for classes with any."""
    nodes: dict[int, list[int]] = {}
    for node in part["train"].nonzero().flatten().tolist():
        nodes.setdefault(int(part["labels"][node]), []).append(node)
    return {label: torch.tensor(mine) for label, mine in nodes.items()}


def own(part: Part, hidden: Tensor) -> Prototypes:
    return {label: hidden[nodes].mean(dim=0) for label, nodes in members(part).items()}


def joined(parts: list[Part], prototypes: list[Prototypes], average: str) -> Prototypes:
    """Return the server's prototypes by (2), in the variant `average`, over the clients of the round."""
    found: Prototypes = {}
    for label in sorted({label for mine in prototypes for label in mine}):
        have = [k for k, mine in enumerate(prototypes) if label in mine]
        mine = torch.stack([prototypes[k][label] for k in have])
        if average == "openfgl":
            nodes = torch.tensor([len(part["labels"]) for part in parts])
            found[label] = nodes[have].float() @ mine / nodes.sum()
            continue
        counts = [len(members(parts[k])[label]) for k in have]
        found[label] = torch.tensor(counts).float() @ mine / sum(counts)
    return found


def regularizer(part: Part, hidden: Tensor, given: Prototypes, distance: str) -> Tensor:
    """Return the regulariser (3), (4) or (5)."""
    terms = []
    for label, nodes in members(part).items():
        if label not in given:
            continue
        if distance == "prototypes":
            terms.append((hidden[nodes].mean(dim=0) - given[label]).square().mean())
        elif distance == "nodes":
            share = len(nodes) / int(part["train"].sum())
            terms.append(share * (hidden[nodes] - given[label]).square().mean())
        else:
            terms.append((hidden[nodes] - given[label]).square().mean())
    return torch.stack(terms).sum()


def objective(part: Part, model: Parameters, backbone: str, given: Prototypes, distance: str) -> Tensor:
    loss = supervised(part, forward(part, model, backbone))
    if not given.keys() & members(part).keys():
        return loss
    return loss + STRENGTH * regularizer(part, hidden_of(part, model, backbone), given, distance)


def scores(part: Part, model: Parameters, backbone: str, given: Prototypes, by_prototypes: bool) -> Tensor:
    """Return scores, (n, C): negative squared distances or logits; the largest is the prediction."""
    if not by_prototypes:
        return forward(part, model, backbone)
    columns = []
    for label in range(len(model["head.bias"])):
        hidden = hidden_of(part, model, backbone)
        far = torch.full((len(hidden),), FAR)
        columns.append(-(hidden - given[label]).square().sum(dim=1) if label in given else -far)
    return torch.stack(columns, dim=1)


def compare(backbone: str, options: dict[str, Any], schedule: dict[str, Any]) -> None:
    """Every round's models, the bytes and the last scores are the stacked method's."""
    federation = divided(COMMUNITY, CLIENTS)
    pair = Pair(federation, "fedproto", {"strength": STRENGTH, **options}, backbone, **schedule)
    distance, average = options.get("distance", "prototypes"), options.get("average", "nodes")
    given: Prototypes = {}
    up = down = 0
    for number in range(1, schedule["rounds"] + 1):
        now = turn(pair, number)
        for k in now.present:
            loss = partial(objective, pair.parts[k], pair.models[k], backbone, given, distance)
            fit(pair.optimisers[k], loss, now.epochs[k])
        parts = [pair.parts[k] for k in now.present]
        with torch.no_grad():
            mine = [
                own(pair.parts[k], hidden_of(pair.parts[k], pair.models[k], backbone)) for k in now.present
            ]
        given = given | joined(parts, mine, average)
        # A prototype goes up with how many nodes it is the mean of; clients receive all that there are.
        up += sum(len(prototype) + 1 for prototypes in mine for prototype in prototypes.values())
        down += len(now.receiving) * sum(len(prototype) for prototype in given.values())
        pair.compare(number)
    pair.compare_bytes(up, down)
    by_prototypes = options.get("predict") == "prototypes"
    pair.compare_predictions(lambda k, model: scores(pair.parts[k], model, backbone, given, by_prototypes))


@pytest.mark.parametrize("schedule", [SGD | EVERYONE, SGD | SOME, SGD | FEW, ADAM | EVERYONE])
@pytest.mark.parametrize("average", ["nodes", "openfgl"])
@pytest.mark.parametrize("distance", ["prototypes", "nodes", "classes"])
def test_rounds_agree(distance: str, average: str, schedule: dict[str, Any]) -> None:
    """Also where a class has no prototype yet, which is not compared."""
    compare("gcn", {"distance": distance, "average": average}, schedule)


@pytest.mark.parametrize("distance", ["prototypes", "nodes", "classes"])
@pytest.mark.parametrize("backbone", ["graphsage", "mlp", "sgc"])
def test_rounds_agree_on_other_backbones(backbone: str, distance: str) -> None:
    compare(backbone, {"distance": distance}, {**SGD, **SOME})


@pytest.mark.parametrize("attendance", [EVERYONE, SOME, LACKING], ids=["everyone", "some", "lacking"])
@pytest.mark.parametrize("backbone", ["gcn", "graphsage", "mlp", "sgc"])
def test_the_nearest_prototypes_agree(backbone: str, attendance: dict[str, Any]) -> None:
    compare(backbone, {"predict": "prototypes"}, {**SGD, **attendance})


def test_one_class_is_known_to_one_client_alone() -> None:
    """The schedules LACKING and FEW rely on this: otherwise no prototype would be missing or stay."""
    parts = Pair(divided(COMMUNITY, CLIENTS), "fedproto", {}).parts
    assert [k for k, part in enumerate(parts) if 0 in members(part)] == [3]
