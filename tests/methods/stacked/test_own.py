"""A user's own network, stacked or client by client, trains as K plain modules do."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import dgl
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedsub.datasets.errors import UserError
from fedsub.datasets.plugins import user_objects
from fedsub.methods.core import registry
from fedsub.methods.core.base import FederatedMethod, Schedule
from fedsub.methods.core.training import train
from fedsub.methods.stacked.architecture import Architecture, runs_with
from fedsub.methods.stacked.networks.own import Own
from fedsub.methods.stacked.parameters import Parameters
from tests.methods.federations import make_method, small_federation
from tests.methods.loops import train_by_loop
from tests.methods.rounding import assert_agree

SCHEDULE = Schedule(rounds=3, local_epochs=2, learning_rate=0.05)
FEDERATION = small_federation(clients=4, nodes=80, scheme="louvain")


class Mean(nn.Module):
    """Layers that sum over neighbours, with torch alone."""

    def __init__(self, features: int, classes: int, hidden: Sequence[int], dropout: float = 0.0) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(features, hidden[0]), nn.Linear(hidden[0], classes)
        self.dropout = nn.Dropout(dropout)

    def forward(self, graph: Any, h: Tensor) -> Tensor:
        source, target = graph.edges()
        degree = graph.in_degrees().clamp(min=1).unsqueeze(1)
        h = self.dropout(self.first(h).relu())
        assert len(h) == graph.num_nodes()
        return self.second(h + torch.zeros_like(h).index_add(0, target, h[source]) / degree)


class Convolutions(nn.Module):
    """DGL's own layers, which do not support vmap."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.first = dgl.nn.GraphConv(features, 8, allow_zero_in_degree=True)
        self.second = dgl.nn.GraphConv(8, classes, allow_zero_in_degree=True)

    def forward(self, graph: Any, h: Tensor) -> Tensor:
        return self.second(graph, self.first(graph, h).relu())


class Centred(Mean):
    """Subtracts the mean over nodes, which padding would change, and has a scalar to train."""

    def __init__(self, features: int, classes: int, hidden: Sequence[int]) -> None:
        super().__init__(features, classes, hidden)
        self.scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, graph: Any, h: Tensor) -> Tensor:
        return super().forward(graph, self.scale * (h - h.mean(dim=0)))


class Inverse(Mean):
    """Divides by zero on the features of padding: no output is NaN, but a gradient would be."""

    def forward(self, graph: Any, h: Tensor) -> Tensor:
        return super().forward(graph, h / (1 - h.mean(dim=1, keepdim=True)))


def made(name: str = "fedavg", schedule: Schedule = SCHEDULE, dropout: float = 0.0) -> Any:
    """Create a method with the network that is passed as `mine`; it is not built yet."""
    architecture = Architecture("mine", (8,), dropout=dropout)
    return make_method(name, {}, FEDERATION, architecture, schedule, seed=1)


def plain_fedavg(network: Callable[..., nn.Module], method: FederatedMethod) -> list[Parameters]:
    """Train plain modules one by one, each on its client's graph, and average them; return their
    parameters."""
    module, dense = network(FEDERATION.width, FEDERATION.classes), FEDERATION.features.to_dense()
    rows = [(FEDERATION.client == k).nonzero().squeeze(1) for k in range(FEDERATION.clients)]
    graphs = [dgl.node_subgraph(FEDERATION.graph, mine) for mine in rows]

    def logits(k: int, model: Parameters) -> Tensor:
        return functional_call(module, model, (graphs[k], dense[rows[k]]))

    start = {name: value[0] for name, value in method.parameters.items()}
    return train_by_loop(FEDERATION, start, logits, [*start], method.weights, SCHEDULE)


@pytest.mark.parametrize(
    ("network", "stacks"),
    [(lambda d, c, hidden=(8,): Mean(d, c, hidden), True), (Convolutions, False)],
    ids=["torch", "dgl"],
)
def test_fedavg_of_a_users_network_is_that_of_k_plain_modules(network: Any, stacks: bool) -> None:
    with user_objects({("backbone", "mine"): network}):
        method, other = made(), made()
        other.build()
        expected = plain_fedavg(network, other)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            train(method)
    assert isinstance(method.backbone, Own)
    assert method.backbone.stacks is stacks
    assert [str(each.message).partition("(")[0] for each in said if "stacked" in str(each.message)] == (
        [] if stacks else ["mine runs client by client, which is slower, because it cannot be stacked "]
    )
    assert sum(each.numel() for each in expected[0].values()) == sum(
        each[0].numel() for each in method.parameters.values()
    )
    for name, value in method.parameters.items():
        assert_agree(value.detach(), torch.stack([each[name].detach() for each in expected]))


