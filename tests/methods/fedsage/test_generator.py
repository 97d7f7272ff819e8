"""The generator's loss against loops over nodes, the others' gradient against autograd."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as functional
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsub.methods.core import registry
from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.setting import make_setting
from fedsub.methods.core.training import DivergedError
from fedsub.methods.fedsage import FedSagePlus
from fedsub.methods.fedsage import matching as fedsage_matching
from fedsub.methods.fedsage import training as fedsage_training
from fedsub.methods.fedsage.generator import Generated, count_loss
from fedsub.methods.fedsage.impair import choose_hidden, impair
from fedsub.methods.fedsage.matching import OtherClients, nearest_by_torch, nearest_hidden
from fedsub.methods.fedsage.training import GeneratorTraining, client_chunks
from tests.methods.federations import small_federation

SMALL = {"latent": 6, "narrow": 5, "wide": 7, "generator_epochs": 3, "generator_learning_rate": 0.1}


def _method(options: dict[str, object] | None = None, **federation: object) -> FedSagePlus:
    fed = small_federation(**({"clients": 3} | federation))  # type: ignore[arg-type]
    setting = make_setting(fed, Architecture(hidden=(8, 6)), Schedule(rounds=1), seed=5)
    method = registry.create("fedsage+", SMALL | (options or {}), setting)
    assert isinstance(method, FedSagePlus)
    return method


def _training(
    options: dict[str, object] | None = None, chosen: range | None = None, **federation: object
) -> GeneratorTraining:
    method = _method(options, **federation)
    return GeneratorTraining(method.phase(), chosen or range(method.federation.clients))


@given(seed=st.integers(0, 1000), share=st.floats(0, 1))
@settings(max_examples=25)
def test_each_client_hides_its_share(seed: int, share: float):
    random = np.random.default_rng(seed)
    client = torch.from_numpy(np.sort(random.integers(0, 4, 50)))
    sample = torch.from_numpy(random.random(50) < 0.5)
    hidden = choose_hidden(sample, client, share, random)
    assert not (hidden & ~sample).any()
    for k in range(int(client[-1]) + 1):
        mine = client == k
        assert int(hidden[mine].sum()) == round(share * int(sample[mine].sum()))


def test_impaired_graph_against_a_loop():
    federation = small_federation(3, nodes=80)
    hidden = torch.rand(80, generator=torch.Generator().manual_seed(0)) < 0.3
    impaired = impair(federation.graph, hidden)
    source, target = (ends.tolist() for ends in federation.graph.edges())
    kept = [(u, v) for u, v in zip(source, target, strict=True) if not hidden[u] and not hidden[v]]
    assert sorted(zip(*(ends.tolist() for ends in impaired.graph.edges()), strict=True)) == sorted(kept)
    for v in range(80):
        lost = [u for u, w in zip(source, target, strict=True) if w == v and hidden[u] and not hidden[v]]
        start = int(impaired.first[v])
        assert int(impaired.missing[v]) == len(lost)
        assert sorted(impaired.neighbour[start : start + len(lost)].tolist()) == sorted(lost)


@pytest.mark.parametrize("entries", [2**24, 30])
def test_own_loss_against_a_loop_over_nodes(entries: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fedsage_matching, "CHUNK_ENTRIES", entries)
    training = _training(nodes=90)
    phase, federation = training.phase, training.phase.method.federation
    random = torch.Generator().manual_seed(1)
    counts = torch.randint(0, 4, (90,), generator=random) * (training.missing > 0)
    owner = torch.repeat_interleave(torch.arange(90), counts)
    features = torch.rand(len(owner), 12, generator=random).requires_grad_()
    found = training.own_loss(Generated(features, owner))

    dense = federation.features.to_dense()
    source, target = federation.graph.edges()
    total = torch.zeros(())
    for k in range(federation.clients):
        remaining = (training.remains & (federation.client == k)).nonzero().squeeze(1).tolist()
        for v in remaining:
            hidden = [u for u in source[target == v].tolist() if phase.hidden[u]]
            for row in (owner == v).nonzero().squeeze(1).tolist():
                if hidden:
                    errors = [functional.mse_loss(features[row], dense[u]) for u in hidden]
                    total = total + min(errors, key=lambda error: float(error.detach())) / len(remaining)
    assert float(found.detach()) == pytest.approx(float(total.detach()), rel=1e-5)
    ours, theirs = (torch.autograd.grad(loss, features)[0] for loss in (found, total))
    assert torch.allclose(ours, theirs, atol=1e-7)


def test_count_loss_against_a_loop_over_nodes():
    training = _training(nodes=90)
    predicted = 3 * torch.rand(90, generator=torch.Generator().manual_seed(2))
    client = training.phase.method.federation.client
    total = 0.0
    for k in range(3):
        values = []
        for v in (training.remains & (client == k)).nonzero().squeeze(1).tolist():
            gap = abs(float(predicted[v]) - int(training.missing[v]))
            values.append(0.5 * gap**2 if gap < 1 else gap - 0.5)
        total += sum(values) / len(values)
    found = count_loss(predicted, training.missing.float(), training.share)
    assert float(found) == pytest.approx(total, rel=1e-5)


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("entries", [2**24, 200])
def test_others_gradient_against_autograd_of_a_loop(
    sparse: bool, entries: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(fedsage_matching, "CHUNK_ENTRIES", entries)
    if sparse:
        monkeypatch.setattr(fedsage_matching, "DENSE_SHARE", 2.0)
    training = _training(clients=4, nodes=70, sparse=sparse)
    federation = training.phase.method.federation
    others = training.phase.others
    assert others is not None
    assert others.sparse == sparse
    random = torch.Generator().manual_seed(3)
    remaining_nodes = training.remains.nonzero().squeeze(1)
    owner = remaining_nodes[torch.randint(0, len(remaining_nodes), (40,), generator=random)].sort().values
    features = torch.rand(40, 12, generator=random).requires_grad_()
    found = training.others_gradient(Generated(features, owner), others)

    dense = federation.features.to_dense() if sparse else federation.features
    total = torch.zeros(())
    for row in range(40):
        own = int(federation.client[owner[row]])
        remaining = int((training.remains & (federation.client == own)).sum())
        for j in range(4):
            if j != own:
                errors = (features[row] - dense[federation.client == j]).square().mean(dim=1)
                total = total + errors.min() / remaining
    (expected,) = torch.autograd.grad(total, features)
    assert torch.allclose(found, expected, atol=1e-6)
    assert training.phase.method.channel.bytes_once == 2 * 4 * 40 * 12 * 4


def test_equally_near_nodes_share_a_gradient():
    features = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.5]])
    others = OtherClients(features, torch.tensor([0, 0, 1]), 2)
    found = others.gradient(torch.tensor([[0.0, 1.0]]), torch.tensor([1]))
    assert torch.allclose(found, torch.tensor([[0.0, 2.0]]))


@pytest.mark.parametrize("search", [nearest_hidden, nearest_by_torch])
def test_nearest_hidden_takes_the_earliest_of_equals(search):
    features = torch.tensor([[1.0], [3.0], [1.0]])
    nearest = search(
        torch.tensor([[2.0], [0.0]]), torch.tensor([0, 1]), torch.tensor([3, 2]), torch.arange(3), features
    )
    assert nearest.tolist() == [0, 2]


@settings(max_examples=30)
@given(rows=st.integers(1, 20), width=st.integers(1, 9), seed=st.integers(0, 99))
def test_nearest_hidden_by_either_search(rows, width, seed):
    """Features of whole numbers, so that many are equally near and no sum rounds."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randint(0, 2, (15, width), generator=generator).float()
    generated = torch.randint(0, 3, (rows, width), generator=generator).float()
    neighbour = torch.randint(0, 15, (40,), generator=generator)
    first = torch.randint(0, 30, (rows,), generator=generator)
    count = torch.randint(1, 11, (rows,), generator=generator)
    searched = (generated, first, count, neighbour, features)
    assert nearest_hidden(*searched).tolist() == nearest_by_torch(*searched).tolist()


