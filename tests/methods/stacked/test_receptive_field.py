"""Training only on the rows that the loss depends on equals training on all rows."""

from dataclasses import replace

import dgl
import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedsub.datasets.options import parse_name
from fedsub.methods.core import registry
from fedsub.methods.core.base import FederatedMethod, Options
from fedsub.methods.core.schedule import Schedule
from fedsub.methods.core.setting import make_setting
from fedsub.methods.core.training import DivergedError, train
from fedsub.methods.fedavg import FedAvg
from fedsub.methods.stacked import inputs as inputs_module
from fedsub.methods.stacked.activation import Dropout
from fedsub.methods.stacked.architecture import Architecture
from fedsub.methods.stacked.backbones import make_backbone
from fedsub.methods.stacked.inputs import restricted, within
from fedsub.methods.stacked.parameters import stack
from fedsub.methods.stacked.propagation import kernel_of, symmetric_weight, use_kernel
from tests.methods.federations import small_federation


def drawn_graph(nodes: int, edges: int, seed: int) -> dgl.DGLGraph:
    """Both directions of random edges."""
    ends = np.random.default_rng(seed).integers(nodes, size=(2, edges))
    return dgl.to_simple(dgl.to_bidirected(dgl.graph((ends[0], ends[1]), num_nodes=nodes)))


@settings(max_examples=30)
@given(nodes=st.integers(1, 30), edges=st.integers(0, 40), hops=st.integers(0, 4), seed=st.integers(0, 99))
def test_what_lies_within_some_hops_is_as_networkx_says(nodes, edges, hops, seed):
    graph = drawn_graph(nodes, edges, seed)
    read = torch.tensor([0, nodes - 1]).unique()
    reference = nx.Graph(zip(*(end.tolist() for end in graph.edges()), strict=True))
    reference.add_nodes_from(range(nodes))
    near = [nx.single_source_shortest_path_length(reference, node, hops) for node in read.tolist()]
    assert within(graph, read, hops).tolist() == sorted(set().union(*near))


def test_a_part_of_a_graph_runs_through_the_graphs_kernel():
    graph = use_kernel(drawn_graph(6, 8, 0), "dgl")
    part, _ = restricted(graph, symmetric_weight(graph), torch.tensor([0, 2, 3]))
    assert kernel_of(part) == "dgl"


