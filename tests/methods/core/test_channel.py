"""Bytes of what crosses the network, counted by hand."""

from __future__ import annotations

import torch

from fedsub.methods.core.channel import Channel, size_of

CLIENTS = 4
STACKED = torch.zeros(CLIENTS, 3, 2)


def test_a_tensor_weighs_what_its_numbers_take() -> None:
    assert size_of(torch.zeros(3, 2)) == 6 * 4
    assert size_of(torch.zeros(3, dtype=torch.int64), torch.zeros(5, dtype=torch.bool)) == 3 * 8 + 5
    assert size_of(torch.tensor(0.0)) == 4
    # Each of the three numbers goes with its column.
    assert size_of(torch.tensor([[0.0, 1.0], [2.0, 3.0]]).to_sparse_csr()) == 3 * (4 + 4)


def test_those_who_are_absent_neither_send_nor_receive() -> None:
    channel = Channel(CLIENTS)
    channel.senders, channel.receivers = 3, 1
    channel.up(STACKED)
    assert channel.bytes_up == 3 * 6 * 4
    channel.down(STACKED, STACKED[:, 0])
    assert channel.bytes_down == 6 * 4 + 2 * 4
    # Before training everyone is there.
    channel.once(STACKED)
    assert channel.bytes_once == CLIENTS * 6 * 4
    assert channel.total == (18 + 8 + 24) * 4


def test_what_is_not_stacked_and_what_is_counted_already_weighs_as_it_is() -> None:
    channel = Channel(CLIENTS)
    channel.senders = 3
    channel.up(torch.zeros(1, 6), torch.zeros(5), torch.tensor(0.0), 7)
    assert channel.bytes_up == (6 + 5 + 1) * 4 + 7
    channel.encoded(11)
    assert channel.bytes_up == (6 + 5 + 1) * 4 + 7 + 11