def test_counts_and_slots():
    training = _training()
    generator = training.generator
    predicted = torch.tensor([0.0, 0.4, 0.6, 1.4, 4.6, 17.0])
    assert generator.counts(predicted).tolist() == [0, 0, 1, 1, 5, 5]
    nodes = training.nodes
    counts = torch.zeros(nodes, dtype=torch.int64)
    latent = torch.rand(nodes, 6)
    assert generator.generate(latent, counts, training.client, None) is None
    counts[[2, nodes - 1]] = torch.tensor([2, 1])
    generated = generator.generate(latent, counts, training.client, None)
    assert generated is not None
    assert generated.owner.tolist() == [2, 2, nodes - 1]
    assert generated.features.shape == (3, 12)
    assert len(generator.slots) == 2


def test_generated_features_are_those_of_the_clients_own_network():
    training = _training({"noise": 0.0}, nodes=50)
    generator = training.generator
    with torch.no_grad():
        for value in (*generator.parameters.values(), *generator._slot(1).values()):
            value.add_(0.1 * torch.randn(value.shape, generator=torch.Generator().manual_seed(9)))
        latent = torch.rand(50, 6, generator=torch.Generator().manual_seed(4))
        counts = torch.full((50,), 2)
        generated = generator.generate(latent, counts, training.client, None)
        assert generated is not None
        for row in range(0, 100, 7):
            k = int(training.client[row // 2])
            h = latent[row // 2]
            for name in ("narrow", "wide"):
                weight, bias = (generator.parameters[f"{name}.{part}"][k] for part in ("weight", "bias"))
                h = torch.relu(h @ weight + bias)
            slot = generator.slots[row % 2]
            expected = torch.tanh(h @ slot["slot.weight"][k] + slot["slot.bias"][k])[:12]
            assert torch.allclose(generated.features[row], expected, atol=1e-5)


def test_an_epoch_steps_on_the_sum_of_all_parts():
    training = _training({"noise": 0.0}, nodes=90)
    training.dropout.threshold = 0
    others = training.phase.others
    assert others is not None
    with torch.no_grad():
        training.generator.parameters["head.bias"].fill_(1.0)
    latent, predicted = training.generator.encode(training.inputs)
    counts = training.generator.counts(predicted) * training.remains
    generated = training.generator.generate(latent, counts, training.client, None)
    assert generated is not None
    loss = count_loss(predicted, training.missing.float(), training.share)
    loss = loss + training.own_loss(generated) + training.class_loss(generated)
    sent = training.others_gradient(generated, others)
    (loss + (generated.features * sent).sum()).backward()
    slot = training.generator.slots[0]["slot.weight"]
    named = [*training.generator.parameters.values(), slot, *training.class_parameters.values()]
    expected = [value.grad.clone() for value in named if value.grad is not None]
    assert len(expected) == len(named)
    training.epoch()
    for value, gradient in zip(named, expected, strict=True):
        assert value.grad is not None
        assert torch.allclose(value.grad, gradient, atol=1e-6)


def test_clients_learn_alone_and_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch):
    options: dict[str, object] = {"noise": 0.0, "generator_epochs": 30, "generator_learning_rate": 0.02}
    found = []
    for limit in (2**32, 1):
        monkeypatch.setattr(fedsage_training, "CHUNK_BYTES", limit)
        method = _method(options, clients=4, nodes=80)
        method.setting = replace(
            method.setting, architecture=replace(method.setting.architecture, dropout=0.0)
        )
        chunks = list(client_chunks(4, 12, method.options))
        assert len(chunks) == (1 if limit > 1 else 4)
        found.append((method.train_generators(), method.channel.bytes_once))
    (whole, sent), (parts, sent_in_parts) = found
    assert whole is not None
    assert parts is not None
    assert sent == sent_in_parts > 0
    assert torch.equal(whole.owner, parts.owner)
    assert torch.allclose(whole.features, parts.features, atol=1e-5)


def test_every_chunk_draws_noise_of_its_own_and_starts_alike():
    method = _method({}, clients=4, nodes=80)
    phase = method.phase()
    first, second, again = (GeneratorTraining(phase, range(k, k + 2)) for k in (0, 2, 2))
    for name, value in first.generator.parameters.items():
        assert torch.equal(value, second.generator.parameters[name])
    noise = [torch.randn(8, generator=each.generator.random) for each in (first, second, again)]
    assert not torch.equal(noise[0], noise[1])
    assert torch.equal(noise[1], noise[2])
    masks = [each.dropout.mask((8, 8)) for each in (first, second, again)]
    assert not torch.equal(masks[0], masks[1])
    assert torch.equal(masks[1], masks[2])


def test_slots_made_late_equal_slots_made_at_the_start():
    found = []
    for early in (False, True):
        training = _training({"generator_learning_rate": 0.02}, nodes=80)
        if early:
            training.generator._slot(4)
        for _ in range(25):
            training.epoch()
        found.append([slot["slot.weight"].detach() for slot in training.generator.slots])
    late, early_ones = found
    assert 0 < len(late) < len(early_ones)
    for one, other in zip(late, early_ones, strict=False):
        assert torch.allclose(one, other, atol=1e-6)


def test_training_lowers_the_losses():
    training = _training({"noise": 0.1, "generator_learning_rate": 0.01, "federated": False}, nodes=120)
    assert training.phase.others is None
    losses = [float(training.epoch()) for _ in range(60)]
    assert losses[-1] < 0.8 * losses[0]
    assert training.phase.method.channel.bytes_once == 0


def test_divergence_is_named():
    method = _method({"generator_learning_rate": 1e30, "generator_epochs": 4})
    with pytest.raises(DivergedError, match="generator_learning_rate"):
        method.build()
