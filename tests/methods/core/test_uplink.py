"""Private and compressed updates."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fedsub.datasets.errors import UserError
from fedsub.methods.core.base import Architecture, FederatedMethod, Schedule
from fedsub.methods.core.training import communicate, end_round, serve, start_round, train
from fedsub.methods.core.uplink import Draws, Uplink, epsilon, largest, privatised, quantised
from fedsub.methods.fedavg import FedAvg
from tests.methods.federations import make_method
from tests.methods.rounding import agree

PLAIN = Schedule(rounds=3, local_epochs=2)
NETWORK = Architecture(hidden=(8,), dropout=0.0)


def method_of(name: str, schedule: Schedule) -> Any:
    return make_method(name, {}, None, NETWORK, schedule)


def uplink(**settings: Any) -> Uplink:
    return Uplink(Schedule(**settings), Draws(0))


def updates() -> Tensor:
    drawn = torch.randn(3, 50, generator=torch.Generator().manual_seed(0))
    return drawn * torch.tensor([[0.01], [1.0], [30.0]])


def test_clipping_bounds_whole_updates_and_leaves_short_ones_alone() -> None:
    given = updates()
    found = privatised(given, 2.0, 0.0, Draws(0))
    assert torch.equal(found[0], given[0])
    torch.testing.assert_close(found[1:].norm(dim=1), torch.tensor([2.0, 2.0]))
    torch.testing.assert_close(found[2] / found[2].norm(), given[2] / given[2].norm())


def test_noise_has_the_stated_deviation_and_is_each_clients_own() -> None:
    noise = privatised(torch.zeros(4, 20000), 2.0, 1.5, Draws(0))
    # standard error of a deviation over n draws: σ / √(2 n)
    assert (noise.std(dim=1) - 3.0).abs().max() < 4 * 3.0 / math.sqrt(2 * 20000)
    assert noise.mean(dim=1).abs().max() < 4 * 3.0 / math.sqrt(20000)
    assert torch.corrcoef(noise).fill_diagonal_(0).abs().max() < 4 / math.sqrt(20000)


def test_the_server_sees_clipped_updates() -> None:
    method = method_of("fedavg", replace(PLAIN, privacy_clip=0.05))
    method.build()
    start_round(method, 1)
    own = {name: value.detach().clone() for name, value in method.parameters.items()}
    arrived = method.channel.up(method.send(), method.received)
    seen = [(arrived[name] - method.received[name]).flatten(1) for name in own]
    assert torch.cat(seen, 1).norm(dim=1) == pytest.approx([0.05] * 3, rel=1e-4)
    assert all(torch.equal(method.parameters[name], value) for name, value in own.items())


def test_epsilon_is_the_accountants() -> None:
    accountants = pytest.importorskip("opacus.accountants", reason="Opacus is an optional extra")
    accountant = accountants.RDPAccountant()
    for _ in range(20):
        accountant.step(noise_multiplier=2.0, sample_rate=1.0)
    assert epsilon(2.0, 20, 1e-5) == accountant.get_epsilon(1e-5)
    # Gaussian mechanism, T rounds: at most T/(2σ²) + √(2 T log(1/δ)) / σ
    bound = 20 / (2 * 16) + math.sqrt(2 * 20 * math.log(1e5)) / 4
    assert 0.8 * bound < epsilon(4.0, 20, 1e-5) <= bound
    schedule = replace(PLAIN, rounds=20, privacy_noise=2.0, privacy_clip=1.0, participation=0.34)
    method = method_of("fedavg", schedule)
    outcome = train(method)
    most = int((method.attendance > 0).sum(dim=0).max())
    assert 20 / 3 <= most < 20
    assert outcome.extras["epsilon"] == epsilon(2.0, most, 1e-5)


def test_epsilon_is_that_of_the_messages_with_models(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("opacus.accountants", reason="Opacus is an optional extra")
    schedule = replace(PLAIN, rounds=6, privacy_noise=2.0, privacy_clip=1.0)
    # Half of AdaFGL's rounds are its second step, in which nothing is sent.
    for name, rounds in (("fedavg", 6), ("adafgl", 3)):
        outcome = train(method_of(name, schedule))
        assert outcome.bytes["up"] * 6 == rounds * 3 * 4 * 131
        assert outcome.extras["epsilon"] == epsilon(2.0, rounds, 1e-5)

    def sending(method: FedAvg) -> Tensor:
        communicate(method)
        return FederatedMethod.train_round(method)

    monkeypatch.setattr(FedAvg, "train_round", sending)
    assert train(method_of("fedavg", schedule)).extras["epsilon"] == epsilon(2.0, 12, 1e-5)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_quantisation_is_right_in_the_mean_and_on_its_grid(bits: int) -> None:
    given, levels = updates(), 2 ** (bits - 1) - 1
    step = given.abs().amax(dim=1, keepdim=True) / levels
    drawn = torch.stack([rounded(given, bits, seed) for seed in range(2000)])
    # a value's deviation is at most half a step
    error = (drawn.mean(dim=0) - given).abs() / step
    assert error.max() < 5 * 0.5 / math.sqrt(2000)
    whole = drawn / step
    torch.testing.assert_close(whole, whole.round(), atol=1e-3, rtol=0)
    assert whole.abs().max() <= levels + 1e-3
    assert torch.equal(rounded(torch.zeros(2, 5), bits), torch.zeros(2, 5))


def rounded(update: Tensor, bits: int, seed: int = 0) -> Tensor:
    """Return the quantised update as the server reads it, (K, P)."""
    whole, scale = quantised(update, bits, Draws(seed))
    return whole * (scale / (2 ** (bits - 1) - 1))


def test_what_is_rounded_up_is_never_above_the_largest_value() -> None:
    """In single precision L + U[0, 1) can be L + 1: with 16 bits for one value in a thousand."""
    levels = 2**15 - 1
    found, scale = quantised(torch.ones(1, 20000), 16, Draws(0))
    assert (found.max(), scale) == (levels, 1)


def test_the_largest_values_stay_and_all_of_them_at_one() -> None:
    given = torch.tensor([[1.0, -5.0, 3.0, 0.5], [0.0, 0.2, -0.1, 0.3]])
    expected = torch.tensor([[0.0, -5.0, 3.0, 0.0], [0.0, 0.2, 0.0, 0.3]])
    assert torch.equal(largest(given, 0.5), expected)
    assert torch.equal(largest(given, 1.0), given)


def test_of_the_largest_values_few_bits_are_sent() -> None:
    given, small = updates(), uplink(quantise=8, top_k=0.1)
    read = small.decode(small.encode(given, torch.ones(3, dtype=torch.bool)), 50)
    kept = largest(given, 0.1)
    assert not read[kept == 0].any()
    step = given.abs().amax(dim=1, keepdim=True) / 127
    assert ((read - kept).abs() <= step * 1.001).all()


def test_what_was_left_out_comes_with_the_next_message() -> None:
    small, present = uplink(top_k=0.25, error_feedback=True), torch.tensor([True, False])
    given = torch.tensor([[4.0, 3.0, 2.0, 1.0], [4.0, 3.0, 2.0, 1.0]])
    sent = [small.decode(small.encode(given, present), 4) for _ in range(3)]
    # client 0: 4 goes; then 3 + 3; then 2 + 2 + 2 beside 4 + 4 (it was not sent a second time)
    assert [each[0].tolist() for each in sent] == [[4, 0, 0, 0], [0, 6, 0, 0], [8, 0, 0, 0]]
    total = torch.stack([each[0] for each in sent]).sum(dim=0)
    left_out = torch.as_tensor(small.left_out)
    torch.testing.assert_close(total + left_out[0], 3 * given[0])
    assert left_out[1].abs().sum() == 0


@pytest.mark.parametrize(
    ("changes", "size"),
    [
        ({"quantise": 8}, 107 + 4),
        ({"quantise": 3}, 41 + 4),
        ({"top_k": 0.1}, 11 * 8),
        ({"top_k": 0.1, "quantise": 8}, 11 * 5 + 4),
        ({"top_k": 0.9}, 4 * 107),
        ({"privacy_clip": 1.0}, 4 * 107),
    ],
)
def test_bytes_by_hand(changes: dict[str, Any], size: int) -> None:
    """For 107 values; the network with 12 features, hidden width 8 and 3 classes has 104 + 27 = 131."""
    small = uplink(**changes)
    assert small.size(107) == size
    outcome = train(method_of("fedavg", replace(PLAIN, **changes)))
    assert outcome.bytes["up"] == 3 * small.size(131)
    assert outcome.bytes["down"] == 3 * 4 * 131
    assert math.isfinite(outcome.metrics["accuracy"])


def sent(through: Uplink, update: Tensor) -> Tensor:
    """Return the updates that the server reads, (K, P); all clients send."""
    own, received = {"w": 7 + update}, {"w": torch.full((1, update.shape[1]), 7.0)}
    message, _ = through.send(own, received, torch.ones(len(update), dtype=torch.bool))
    return through.read(message, received)["w"] - 7


def test_compression_sees_nothing_that_is_not_private() -> None:
    given = updates()
    clipped = sent(uplink(top_k=0.5, privacy_clip=0.05), given)
    torch.testing.assert_close(
        clipped, largest(privatised(given, 0.05, 0.0, Draws(0)), 0.5), atol=1e-6, rtol=0
    )
    noise = privatised(torch.zeros(3, 50), 2.0, 1.5, Draws(0))
    noised = sent(uplink(top_k=0.5, privacy_clip=2.0, privacy_noise=1.5), torch.zeros(3, 50))
    torch.testing.assert_close(noised, largest(noise, 0.5), atol=1e-6, rtol=0)


def test_every_draw_is_new_and_a_client_draws_what_it_would_beside_the_others() -> None:
    together, alone, secret = Draws(0), Draws(0, client=2), Draws(None)
    drawn = []
    for number in (1, 3):
        for each in (together, alone):
            each.begin(number)
        for _ in range(2):
            drawn.append(together.draw("standard_normal", torch.zeros(4, 5)))
            assert torch.equal(alone.draw("standard_normal", torch.zeros(1, 5)), drawn[-1][2:3])
    drawn += [secret.draw("standard_normal", torch.zeros(4, 5)) for _ in range(2)]
    assert len({each.numpy().tobytes() for each in drawn}) == len(drawn)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        *((name, {"privacy_clip": 1.0}) for name in ("scaffold", "fedproto", "gcfl+", "local", "central")),
        ("fedproto", {"quantise": 4}),
        ("fedpub", {"quantise": 4}),
    ],
)
def test_a_method_that_sends_something_else_is_refused(name: str, changes: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"needs a method that sends .*models.* as FedAvg does"):
        train(method_of(name, replace(PLAIN, **changes)))


@pytest.mark.parametrize("name", ["fedaux", "fedgta", "fediih", "gcfl+", "scaffold"])
def test_small_models_are_mixed_and_what_goes_beside_them_goes_as_it_is(name: str) -> None:
    """Moments, controls and norms belong to the clients' own models; the server mixes the received models."""
    share = 0.3
    small, plain, by_hand = (method_of(name, replace(PLAIN, top_k=part)) for part in (share, 1.0, 1.0))
    for method in (small, plain, by_hand):
        method.build()
        start_round(method, 1)
    with torch.no_grad():
        message = {key: value.detach().clone() for key, value in by_hand.send().items()}
    start = {key: value.expand_as(message[key]) for key, value in by_hand.received.items()}
    change = torch.cat([(message[key] - value).flatten(1) for key, value in start.items()], dim=1)
    least = change.abs().sort(dim=1, descending=True).values[:, round(share * change.shape[1]) - 1]
    kept = torch.where(change.abs() >= least.unsqueeze(1), change, 0)
    parts = kept.split([value[0].numel() for value in start.values()], dim=1)
    came = {key: value + part.view_as(value) for (key, value), part in zip(start.items(), parts, strict=True)}
    end_round(small)
    end_round(plain)
    with torch.no_grad():
        by_hand.receive(serve(by_hand, message | came))
    for key, value in by_hand.parameters.items():
        torch.testing.assert_close(small.parameters[key], value)
    assert not all(agree(small.parameters[key], plain.parameters[key]) for key in start)
    beside = sum(value.numel() * 4 for key, value in message.items() if key not in start)
    assert small.channel.bytes_up == 3 * uplink(top_k=share).size(change.shape[1]) + beside
