"""FedIIH against a plain loop over clients, nodes and factors, and where it is a plain mean."""

from __future__ import annotations

import math
from dataclasses import replace

import dgl
import numpy as np
import pytest
import torch
import torch.nn.functional as functional
from hypothesis import given as drawn
from hypothesis import strategies as st
from torch.distributions import Independent, Normal, kl_divergence

from fedsub.datasets.errors import UserError
from fedsub.methods.core import registry
from fedsub.methods.core.base import Schedule
from fedsub.methods.core.setting import make_setting
from fedsub.methods.core.training import train
from fedsub.methods.fediih import PRIOR, FedIIH, mix_factors, mixing_matrices
from fedsub.methods.fediih.pairs import pairwise_softplus
from fedsub.methods.fediih.routing import Routing, _exponential
from fedsub.methods.stacked import kernels
from fedsub.methods.stacked.segments import Segments
from tests.methods.federations import community_federation
from tests.methods.loops import Clients, assert_equal, leaves, numbers, optimiser_of

SCHEDULE = Schedule(rounds=2, local_epochs=2, learning_rate=0.2, weight_decay=1e-3, optimiser="sgd")
SMALL = {"factors": 2, "width": 3, "iterations": 2}


def routed(h, adjacency, factors, iterations):
    """One routing, node by node."""
    x = functional.normalize(h.view(len(h), factors, -1), dim=2)
    u = x
    for _ in range(iterations):
        rows = []
        for t in range(len(h)):
            near = x[adjacency[t].bool()]
            share = (near * u[t]).sum(2).softmax(1)
            rows.append(x[t] + (share.unsqueeze(2) * near).sum(0))
        u = functional.normalize(torch.stack(rows), dim=2)
    return u.flatten(1)


def hidden(part, model, options):
    h = functional.leaky_relu(part["features"] @ model["first.weight"] + model["first.bias"])
    return spread(h, part, options, max(1, options["layers"] - 2))


def spread(h, part, options, times):
    for _ in range(times):
        h = functional.leaky_relu(routed(h, part["adjacency"], options["factors"], options["iterations"]))
    return h


def statistics(part, model, options):
    """A node's means, which without dropout are its log variances."""
    return spread(hidden(part, model, options), part, options, 1 if options["layers"] <= 2 else 2)


def negative_bound(part, model, options, center, noise):
    """With torch's own distributions."""
    found = statistics(part, model, options)
    z = found + noise * torch.exp(found / 2)
    edges = part["adjacency"]
    loss = -torch.distributions.Bernoulli(logits=z @ z.T).log_prob(edges).mean()
    means = found.view(len(found), options["factors"], -1)
    for f, prior in enumerate(model[PRIOR]):
        nodes = Normal(means[:, f], torch.exp(means[:, f] / 2))
        loss = loss + kl_divergence(nodes, Normal(prior.expand_as(means[:, f]), 0.5)).mean()
        loss = loss + kl_divergence(Normal(prior, 0.5), Normal(center[f], 0.5)).mean()
        loss = loss - Normal(0.0, 1.0).log_prob(prior).mean()
    return loss


def likeness(mine, other):
    """S of two clients' means and log variances of one factor."""
    (mean, log_variance), (mean2, log_variance2) = mine, other

    def normal(mu, variance):
        return Independent(Normal(mu, variance.sqrt()), 1)

    middle = normal((mean + mean2) / 2, (log_variance.exp() + log_variance2.exp()) / 2)
    first, second = normal(mean, log_variance.exp()), normal(mean2, log_variance2.exp())
    divergence = (kl_divergence(first, middle) + kl_divergence(second, middle)) / 2
    return 1 - divergence / math.log(2)


CASES = [
    {"layers": 4},
    {"layers": 2, "scale": 0.5},
    {"factors": 3, "layers": 1, "iterations": 3},
    # Wide enough that no factor is so short that its direction is rounding.
    {"layers": 2, "variational": 0.3, "width": 8},
]


