"""FedAux against a plain loop with the kernel written out, and where it is a plain mean."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as functional

from fedsub.datasets.errors import UserError
from fedsub.methods.core import registry
from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.participation import begin_round
from fedsub.methods.core.setting import make_setting
from fedsub.methods.core.training import end_round, start_round, train
from fedsub.methods.fedaux import VECTOR
from tests.methods.federations import community_federation
from tests.methods.loops import WIDTHS, Clients, assert_equal, leaves, numbers, optimiser_of
from tests.methods.oracle import forward
from tests.methods.stacked.test_gaussian import kernel_means

SCHEDULE = Schedule(rounds=2, local_epochs=2, learning_rate=0.2, weight_decay=1e-3, optimiser="sgd")
WIDTH = 6


def client_loss(part, model, backbone, sigma, score):
    weights = {
        name: value * model[f"mask.{name}"] if f"mask.{name}" in model else value
        for name, value in model.items()
        if not name.startswith("mask.")
    }
    headless = {"head.weight": torch.eye(WIDTH), "head.bias": torch.zeros(WIDTH)}
    # The oracle's last layer is linear: with an identity it gives h.
    h = forward(part, weights | headless, backbone)
    a = weights[VECTOR]
    if score == "cosine":
        places = functional.cosine_similarity(h, a[None, :], dim=1)
    else:
        places = (h / h.norm(dim=1).max()) @ a
    z = kernel_means(h, places / sigma)
    logits = torch.cat([h, z], 1) @ weights["head.weight"] + weights["head.bias"]
    return functional.cross_entropy(logits[part["train"]], part["labels"][part["train"]])


CASES = [
    ("gcn", {}),
    ("graphsage", {"sigma": 0.3, "beta": 2.0, "masks": False}),
    ("mlp", {"score": "cosine", "sigma": 10.0, "start": "uniform"}),
]


@pytest.mark.parametrize(("backbone", "options"), CASES)
def test_it_equals_a_plain_loop(backbone, options):
    clients = Clients(SCHEDULE, backbone, federation=community_federation())
    method, _ = clients.run("fedaux", **options)
    start, _ = clients.start("fedaux", **options)
    models = [leaves(start) for _ in clients.parts]
    optimisers = [optimiser_of(model, SCHEDULE) for model in models]
    for _ in range(SCHEDULE.rounds):
        for part, model, optimiser in zip(clients.parts, models, optimisers, strict=True):
            for _ in range(SCHEDULE.local_epochs):
                optimiser.zero_grad()
                sigma, score = options.get("sigma", 1.0), options.get("score", "max-norm")
                client_loss(part, model, backbone, sigma, score).backward()
                optimiser.step()
        vectors = [model[VECTOR].detach() for model in models]
        mixed = []
        for mine in vectors:
            near = torch.stack([functional.cosine_similarity(mine, other, dim=0) for other in vectors])
            weights = torch.softmax(options.get("beta", 10.0) * near, 0)
            mixed.append(
                {
                    name: sum(w * model[name].detach() for w, model in zip(weights, models, strict=True))
                    for name in start
                    if not name.startswith("mask.")
                }
            )
        for model, average in zip(models, mixed, strict=True):
            for name, value in average.items():
                model[name].data.copy_(value)
    assert_equal(method.parameters, models)
    masks = [name for name in method.parameters if name.startswith("mask.")]
    assert bool(masks) is options.get("masks", True)
    for name in masks:
        assert not torch.equal(method.parameters[name][0], method.parameters[name][1])


def test_with_beta_zero_weights_and_vectors_are_the_plain_mean_and_masks_stay():
    method = Clients(SCHEDULE, dropout=0.5).create("fedaux", {"beta": 0.0})
    method.build()
    start_round(method, 1)
    before = {name: value.detach().clone() for name, value in method.parameters.items()}
    end_round(method)
    for name, value in method.parameters.items():
        expected = before[name]
        if not name.startswith("mask."):
            expected = expected.mean(0, keepdim=True).expand_as(expected)
        torch.testing.assert_close(value.detach(), expected)


def test_with_beta_zero_and_absent_clients_it_is_the_mean_of_those_present():
    schedule = replace(SCHEDULE, participation=0.5, rounds=4)
    method = Clients(schedule, dropout=0.5).create("fedaux", {"beta": 0.0})
    method.build()
    begin_round(method, 1)
    start_round(method, 1)
    before = method.parameters[VECTOR].detach().clone()
    end_round(method)
    assert not method.present.all()
    expected = before[method.present].mean(dim=0)
    for client in method.receiving.nonzero().flatten().tolist():
        torch.testing.assert_close(method.parameters[VECTOR][client].detach(), expected)


def test_the_vector_gets_the_gradient_of_the_written_out_kernel():
    clients = Clients(SCHEDULE, federation=community_federation())
    method = clients.create("fedaux", {"sigma": 0.5})
    method.build()
    method.task.loss(method.logits(None)).backward()
    for k, part in enumerate(clients.parts):
        model = leaves({name: value[k] for name, value in method.parameters.items()})
        client_loss(part, model, "gcn", 0.5, "max-norm").backward()
        for name in (VECTOR, "mask.head.weight", "layers.0.weight"):
            gradient = model[name].grad
            assert gradient is not None
            assert gradient.any()
            stacked = method.parameters[name].grad
            assert stacked is not None
            torch.testing.assert_close(stacked[k], gradient, atol=1e-6, rtol=1e-4)


def test_weights_and_vectors_travel_and_masks_do_not():
    clients = Clients(SCHEDULE)
    plain = clients.start()[0]
    # Beside FedAvg's model: six more rows of the classifier for three classes, and the vector.
    size = 3 * 4 * (numbers(plain) + WIDTH * 3 + WIDTH)
    assert clients.run("fedaux")[1].bytes == {"up": size, "down": size, "once": 0}


def test_the_mean_cosine_is_over_clients_that_send_their_vector():
    """Of four clients the last two are gone before the first round."""
    method = Clients(replace(SCHEDULE, leavers="2@1+3@1"), clients=4).create("fedaux")
    method.build()
    begin_round(method, 1)
    start_round(method, 1)
    first, second = method.parameters[VECTOR].detach().flatten(1)[:2].clone()
    end_round(method)
    expected = float(functional.cosine_similarity(first, second, dim=0))
    assert method.by_round["vector_cosine"] == [pytest.approx(expected, abs=1e-6)]


@pytest.mark.parametrize("head", ["linear", "convolution"])
def test_it_predicts_links_and_takes_both_classifiers(head):
    architecture = Architecture(hidden=WIDTHS, dropout=0.0, head=head)
    for task in ("node-classification", "link-prediction"):
        setting = make_setting(community_federation(), architecture, replace(SCHEDULE, rounds=6), task=task)
        losses = train(registry.create("fedaux", {}, setting)).curve["loss"]
        assert losses[-1] < losses[0], task


@pytest.mark.parametrize("bad", [{"sigma": 0.0}, {"beta": -1.0}])
def test_options_that_cannot_be_are_refused(bad):
    with pytest.raises(UserError, match="fedaux's"):
        registry.make_options("fedaux", bad)
