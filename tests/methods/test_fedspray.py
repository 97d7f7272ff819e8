"""FedSpray: alignment and minority accuracy by hand, λ₁ = 0 as Local, what moves between clients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy, kl_div, log_softmax, one_hot, softmax

from fedsub.datasets.errors import UserError
from fedsub.datasets.federation import Federation
from fedsub.methods.core import registry
from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.participation import Attendance, begin_round
from fedsub.methods.core.setting import Setting, make_setting
from fedsub.methods.core.training import end_round, train
from fedsub.methods.fedspray import FedSpray, Targets, align
from tests.methods.federations import small_federation
from tests.methods.rounding import agree


def _setting(federation: Federation, backbone: str = "gcn", rounds: int = 3) -> Setting:
    schedule = Schedule(
        rounds=rounds,
        local_epochs=2,
        weight_decay=0.0,
        selection="pooled-validation-loss",
        averaging="pooled",
    )
    architecture = Architecture(backbone=backbone, hidden=(8,), head="convolution", dropout=0.5)
    return make_setting(federation, architecture, schedule)


def _built(federation: Federation, **options: object) -> FedSpray:
    method = registry.create("fedspray", {"width": 4, **options}, _setting(federation))
    assert isinstance(method, FedSpray)
    method.build()
    return method


def test_alignment_by_hand_on_two_clients():
    proxies = torch.tensor([[[1.0, 2.0], [4.0, 0.0], [9.0, 9.0]], [[3.0, 6.0], [0.0, 8.0], [9.0, 9.0]]])
    share = torch.tensor([[0.75, 0.25, 0.0], [0.25, 0.75, 0.0]])
    previous = torch.full((3, 2), -1.0)
    expected = torch.tensor([[1.5, 3.0], [1.0, 6.0], [-1.0, -1.0]])
    assert torch.allclose(align(proxies, share, previous), expected)


def test_class_shares_and_local_proxies_are_those_of_the_training_nodes():
    federation = small_federation(clients=2)
    method = _built(federation)
    with torch.no_grad():
        method.node_proxies.normal_()
    end_round(method)
    local = method.task.class_means(method.node_proxies.detach())
    labels = federation.labels[federation.train]
    client = federation.client[federation.train]
    for k in range(2):
        for c in range(federation.classes):
            own = (client == k) & (labels == c)
            assert float(method.class_shares[k, c]) == pytest.approx(
                int(own.sum()) / int((client == k).sum())
            )
            if own.any():
                assert torch.allclose(local[k, c], method.node_proxies[own].mean(dim=0), atol=1e-6)


def test_divergence_and_its_gradient_are_torchs():
    """From probabilities, from labels and from both at once; a node without weight has no gradient."""
    generator = torch.Generator().manual_seed(0)
    outputs, other = (5 * torch.randn(2, 40, 3, generator=generator, dtype=torch.float64)).unbind()
    weight = torch.rand(40, generator=generator, dtype=torch.float64)
    weight[7] = 0
    labels = torch.randint(3, (40,), generator=generator)
    soft = Targets.of(other, weight)
    hard = Targets((one_hot(labels, 3) * weight.unsqueeze(1)).t(), torch.zeros(()))
    outputs.requires_grad_()
    kl = kl_div(log_softmax(outputs, dim=1), log_softmax(other, dim=1), reduction="none", log_target=True)
    divergence = torch.dot(kl.sum(dim=1), weight)
    entropy = torch.dot(cross_entropy(outputs, labels, reduction="none"), weight)
    for targets, expected in (
        (soft, divergence),
        (hard, entropy),
        (Targets(soft.weighted + hard.weighted, soft.constant), divergence + entropy),
    ):
        loss = targets.divergence(outputs)
        torch.testing.assert_close(loss, expected)
        (gradient,) = torch.autograd.grad(loss, outputs)
        torch.testing.assert_close(gradient, torch.autograd.grad(expected, outputs, retain_graph=True)[0])
        assert not gradient[7].any()


def test_targets_against_one_client_at_a_time():
    """Soft targets and both losses equal a plain loop over clients."""
    federation = small_federation(clients=2)
    method = _built(federation, confidence=0.4, lambda1=3.0, lambda2=2.0)
    with torch.no_grad():
        method.node_proxies.normal_()
        method.class_proxies.normal_()
        for value in method.encoder.values():
            value.normal_()
    method.set_targets()
    logits = torch.randn(federation.nodes, federation.classes)
    phase1 = method.objective(logits)
    phase2 = method.encoder_loss(Targets.of(logits[federation.train], 2.0 * method.task.train_weight))

    first = second = torch.zeros(())
    own = torch.zeros(federation.nodes, 4)
    own[federation.train] = method.node_proxies.detach()
    features = federation.features.to_dense()
    for k in range(2):
        mine = federation.client == k
        weights = {name: value[k].detach() for name, value in method.encoder.items()}
        e = torch.relu(features[mine] @ weights["encoder.weight"] + weights["encoder.bias"])
        guess = e @ weights["projector.weight"] + weights["projector.bias"]
        q = softmax(guess, dim=1)
        labelled = federation.train[mine]
        s = torch.where(labelled.unsqueeze(1), own[mine], q @ method.class_proxies)
        p = softmax((e + s) @ weights["classifier.weight"] + weights["classifier.bias"], dim=1)
        y = softmax(logits[mine], dim=1)
        reliable = labelled | (q.max(dim=1).values > 0.4)
        truth = federation.labels[mine][labelled]
        kl = (p * (p.log() - y.log())).sum(dim=1)[reliable].mean()
        first = first + cross_entropy(logits[mine][labelled], truth) + 3.0 * kl
        kl = (y * (y.log() - p.log())).sum(dim=1)[labelled].mean()
        second = second + cross_entropy(guess[labelled], truth) + 2.0 * kl
    assert torch.allclose(phase1, first, atol=1e-5)
    assert torch.allclose(phase2, second, atol=1e-5)


def test_lambda1_moves_the_model():
    federation = small_federation(clients=4)
    with_targets = registry.create("fedspray", {}, _setting(federation))
    without = registry.create("fedspray", {"lambda1": 0}, _setting(federation))
    train(with_targets)
    train(without)
    assert not agree(with_targets.predict(), without.predict())


def test_only_encoder_and_class_proxies_are_shared():
    federation = small_federation(clients=4)
    method = registry.create("fedspray", {"width": 4}, _setting(federation))
    outcome = train(method)
    assert isinstance(method, FedSpray)
    for value in method.encoder.values():
        assert torch.equal(value, value[:1].expand_as(value))
    head = method.parameters["head.weight"]
    assert not torch.equal(head[0], head[1])
    d, c = federation.features.shape[1], federation.classes
    per_client = 4 * ((d * 4 + 4) + 2 * (4 * c + c) + c * 4)
    # Three rounds, the class shares in the first alone.
    up = 4 * (per_client + c * 4 / 3)
    assert outcome.bytes == pytest.approx({"up": up, "down": 4 * per_client, "once": 0})


def test_a_client_sends_its_class_shares_with_its_first_message():
    """Also where it is absent before, and no more than once."""
    method = _built(small_federation(clients=3))
    method.channel.everyone = False
    method.attendance = Attendance(torch.tensor([[1, 1, 0], [0, 1, 1], [1, 1, 1]]), torch.ones(3).double())
    kept = []
    for number in (1, 2, 3):
        begin_round(method, number)
        kept.append(method.send()["kept.shares"][method.present].flatten().tolist())
    assert kept == [[True, True], [False, True], [False, False, False]]


def test_without_proxies_they_stay_zero_and_home():
    federation = small_federation(clients=2)
    method = registry.create("fedspray", {"width": 4, "proxies": False}, _setting(federation))
    outcome = train(method)
    assert isinstance(method, FedSpray)
    assert not method.node_proxies.any()
    assert not method.class_proxies.any()
    d, c = federation.features.shape[1], federation.classes
    assert outcome.bytes["up"] == pytest.approx(2 * 4 * ((d * 4 + 4) + 2 * (4 * c + c) + c / 3))


def test_projector_and_targets_follow_their_options():
    federation = small_federation(clients=2)
    method = _built(federation, projector="received", targets="aligned", confidence=0.0)
    method.class_proxies = torch.randn(federation.classes, 4)
    before = method.encoder["projector.weight"].clone()
    method.set_targets()
    assert torch.equal(method.node_proxies, method.class_proxies[method.task.train_labels])
    assert (method.targets.weighted.sum(dim=0) > 0).all()
    method.train_encoder()
    moved = (method.encoder["projector.weight"] - before).abs().max()
    assert moved < 3 * method.schedule.learning_rate * method.schedule.local_epochs


def test_uniform_initialisation():
    method = _built(small_federation(clients=2), initialisation="uniform")
    for value in method.parameters.values():
        assert float(value.detach().min()) >= 0
        assert float(value.detach().max()) <= 1
        assert torch.equal(value[0], value[1])


def test_bad_options():
    setting = _setting(small_federation(clients=2))
    with pytest.raises(UserError, match="width"):
        registry.create("fedspray", {"width": 0}, setting).build()
    with pytest.raises(UserError, match="targets"):
        registry.create("fedspray", {"targets": "ours"}, setting)


def test_minority_accuracy_by_hand():
    """Right among test nodes whose class is not the commonest training label of their client."""
    federation = small_federation(clients=2)
    method = registry.create("local", {}, _setting(federation, rounds=1))
    generator = np.random.default_rng(0)
    answer = torch.from_numpy(generator.integers(0, federation.classes, federation.nodes))
    method.predict = lambda: torch.nn.functional.one_hot(answer, federation.classes).float()  # type: ignore[method-assign]
    outcome = train(method)
    right = total = 0
    for k in range(2):
        labels = federation.labels[(federation.client == k) & federation.train].tolist()
        majority = max(range(federation.classes), key=labels.count)
        for node in ((federation.client == k) & federation.test).nonzero().squeeze(1).tolist():
            if int(federation.labels[node]) != majority:
                total += 1
                right += int(answer[node] == federation.labels[node])
    assert total > 0
    assert outcome.metrics["minority_accuracy"] == pytest.approx(right / total)