@pytest.mark.parametrize("given", CASES)
def test_it_equals_a_plain_loop(given):
    options = SMALL | given
    clients = Clients(SCHEDULE, federation=community_federation(nodes=60))
    method, _ = clients.run("fediih", **options)
    fresh = clients.create("fediih", options)
    assert isinstance(fresh, FedIIH)
    fresh.build()
    start, _ = clients.start("fediih", **options)
    models = [leaves(start) for _ in clients.parts]
    optimisers = [optimiser_of(model, SCHEDULE) for model in models]
    factors, width = options["factors"], options["width"]
    sizes, center = clients.federation.sizes.tolist(), fresh.center
    for _ in range(SCHEDULE.rounds):
        for _ in range(SCHEDULE.local_epochs):
            noise = torch.zeros(sum(sizes), 0)
            if "variational" in options:
                noise = torch.randn(sum(sizes), factors * width, generator=fresh.generator)
            draws = noise.split(sizes)
            for part, model, optimiser, own in zip(clients.parts, models, optimisers, draws, strict=True):
                optimiser.zero_grad()
                logits = hidden(part, model, options) @ model["head.weight"] + model["head.bias"]
                loss = functional.cross_entropy(logits[part["train"]], part["labels"][part["train"]])
                if "variational" in options:
                    bound = negative_bound(part, model, options, center, own)
                    loss = loss + options["variational"] * bound
                loss.backward()
                optimiser.step()
        with torch.no_grad():
            found = [
                statistics(part, model, options).mean(0).view(factors, width)
                for part, model in zip(clients.parts, models, strict=True)
            ]
            sent = [{name: value.detach().clone() for name, value in model.items()} for model in models]
            for i, model in enumerate(models):
                model["head.bias"].data.copy_(torch.stack([m["head.bias"] for m in sent]).mean(0))
                for f in range(factors):
                    near = torch.stack([likeness((found[i][f],) * 2, (other[f],) * 2) for other in found])
                    share = torch.softmax(options.get("scale", 10.0) * near, 0)
                    block = slice(f * width, (f + 1) * width)
                    for name, index in (
                        ("first.weight", (slice(None), block)),
                        ("first.bias", block),
                        ("head.weight", block),
                    ):
                        total = sum(w * m[name][index] for w, m in zip(share, sent, strict=True))
                        model[name].data[index] = total
            center = sum(found) / (len(found) + 0.25)
    assert_equal(method.parameters, models)
    assert (PRIOR in start) is ("variational" in options)
    first = method.parameters["first.weight"]
    assert not torch.allclose(first[0], first[1], atol=1e-4)


def test_clients_with_equal_statistics_and_a_scale_of_zero_give_the_plain_mean():
    generator = torch.Generator().manual_seed(0)
    alike = torch.randn(2, 4, generator=generator).expand(3, 2, 4)
    uniform, everyone = torch.full((2, 3, 3), 1 / 3), torch.ones(3, dtype=torch.bool)
    torch.testing.assert_close(mixing_matrices(alike, -alike, 10.0, everyone), uniform)
    apart = torch.randn(3, 2, 4, generator=generator)
    torch.testing.assert_close(mixing_matrices(apart, -apart, 0.0, everyone), uniform)
    assert (mixing_matrices(apart, -apart, 10.0, everyone).diagonal(dim1=1, dim2=2) > 0.5).all()
    value = torch.randn(3, 5, 6, generator=generator)
    torch.testing.assert_close(mix_factors(uniform, value, -1), value.mean(0).expand(3, 5, 6))


def test_every_factor_is_mixed_by_its_own_matrix():
    value = torch.arange(2 * 3 * 4, dtype=torch.float32).view(2, 3, 4)
    exchanged = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    found = mix_factors(torch.stack([torch.eye(2), exchanged]), value, -1)
    assert torch.equal(found[:, :, :2], value[:, :, :2])
    assert torch.equal(found[:, :, 2:], value.flip(0)[:, :, 2:])


def test_a_single_factor_takes_all_of_every_neighbour_and_a_node_without_any_keeps_its_own():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(4, 1, 5, generator=generator)
    graph = dgl.graph(([0, 1, 1, 2], [1, 0, 2, 1]), num_nodes=4)
    unit = functional.normalize(x, dim=2)
    expected = functional.normalize(unit[1] + unit[0] + unit[2], dim=1)
    found = Routing(graph, torch.device("cpu"))(x, 4)
    torch.testing.assert_close(found[1], expected)
    torch.testing.assert_close(found[3], unit[3])


@drawn(
    st.integers(1, 12),
    st.integers(0, 30),
    st.integers(1, 4),
    # 245 is made of blocks of every size.
    st.sampled_from([5, 245]),
    st.integers(0, 4),
    st.integers(0, 999),
)
def test_the_compiled_routing_is_torchs_forwards_and_backwards(
    nodes, edges, factors, width, iterations, seed
):
    generator = torch.Generator().manual_seed(seed)
    ends = torch.randint(nodes, (2, edges), generator=generator)
    routing = Routing(dgl.graph(tuple(ends), num_nodes=nodes), torch.device("cpu"))
    # Above zero, so that no sum is next to none: its direction would be rounding.
    x, gradient = (torch.rand(nodes, factors, width, generator=generator) for _ in range(2))
    x[0] = 0
    found = []
    for compiled in (True, False):
        leaf = x.clone().requires_grad_()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kernels, "compiled", lambda h, compiled=compiled: compiled)
            u = routing(leaf, iterations)
            u.backward(gradient)
        assert leaf.grad is not None
        # A factor without features has no direction.
        assert not leaf.grad[0].any()
        found.append((u, leaf.grad))
    for ours, torchs in zip(*found, strict=True):
        torch.testing.assert_close(ours, torchs, rtol=1e-4, atol=1e-5)


