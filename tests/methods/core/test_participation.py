"""Clients that are absent from rounds, for every method."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsub.datasets.errors import UserError
from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.steps import draw_attendance, weights_among
from fedsub.methods.stacked.mixing import weighted_mean
from tests.methods.federations import make_method

NETWORK = Architecture(hidden=(8, 8), dropout=0.0)


@settings(max_examples=40)
@given(
    clients=st.integers(2, 9),
    participation=st.floats(0.05, 1.0),
    stragglers=st.floats(0.0, 1.0),
    seed=st.integers(0, 99),
)
def test_attendance_keeps_its_promises(clients, participation, stragglers, seed) -> None:
    schedule = Schedule(
        rounds=8, local_epochs=4, participation=participation, stragglers=stragglers, leavers="1@3"
    )
    wanted = max(1, round(participation * clients))
    if stragglers and not round(stragglers * wanted):
        with pytest.raises(UserError, match=r"gives no straggler among .* raise it above"):
            draw_attendance(schedule, clients, seed)
        return
    drawn = draw_attendance(schedule, clients, seed)
    count = (drawn > 0).sum(dim=1)
    assert count[:2].tolist() == [wanted] * 2
    assert count[2:].tolist() == [min(wanted, clients - 1)] * 6
    assert drawn[2:, 1].sum() == 0
    assert ((drawn >= 0) & (drawn <= 4)).all()
    slow = ((drawn > 0) & (drawn < 4)).sum(dim=1)
    assert slow.tolist() == [round(stragglers * int(each)) for each in count]
    assert torch.equal(drawn, draw_attendance(schedule, clients, seed))


def test_stragglers_do_any_smaller_number_of_epochs_at_even_odds() -> None:
    schedule = Schedule(rounds=300, local_epochs=4, stragglers=1.0)
    count = draw_attendance(schedule, 10, 0).flatten().bincount(minlength=5) / 3000
    # 3000 draws: the standard error of a third is 0.009.
    assert count.tolist() == pytest.approx([0, 1 / 3, 1 / 3, 1 / 3, 0], abs=0.04)


def test_ten_seeds_draw_ten_attendances() -> None:
    schedule = Schedule(rounds=20, participation=0.5)
    drawn = {draw_attendance(schedule, 10, seed).numpy().tobytes() for seed in range(10)}
    assert len(drawn) == 10
    often = np.mean([draw_attendance(schedule, 10, seed).numpy() for seed in range(10)], axis=(0, 1))
    assert np.abs(often - 0.5).max() < 0.15


def test_a_federation_without_its_clients_is_refused() -> None:
    with pytest.raises(UserError, match="keep at least one"):
        make_method("fedavg", {}, None, NETWORK, Schedule(rounds=2, leavers="0@1+1@1+2@2")).build()


def test_weights_of_present_clients_without_training_nodes_are_even() -> None:
    method = make_method("fedavg", {}, None, NETWORK, Schedule(rounds=2, participation=0.9))
    method.build()
    method.shares = torch.tensor([1.0, 0.0, 0.0])
    assert weights_among(method.shares, torch.tensor([False, True, True])).tolist() == [0.0, 0.5, 0.5]
    value = torch.arange(3.0).view(3, 1)
    assert weighted_mean(value, weights_among(method.shares, torch.tensor([True, True, False]))).item() == 0.0
