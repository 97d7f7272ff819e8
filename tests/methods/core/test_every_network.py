"""Every method: what it is evaluated with, and which networks and outputs it trains."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fedsub.datasets.errors import UserError
from fedsub.methods.core import registry
from fedsub.methods.core.base import FederatedMethod, Schedule
from fedsub.methods.core.evaluation import whole_graph
from fedsub.methods.core.steps import begin_round
from fedsub.methods.core.training import end_round, start_round, train
from fedsub.methods.stacked.architecture import Architecture
from tests.methods.federations import community_federation, make_method
from tests.methods.loops import Clients
from tests.methods.rounding import agree, assert_agree
from tests.methods.variants import CASES, SHORT

SCHEDULE = Schedule(rounds=2, local_epochs=2, learning_rate=0.05)
NETWORK = Architecture(hidden=(8, 8), dropout=0.0)
FEDERATION = community_federation(nodes=60)
CASES_WITHOUT_DROPOUT: list[tuple[str, dict[str, Any]]] = [
    *((name, {"fedlit": {"dropout": 0.0}, **SHORT}.get(name, {})) for name in registry.names()),
    ("fedcog", {"convolution": "gcn"}),
    ("fedpub", {"lambda1": 0.95}),
    ("fedgta", {"network": "gamlp", "hop_weights": "reference"}),
    ("fedstruct", {"version": "b"}),
    ("fedstruct", {"inference": "structure"}),
]


def on_first(name: str, **further: Any) -> Architecture:
    """The network with the first backbone that a method lists."""
    return replace(NETWORK, backbone=registry.describe(name).backbones[0], **further)


def test_dropout_in_evaluation_is_drawn_anew_and_right_on_average():
    """The output layer is linear in the hidden layer after dropout: the mean over draws is the output without
    dropout."""
    kept_on = replace(SCHEDULE, evaluate_dropout=True)
    clients = Clients(kept_on, dropout=0.5, federation=FEDERATION)
    clients.architecture = replace(clients.architecture, hidden=(16,))
    method = clients.create("fedavg")
    train(method)
    drawn = torch.stack([method.predict() for _ in range(600)])
    assert not torch.equal(drawn[0], drawn[1])
    method.schedule = SCHEDULE
    plain = method.predict()
    assert torch.equal(plain, method.predict())
    error = drawn.std(dim=0) / len(drawn) ** 0.5
    assert ((drawn.mean(dim=0) - plain).abs() < 5 * error + 1e-5).all()


@pytest.mark.parametrize(("name", "options"), CASES_WITHOUT_DROPOUT)
def test_what_evaluation_does_besides_does_not_hang_on_dropout(name: str, options: dict[str, Any]) -> None:
    """With dropout 0 it makes no difference whether dropout stays on."""
    method = make_method(name, options, FEDERATION, on_first(name), SCHEDULE)
    train(method)
    predicted = method.predict()
    method.schedule = replace(SCHEDULE, evaluate_dropout=True)
    assert_agree(method.predict(), predicted)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_on_the_whole_graph_nothing_of_the_own_graph_predicts(name: str, options: dict[str, Any]) -> None:
    """A method is refused, or each client's model predicts as if the whole graph were the client's own."""
    schedule = replace(SCHEDULE, evaluate="whole-graph")
    method = make_method(name, options, FEDERATION, on_first(name), schedule)
    method.build()
    try:
        whole_graph(method)
    except UserError:
        return
    train(method)
    predicted = whole_graph(method)[1]().view(FEDERATION.clients, FEDERATION.nodes, -1)
    if method.info.scored_plain:
        name, options = "fedavg", {}
    twin = make_method(name, options, FEDERATION.merged()[0], on_first(name), schedule)
    twin.build()
    for client in range(FEDERATION.clients):
        for key, model in method.parameters.items():
            twin.parameters[key] = model[min(client, len(model) - 1)].unsqueeze(0)
        assert_agree(predicted[client], twin.predict())


@pytest.mark.parametrize("name", registry.names())
def test_further_parts_of_a_network_train_or_are_refused(name: str) -> None:
    """No method silently ignores a requested part."""
    info = registry.describe(name)
    first = "gcn" if "gcn" in info.backbones else info.backbones[0]
    parts = ({"norm": "layer", "residual": True}, {"input_norm": True}, {"head": "convolution"})
    tried: list[tuple[str, dict[str, Any]]] = [(first, each) for each in parts]
    if "gprgnn" in info.backbones:
        tried.append(("gprgnn", {"gpr_dropout": True}))
    for backbone, further in tried:
        lacking = [part for part in info.lacks if part in further]
        said = f"own layers do not support {lacking[0]}" if lacking else ""
        if name == "fedgcn" and "input_norm" in further:
            said = "unnormalised features: set input_norm=false"
        if name == "fedtad" and "gpr_dropout" in further:
            said = "does not support input_norm or replaced features"
        if said:
            with pytest.raises(UserError, match=said):
                _outputs(name, backbone, further)
            continue
        plain, found = (_outputs(name, backbone, each) for each in ({}, further))
        assert found.isfinite().all()
        is_unused = "backbone" in registry.make_options(name, {}).unused(backbone)
        assert is_unused or not torch.allclose(found, plain)


def _outputs(name: str, backbone: str, further: dict[str, Any]) -> Tensor:
    network = Architecture(backbone, (8, 8), **further)
    method: FederatedMethod = make_method(name, SHORT.get(name), FEDERATION, network, Schedule(rounds=1))
    train(method)
    return method.predict()


def built(name: str, options: dict[str, Any], outputs: str) -> FederatedMethod:
    network = on_first(name, outputs=outputs)
    method: FederatedMethod = make_method(name, options, FEDERATION, network, SCHEDULE, seed=1)
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