def test_the_routings_exponential_is_exact_to_rounding():
    values = np.linspace(-1, 1, 1001, dtype=np.float32)
    found = np.array([_exponential(value) for value in values])
    np.testing.assert_allclose(found, np.exp(values.astype(np.float64)), rtol=3e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_sum_over_pairs_is_that_of_the_matrix_of_them(dtype):
    sizes, width = torch.tensor([300, 1, 257, 40]), 16
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(int(sizes.sum()), width, generator=generator, dtype=dtype)
    weight = torch.randn(len(sizes), generator=generator, dtype=dtype)
    found = []
    for sums in (
        lambda leaf: pairwise_softplus(leaf, Segments(sizes)),
        lambda leaf: torch.stack(
            [functional.softplus(own @ own.T).sum() for own in leaf.split(sizes.tolist())]
        ),
    ):
        leaf = z.clone().requires_grad_()
        total = sums(leaf)
        (weight * total).sum().backward()
        found.append((total.detach(), leaf.grad))
    for ours, plain in zip(*found, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-5, atol=1e-3 if dtype is torch.float32 else 1e-9)


@pytest.mark.parametrize("variational", [0.0, 1.0])
def test_it_learns_where_dropout_leaves_nothing_of_a_factor(variational):
    schedule = replace(SCHEDULE, rounds=5, optimiser="adam", learning_rate=0.02)
    federation = community_federation()
    federation.graph.remove_edges(torch.arange(federation.graph.num_edges()))
    method, outcome = Clients(schedule, dropout=0.5, federation=federation).run(
        "fediih", width=2, variational=variational
    )
    assert all(math.isfinite(loss) for loss in outcome.curve["loss"])
    assert all(value.isfinite().all() for value in method.parameters.values())


def test_models_and_statistics_travel():
    clients = Clients(SCHEDULE, federation=community_federation(nodes=60))
    inner, classes = clients.federation.features.shape[1], clients.federation.classes
    model = (inner + 1) * 6 + (6 + 1) * classes
    assert numbers(clients.start("fediih", **SMALL)[0]) == model
    # Two statistics of two factors of three numbers go up.
    up, down = 3 * 4 * (model + 12), 3 * 4 * model
    assert clients.run("fediih", **SMALL)[1].bytes == {"up": up, "down": down, "once": 0}
    # The prior's mean comes down, six numbers; the learned one is not sent.
    found = clients.run("fediih", **SMALL, variational=0.1)[1].bytes
    assert found == {"up": up, "down": down + 3 * 4 * 6, "once": 0}


@pytest.mark.parametrize(("epochs", "equal"), [(1, False), (2, True)])
def test_statistics_are_without_dropout_where_a_round_has_more_epochs_than_one(epochs, equal, monkeypatch):
    sent = []

    def seen(mean, log_variance, scale, present):
        sent.append((mean, log_variance))
        return mixing_matrices(mean, log_variance, scale, present)

    monkeypatch.setattr("fedsub.methods.fediih.mixing_matrices", seen)
    schedule = replace(SCHEDULE, rounds=1, local_epochs=epochs)
    Clients(schedule, dropout=0.5, federation=community_federation()).run("fediih", **SMALL)
    mean, log_variance = sent[0]
    assert torch.equal(mean, log_variance) is equal


def test_it_learns_with_dropout_and_predicts_links():
    schedule = replace(SCHEDULE, rounds=15, optimiser="adam", learning_rate=0.02)
    clients = Clients(schedule, dropout=0.3, federation=community_federation())
    outcome = clients.run("fediih", width=8)[1]
    assert outcome.curve["loss"][-1] < outcome.curve["loss"][0]
    assert outcome.metrics["accuracy"] > 0.5
    assert 0 < outcome.extras["own_weight"] <= 1
    setting = make_setting(clients.federation, clients.architecture, SCHEDULE, task="link-prediction")
    assert train(registry.create("fediih", SMALL, setting)).metrics["roc_auc"] > 0


@pytest.mark.parametrize("bad", [{"factors": 0}, {"scale": -1.0}, {"variational": -0.1}])
def test_what_cannot_be_is_refused(bad):
    with pytest.raises(UserError, match="fediih's"):
        registry.make_options("fediih", bad)


def test_a_normalised_input_is_refused():
    clients = Clients(SCHEDULE)
    clients.architecture = replace(clients.architecture, input_norm=True)
    with pytest.raises(UserError, match="input_norm"):
        clients.create("fediih").build()
