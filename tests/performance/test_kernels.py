"""The parts of a round, each beside what it was chosen over. `make perf` saves the times; none is asserted.

pytest-benchmark compares the saved times of two commits: `pytest-benchmark compare 0001 0002`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from fedsub.datasets.federation import Federation
from fedsub.methods.adafgl.messages import Messages
from fedsub.methods.adafgl.smoothing import Smoothing
from fedsub.methods.core.base import FederatedMethod
from fedsub.methods.core.training import end_round
from fedsub.methods.fediih.routing import Routing
from fedsub.methods.stacked import kernels, sparse
from fedsub.methods.stacked.activation import Dropout, activate
from fedsub.methods.stacked.distance import squared_distance
from fedsub.methods.stacked.features import Features
from fedsub.methods.stacked.mixing import mix
from fedsub.methods.stacked.optimiser import make_adam
from fedsub.methods.stacked.propagation import propagate, symmetric_weight, use_kernel, with_self_loops
from fedsub.methods.stacked.segments import Segments, segment_product
from fedsub.methods.stacked.sparse import NARROW

WIDTH = 128


def leaf(*shape: int) -> Tensor:
    """Random parameters."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).requires_grad_()


def forward_and_backward(function: Callable[[], Tensor], leaves: list[Tensor]) -> Callable[[], None]:
    """Both ways through a differentiable function, gradients dropped as in a round."""
    out = function()
    gradient = torch.randn_like(out)

    def both() -> None:
        for each in leaves:
            each.grad = None
        function().backward(gradient)

    return both


@pytest.fixture(scope="module")
def segments(federation: Federation) -> Segments:
    return Segments(federation.sizes)


