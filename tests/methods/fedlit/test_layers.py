"""The sum over channels compared with a loop, for some nodes and for all; the order of masks; k-means."""

from typing import Any

import pytest
import torch
from torch import Tensor

from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.fedlit.clustering import EdgeClustering
from fedsub.methods.fedlit.layers import Layer, channel_sum, draw_order
from fedsub.methods.stacked import kernels
from fedsub.methods.stacked.activation import Dropout
from fedsub.methods.stacked.segments import Segments
from tests.methods.federations import make_method, small_federation

SIZES = torch.tensor([5, 0, 3, 8])
TYPES, INNER, WIDTH = 3, 4, 6
SOME = torch.tensor([0, 3, 4, 6, 7, 9, 15])
"""Some nodes of every client that has nodes."""


def _by_loop(read: Tensor, weight: Tensor, bias: Tensor, layer: Layer, dropout: Dropout | None) -> Tensor:
    """Σ_t relu(read_t W_t + b_t) · mask_t · scale, node by node."""
    # Also without rows it has gradients.
    mask, total = None, torch.zeros(layer.segments.rows, WIDTH) + 0 * (read.sum() + weight.sum() + bias.sum())
    if dropout is not None:
        mask = dropout.mask((int(TYPES * SIZES.sum()), WIDTH)) * dropout.scale
    place, client = draw_order(SIZES, TYPES), Segments(SIZES).client
    for row, node in enumerate(layer.rows.tolist()):
        for channel in range(TYPES):
            own = client[node], channel
            out = (read[int(layer.cell[node, channel])] @ weight[own] + bias[own]).relu()
            total[row] = total[row] + (out if mask is None else out * mask[place[node, channel]])
    return total


@pytest.mark.parametrize("rows", [None, SOME, SOME[:0]])
@pytest.mark.parametrize("way", ["compiled", "torch"])
@pytest.mark.parametrize("probability", [None, 0.0, 0.3, 0.5])
def test_a_sum_over_channels_against_a_loop(
    probability: float | None, way: str, rows: Tensor | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "torch":
        monkeypatch.setattr(kernels, "compiled", lambda h: False)
    layer, generator = Layer(Segments(SIZES), TYPES, rows), torch.Generator().manual_seed(1)
    read = torch.randn(layer.channels.rows, INNER, generator=generator)
    weight = torch.randn(len(SIZES), TYPES, INNER, WIDTH, generator=generator)
    bias = torch.randn(len(SIZES), TYPES, WIDTH, generator=generator)
    # A node without an edge of a type and a channel with zero bias: the ReLU at 0 has gradient 0.
    read[:2] = bias[0, 0] = 0
    slope = torch.randn(layer.segments.rows, WIDTH, generator=generator)
    given = [value.requires_grad_() for value in (read, weight, bias)]
    dropouts = [None if probability is None else Dropout(probability, seed=2) for _ in range(2)]
    outputs = (
        channel_sum(read, torch.split(weight, 2, dim=2), bias, layer, dropouts[0]),
        _by_loop(read, weight, bias, layer, dropouts[1]),
    )
    results = [[out, *torch.autograd.grad(out, given, slope)] for out in outputs]
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-5)


def test_masks_are_drawn_channel_after_channel_of_each_client() -> None:
    """Node v has in channel t the mask that a loop over clients, channels and nodes draws for it."""
    order: dict[tuple[int, int], int] = {}
    first = 0
    for size in SIZES.tolist():
        for channel in range(TYPES):
            for node in range(first, first + size):
                order[node, channel] = len(order)
        first += size
    expected = [[order[node, channel] for channel in range(TYPES)] for node in range(first)]
    assert draw_order(SIZES, TYPES).tolist() == expected
    layer = Layer(Segments(SIZES), TYPES, SOME)
    for node in SOME.tolist():
        assert layer.drawn[layer.cell[node].tolist()].tolist() == expected[node]


def _training(backbone: str, kernel: str, depth: int) -> Any:
    """Create FedLIT on few training nodes, so that all layers leave nodes out."""
    federation = small_federation(nodes=300, clients=6, split="ratio[train=0.1,validation=0.2,test=0.5]")
    network, schedule = Architecture(backbone=backbone), Schedule(rounds=2, local_epochs=2)
    own = {"types": 3, "width": 8, "layers": depth}
    return make_method("fedlit", own, federation, network, schedule, seed=1, kernel=kernel)


@pytest.mark.parametrize("kernel", ["torch", "dgl"])
@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("backbone", ["gcn", "graphsage"])
def test_training_computes_what_it_reads_and_no_more(backbone: str, depth: int, kernel: str) -> None:
    """Outputs, gradients and draws equal those of computing all rows with the same masks."""
    method = _training(backbone, kernel, depth)
    method.build()
    with torch.no_grad():
        for value in method.parameters.values():
            value.normal_(std=0.5, generator=torch.Generator().manual_seed(len(value.shape)))
    own, read = method.trained, method.task.read
    computed = [layer.segments.rows for layer in own]
    assert computed == sorted(computed, reverse=True)
    assert computed[-1] == len(read) < computed[0] or depth == 1
    results = []
    for chosen in (own, [method.every] * depth):
        method.trained = chosen
        dropout = Dropout(0.3, seed=5)
        outputs = method.logits(dropout)
        loss = outputs[read].square().sum()
        gradients = torch.autograd.grad(loss, list(method.parameters.values()))
        results.append((outputs.detach(), gradients, dropout.source.random_raw()))
    (few, few_gradients, few_draw), (every, gradients, draw) = results
    torch.testing.assert_close(few[read], every[read], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(few_gradients, gradients, rtol=1e-4, atol=1e-4)
    assert few_draw == draw
    others = torch.ones(len(few), dtype=torch.bool).index_fill(0, read, value=False)
    assert few[others].isnan().all()
    assert not every.isnan().any()
    assert not method.predict().isnan().any()


def test_k_means_finds_planted_types() -> None:
    """Three far-apart clouds of edges in every client."""
    segments = Segments(torch.tensor([12, 9, 15]))
    nodes = torch.arange(segments.rows)
    planted = nodes % 3
    noise = torch.randn(segments.rows, 3, generator=torch.Generator().manual_seed(0))
    x = 10 * torch.eye(3)[planted] + 0.1 * noise
    clustering = EdgeClustering(nodes, nodes, segments, 3)
    _, kind = clustering.k_means(x, torch.Generator().manual_seed(0))
    for k in range(3):
        mine = clustering.client == k
        for t in range(3):
            assert len(kind[mine & (planted == t)].unique()) == 1
        assert len(kind[mine].unique()) == 3