@pytest.mark.parametrize("network", [Centred, Inverse])
def test_what_padding_would_change_runs_client_by_client(network: Any) -> None:
    with user_objects({("backbone", "mine"): network}):
        method = made()
        with pytest.warns(UserWarning, match="runs client by client"):
            train(method)
    assert method.predict().isfinite().all()


def test_fedsgd_calls_a_network_on_each_clients_graph() -> None:
    """With one epoch of gradient descent it is FedAvg."""
    schedule = Schedule(rounds=3, local_epochs=1, optimiser="sgd", learning_rate=0.05)
    with user_objects({("backbone", "mine"): Centred}), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        methods = [made(name, schedule) for name in ("fedsgd", "fedavg")]
        for method in methods:
            train(method)
    assert_agree(*(method.predict() for method in methods))


@pytest.mark.parametrize("network", [Mean, Convolutions])
def test_dropout_is_drawn_for_every_client_and_repeats_with_the_seed(network: Any) -> None:
    def run() -> Tensor:
        # Other draws must not change a cell's.
        torch.rand(3)
        method = made(dropout=0.5)
        train(method)
        return method.predict()

    with user_objects({("backbone", "mine"): network}), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.equal(run(), run())
        if network is Mean:
            method = made(dropout=0.5)
            method.build()
            outputs = [method.logits(method.dropout) for _ in range(2)]
            assert not torch.equal(*outputs)
            assert torch.equal(method.predict(), method.predict())


LISTED = [name for name in registry.names() if runs_with(registry.describe(name).backbones, "mine")]


@pytest.mark.parametrize("name", LISTED)
def test_methods_that_ask_nothing_of_the_network_run_with_a_users(name: str) -> None:
    schedule = Schedule(rounds=3, participation=1.0 if registry.describe(name).needs_everyone else 0.7)
    with user_objects({("backbone", "mine"): Mean}):
        method, begun = made(name, schedule), made(name, schedule)
        outcome = train(method)
        begun.build()
    assert torch.tensor(outcome.curve["loss"]).isfinite().all()
    assert not torch.equal(method.parameters["first.weight"], begun.parameters["first.weight"])


def test_fedper_keeps_the_last_module_with_parameters() -> None:
    with user_objects({("backbone", "mine"): Mean}):
        method = made("fedper")
        method.build()
    assert method.shared() == ["first.weight", "first.bias"]


def test_methods_that_read_hidden_layers_refuse_a_users() -> None:
    assert {"fedpub", "moon", "fedproto", "fedaux"}.isdisjoint(LISTED)
    with user_objects({("backbone", "mine"): Mean}), pytest.raises(UserError, match="MOON runs with gcn"):
        made("moon").build()


class Normalised(Mean):
    """Keeps running statistics."""

    def __init__(self, features: int, classes: int, hidden: Sequence[int]) -> None:
        super().__init__(features, classes, hidden)
        self.norm = nn.BatchNorm1d(features)

    def forward(self, graph: Any, h: Tensor) -> Tensor:
        return super().forward(graph, self.norm(h))


class Narrow(Mean):
    """Has one output too few."""

    def forward(self, graph: Any, h: Tensor) -> Tensor:
        return super().forward(graph, h)[:, 1:]


def broken(features: int, classes: int) -> nn.Module:
    return nn.Linear(features, classes)


@pytest.mark.parametrize(
    ("network", "said"),
    [
        (Normalised, "changes buffers in training"),
        (Narrow, r"gives outputs \(80, 2\) for 80 nodes and 3 classes"),
        (broken, "the network mine fails"),
        (lambda features, classes, depth: nn.ReLU(), "needs depth, not a setting"),
        (lambda features, classes: 1 / 0, "network.. of mine fails"),
    ],
)
def test_a_network_that_cannot_be_run_is_refused_in_a_sentence(network: Any, said: str) -> None:
    with user_objects({("backbone", "mine"): network}), pytest.raises(UserError, match=said):
        train(made())