@pytest.fixture(params=["numba", "torch"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Our compiled passes, or torch's operations in their place."""
    if request.param == "torch":
        monkeypatch.setattr(kernels, "compiled", lambda h: False)


@pytest.mark.parametrize("form", ["sparse", "dense"])
def test_feature_product(
    benchmark: Any,
    monkeypatch: pytest.MonkeyPatch,
    federation: Federation,
    segments: Segments,
    form: str,
) -> None:
    """The first layer's X W; the form is otherwise chosen by the share of non-zeros."""
    monkeypatch.setattr("fedsub.methods.stacked.features.is_dense", lambda values: form == "dense")
    features = Features(federation.features, segments)
    weight = leaf(federation.clients, features.width, WIDTH)

    def product() -> Tensor:
        features.renew_gradients()
        return features.times(weight)

    benchmark(forward_and_backward(product, [weight]))


@pytest.mark.parametrize("outputs", [7, 12, WIDTH])
@pytest.mark.usefixtures("kernel")
def test_dense_layer(benchmark: Any, federation: Federation, segments: Segments, outputs: int) -> None:
    """Numba takes the products with few outputs alone."""
    h, weight = leaf(federation.nodes, WIDTH), leaf(federation.clients, WIDTH, outputs)
    benchmark(forward_and_backward(partial(segment_product, h, weight, segments), [h, weight]))


@pytest.mark.usefixtures("kernel")
def test_classifier_of_one_model(benchmark: Any, federation: Federation) -> None:
    """One model of all clients, as FedStruct's."""
    segments = Segments(torch.tensor([federation.nodes]))
    h, weight = leaf(federation.nodes, WIDTH), leaf(1, WIDTH, 7)
    benchmark(forward_and_backward(partial(segment_product, h, weight, segments), [h, weight]))


@pytest.mark.parametrize("least", [0.0, float("inf")], ids=["onednn", "mkl"])
@pytest.mark.parametrize(("rows", "inner", "outer"), [(250, 128, 128), (1378, 767, 128), (4900, 300, 256)])
def test_large_layer(
    benchmark: Any, monkeypatch: pytest.MonkeyPatch, rows: int, inner: int, outer: int, least: float
) -> None:
    """Clients as large as those of Cora, of Amazon-Computers and of Amazon-Ratings."""
    monkeypatch.setattr("fedsub.methods.stacked.segments._LARGE", least)
    segments = Segments(torch.full((5,), rows))
    h, weight = leaf(5 * rows, inner), leaf(5, inner, outer)
    benchmark(forward_and_backward(partial(segment_product, h, weight, segments), [h, weight]))


@pytest.mark.parametrize("width", [NARROW // 2, NARROW, WIDTH])
@pytest.mark.parametrize("kernel", ["numba", "mkl", "dgl"])
def test_propagation(
    benchmark: Any, monkeypatch: pytest.MonkeyPatch, federation: Federation, width: int, kernel: str
) -> None:
    monkeypatch.setattr(sparse, "NARROW", 1 if kernel == "numba" else WIDTH + 1)
    graph = use_kernel(with_self_loops(federation.graph), "dgl" if kernel == "dgl" else "torch")
    weight, h = symmetric_weight(graph), leaf(federation.nodes, width)
    benchmark(forward_and_backward(partial(propagate, graph, h, weight), [h]))


@pytest.mark.usefixtures("kernel")
def test_routing(benchmark: Any, federation: Federation) -> None:
    """FedIIH's, of two factors, six times."""
    route, x = Routing(federation.graph, torch.device("cpu")), leaf(federation.nodes, 2, WIDTH)
    benchmark(forward_and_backward(partial(route, x, 6), [x]))


@pytest.mark.usefixtures("kernel")
def test_smoothing(benchmark: Any, federation: Federation, segments: Segments) -> None:
    """AdaFGL's, where nodes of one class are alike."""
    h = leaf(federation.nodes, WIDTH)
    smooth = Smoothing(federation.graph, alike_by_label(federation, segments), 0.05, segments)
    benchmark(forward_and_backward(partial(smooth, h), [h]))


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("receivers", ["training", "all"])
def test_messages(benchmark: Any, federation: Federation, segments: Segments, receivers: str) -> None:
    """AdaFGL's, of nodes to all others of their client."""
    z = leaf(federation.nodes, int(federation.labels.max()) + 1)
    slope = leaf(federation.clients, 1)
    messages = Messages(alike_by_label(federation, segments), 0.2, segments)
    some = messages.receivers(federation.train.nonzero().squeeze(1))
    hear = partial(messages, z, slope, some if receivers == "training" else messages.everyone)
    benchmark(forward_and_backward(hear, [z, slope]))


def alike_by_label(federation: Federation, segments: Segments) -> Tensor:
    labels = segments.pad(federation.labels.unsqueeze(1) + 1)
    alike = (labels == labels.transpose(1, 2)) & (labels > 0)
    alike.diagonal(dim1=1, dim2=2).fill_(False)
    return alike


@pytest.mark.parametrize("probability", [0.5, 0.3])
@pytest.mark.parametrize("source", ["sfc64", "torch"])
def test_dropout_mask(benchmark: Any, federation: Federation, probability: float, source: str) -> None:
    shape = (federation.nodes, WIDTH)
    if source == "torch":
        kept = torch.empty(shape)
        benchmark(partial(kept.bernoulli_, 1 - probability))
    else:
        benchmark(Dropout(probability, 0).mask, shape)


@pytest.mark.usefixtures("kernel")
def test_activation(benchmark: Any, federation: Federation, segments: Segments) -> None:
    h, bias = leaf(federation.nodes, WIDTH), leaf(federation.clients, WIDTH)
    dropout = Dropout(0.5, 0)
    benchmark(forward_and_backward(partial(activate, h, bias, segments, dropout), [h, bias]))


@pytest.mark.parametrize("kind", ["ours", "loop"])
def test_optimiser_step(benchmark: Any, built: FederatedMethod, kind: str) -> None:
    values = [value.detach().clone().requires_grad_() for value in built.parameters.values()]
    for value in values:
        value.grad = torch.randn_like(value)
    plain = partial(torch.optim.Adam, lr=0.01, weight_decay=1e-6, fused=False, foreach=False)
    optimiser = make_adam(values, 0.01, 1e-6) if kind == "ours" else plain(values)
    benchmark(optimiser.step)


@pytest.mark.parametrize("kind", ["one difference", "torch"])
def test_proximal_term(benchmark: Any, built: FederatedMethod, kind: str) -> None:
    pairs = [(value, built.received[name]) for name, value in built.parameters.items()]
    distance = squared_distance if kind != "torch" else lambda value, server: (value - server).square().sum()

    def term() -> Tensor:
        return torch.stack([distance(value, server) for value, server in pairs]).sum()

    benchmark(forward_and_backward(term, [value for value, _ in pairs]))


def test_average_and_broadcast(benchmark: Any, built: FederatedMethod) -> None:
    benchmark(partial(end_round, built))


def test_mixing_by_matrix(benchmark: Any, built: FederatedMethod) -> None:
    """What FED-PUB does instead: K averages."""
    clients = built.federation.clients
    matrix = torch.full((clients, clients), 1 / clients)
    benchmark(partial(mix, matrix, built.parameters))


def test_prediction(benchmark: Any, built: FederatedMethod) -> None:
    benchmark(built.predict)


def test_scoring(benchmark: Any, built: FederatedMethod) -> None:
    benchmark(partial(built.task.evaluate, built.predict()))