@pytest.mark.parametrize("left_out", [0, 10**9])
@pytest.mark.parametrize("worth", [1.0, 0.0])
@pytest.mark.parametrize(("head", "share"), [("linear", 0.1), ("convolution", 0.9)])
@pytest.mark.parametrize("norms", [{}, {"input_norm": True}, {"norm": "layer", "residual": True}])
@pytest.mark.parametrize("backbone", ["gcn", "sgc", "graphsage", "mlp", "gat", "gprgnn"])
def test_outputs_gradients_and_draws_are_those_of_all_rows(
    backbone, share, norms, head, worth, left_out, monkeypatch
):
    """Three clients, sparse and dense features; a share of dense ones are folded into the first layer. Layers
    compute all rows of the part, or level by level what is needed, of the part or of all."""
    monkeypatch.setattr(inputs_module, "WORTH", worth)
    monkeypatch.setattr(inputs_module, "LEFT_OUT", left_out)
    generator = torch.Generator().manual_seed(3)
    graph, sizes = dgl.batch([drawn_graph(size, size // 2, size) for size in (40, 1, 25)]), [40, 1, 25]
    features = torch.rand(66, 9, generator=generator)
    features = features * (torch.rand(66, 9, generator=generator) < share)
    read = torch.tensor([2, 3, 40, 50])
    usual = Architecture(backbone, (8, 4), head, 0.3, heads=2, gpr_hops=2)
    network = make_backbone(replace(usual, **norms))
    inputs = network.prepare(graph, features, torch.tensor(sizes), 3, read=read)
    if inputs.receptive_field is None:
        assert worth < 1
        return
    assert len(read) <= len(inputs.receptive_field.rows)
    assert (len(inputs.receptive_field.rows) < 66) == (worth == 1)
    assert bool(inputs.receptive_field.inputs.levels) == (not left_out and backbone in ("gcn", "graphsage"))
    results = []
    for whole in (True, False):
        parameters = stack(network.initial(9, 3, torch.Generator().manual_seed(1)), 3)
        dropout = Dropout(0.3, 5)
        run = network.forward if whole else network.forward_to_read
        outputs = run(inputs, parameters, dropout)
        outputs[read].square().sum().backward()
        grads = {name: value.grad for name, value in parameters.items()}
        results.append((outputs.detach(), grads, dropout.source.random_raw()))
    (outputs, grads, draw), (few, few_grads, few_draw) = results
    torch.testing.assert_close(few[read], outputs[read])
    others = torch.ones(66, dtype=torch.bool).index_fill(0, read, value=False)
    assert few[others].isnan().all()
    torch.testing.assert_close(few_grads, grads)
    assert few_draw == draw


def test_what_is_most_of_the_graph_is_not_taken_apart():
    network = make_backbone(Architecture(backbone="gcn", hidden=(4,)))
    ring = torch.arange(10)
    graph = dgl.graph((torch.cat([ring, (ring + 1) % 10]), torch.cat([(ring + 1) % 10, ring])))
    features, sizes = torch.eye(10), torch.tensor([10])
    assert network.prepare(graph, features, sizes, 2, read=torch.tensor([0, 5])).receptive_field is not None
    assert network.prepare(graph, features, sizes, 2, read=torch.tensor([0, 3, 6])).receptive_field is None
    assert network.prepare(graph, features, sizes, 2).receptive_field is None


READ_LABELLED = [name for name in registry.names() if registry.find(name).labelled_outputs_only]
"""Methods that declare that they read only outputs of labelled nodes."""


def created(kind: str | type[FederatedMethod], local_epochs: int = 2) -> FederatedMethod:
    """On clients drawn at random with few labelled nodes, as in FedStruct's Table 1."""
    federation = small_federation(nodes=300, clients=6, split="ratio[train=0.1,validation=0.2,test=0.5]")
    schedule = Schedule(rounds=2, local_epochs=local_epochs, learning_rate=0.01)
    name, options = parse_name(kind) if isinstance(kind, str) else ("", {})
    info = registry.find(name).info if isinstance(kind, str) else kind.info
    backbone = next(name for name in ("gcn", "graphsage") if name in info.backbones)
    architecture = Architecture(backbone=backbone, hidden=(8, 8), dropout=0.4)
    setting = make_setting(federation, architecture, schedule, seed=1, merged=info.merged)
    return registry.create(name, options, setting) if isinstance(kind, str) else kind(Options(), setting)


@pytest.mark.parametrize("name", [*READ_LABELLED, "fedsage-true[average=gradients]"])
def test_a_method_trains_to_the_same_models(name, monkeypatch):
    """Trains on all rows, on those of a part, and level by level on the part or on all rows."""
    results = []
    for worth, left_out in ((0.0, 10**9), (1.0, 10**9), (1.0, 0), (0.0, 0)):
        monkeypatch.setattr(inputs_module, "WORTH", worth)
        monkeypatch.setattr(inputs_module, "LEFT_OUT", left_out)
        method = created(name)
        losses = train(method).curve["loss"]
        if left_out:
            assert (method.inputs.receptive_field is not None) == (worth > 0)
        results.append((losses, {key: value.detach() for key, value in method.parameters.items()}))
    losses, parameters = results[0]
    for few_losses, few in results[1:]:
        assert few_losses == pytest.approx(losses, rel=1e-4)
        torch.testing.assert_close(few, parameters, atol=1e-4, rtol=1e-3)


class Smooth(FedAvg):
    """A plug-in that reads the outputs of all nodes."""

    def objective(self, logits: Tensor) -> Tensor:
        return super().objective(logits) + logits.square().mean()


def test_a_method_that_reads_all_outputs_says_so_or_stops():
    """Outputs that were not computed are NaN, so that they cannot be mistaken for 0."""
    with pytest.raises(DivergedError, match=r"its loss is nan in round 1.* labelled_outputs_only to False"):
        train(created(Smooth))
    whole = type("Whole", (Smooth,), {"labelled_outputs_only": False})
    losses = train(created(whole)).curve["loss"]
    assert losses[-1] < losses[0]


class Scaled(FedAvg):
    """A plug-in whose loss reads only labelled nodes but whose gradient reads all: 0 × NaN is NaN."""

    def logits(self, dropout: Dropout | None) -> Tensor:
        return super().logits(dropout) * self.parameters["head.bias"].exp().mean()


def test_a_method_that_multiplies_outputs_is_told_so_too():
    with pytest.raises(DivergedError, match=r"contain NaN in round 1.* labelled_outputs_only to False"):
        train(created(Scaled, local_epochs=1))
