"""Messages through the channel: their bytes, counted by hand, and their content on arrival."""

import torch
from torch import Tensor

from fedsub.methods.core.channel import Channel, size_of, unformed

CLIENTS = 4
STACKED = torch.ones(CLIENTS, 3, 2)
ABSENT = torch.tensor([True, True, False, True])


def channel(*absent: int) -> Channel:
    found = Channel(CLIENTS)
    found.everyone = not absent
    found.sending = torch.tensor([client not in absent for client in range(CLIENTS)])
    return found


def test_a_tensor_weighs_what_its_numbers_take() -> None:
    assert size_of(torch.zeros(3, 2)) == 6 * 4
    assert size_of(torch.zeros(3, dtype=torch.int64), torch.zeros(5, dtype=torch.bool)) == 3 * 8 + 5
    assert size_of(torch.tensor(0.0)) == 4
    # Each of the three numbers is sent with its column index.
    assert size_of(torch.tensor([[0.0, 1.0], [2.0, 3.0]]).to_sparse_csr()) == 3 * (4 + 4)
    assert size_of(unformed(3, 2), unformed(5, dtype=torch.int64)) == 6 * 4 + 5 * 8


def test_those_who_are_absent_neither_send_nor_receive() -> None:
    found = channel(2)
    arrived = found.up({"a": STACKED, "b": torch.ones(1, 5)})
    assert found.bytes_up == 3 * (6 + 5) * 4
    assert not arrived["a"][2].any()
    assert arrived["a"][ABSENT].all()
    found.receiving = torch.tensor([False, True, False, False])
    found.down({"a": STACKED, "b": STACKED[:, 0]})
    assert found.bytes_down == 6 * 4 + 2 * 4
    # Before training all clients are present, and rows of several clients count as given.
    found.once_up(a=STACKED)
    found.once_down(b=[torch.ones(3), torch.ones(4)])
    found.rows_up(a=torch.ones(2, 3))
    found.rows_down(a=torch.ones(5))
    assert found.bytes_once == (CLIENTS * 6 + 7) * 4
    assert found.total == (33 + 8 + 31 + 6 + 5) * 4


def test_of_some_clients_alone_if_asked() -> None:
    found = channel()
    found.up({"a": STACKED}, who=ABSENT)
    found.down({"a": STACKED[:1]}, who=~ABSENT)
    assert (found.bytes_up, found.bytes_down) == (3 * 6 * 4, 6 * 4)


def masked(*kept: int) -> Tensor:
    """Client k keeps its first kept[k] of six values."""
    mask = torch.arange(6) < torch.tensor(kept).unsqueeze(1)
    return mask.view(CLIENTS, 3, 2)


def test_masked_values_go_with_their_places_up_and_without_them_down() -> None:
    """If the list of indices would be longer than all values, these are sent: from three of six on."""
    found = channel()
    found.models = frozenset({"a"})
    message = {"a": STACKED, "kept.a": masked(0, 2, 3, 6)}
    found.up(message)
    assert found.bytes_up == 0 + 2 * 8 + 6 * 4 + 6 * 4
    found.down(message)
    assert found.bytes_down == 0 + 2 * 4 + 6 * 4 + 6 * 4


def test_one_list_holds_all_of_a_model_and_nothing_else() -> None:
    found = channel()
    found.models = frozenset({"a", "b"})
    found.up({"a": STACKED, "kept.a": masked(1, 1, 6, 1), "b": torch.ones(CLIENTS, 2), "c": STACKED})
    # 3 of 8 values are sent with indices, 8 of 8 without.
    assert found.bytes_up == 3 * (3 * 8) + 8 * 4 + CLIENTS * 6 * 4


def test_rows_are_sent_whole_or_not_at_all() -> None:
    found = channel(3)
    mask = torch.tensor([[True, True, True], [False] * 3, [True, False, False], [True] * 3])
    found.up({"a": STACKED, "kept.a": mask})
    assert found.bytes_up == (3 + 0 + 1) * 2 * 4
    found.down({"a": STACKED[:1], "kept.a": mask[2:3]})
    assert found.bytes_down == CLIENTS * 2 * 4
