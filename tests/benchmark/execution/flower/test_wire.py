"""A message comes out of the wire as it went in, in as many bytes as the channel counts."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedsub.methods.core.channel import Channel, Message

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedsub-bench[flower]'")

from fedsub.benchmark.execution.flower.wire import masks_of, pack, size_of, unpack

MODELS = frozenset({"weight", "bias"})


def message(kept: float, seed: int) -> Message:
    generator = torch.Generator().manual_seed(seed)
    weight, bias = (torch.randn(*shape, generator=generator) for shape in ((1, 7, 5), (1, 5)))
    mask = torch.rand(weight.shape, generator=generator) < kept
    return {"weight": weight * mask, "kept.weight": mask, "bias": bias, "embedding": torch.ones(1, 3)}


def counted(sent: Message, up: bool) -> int:
    channel = Channel(1)
    channel.models = MODELS
    channel.up(sent) if up else channel.down(sent)
    return channel.bytes_up + channel.bytes_down


@given(kept=st.floats(0, 1), seed=st.integers(0, 50))
def test_masked_models_come_back_and_cost_what_is_counted(kept: float, seed: int) -> None:
    sent = message(kept, seed)
    wire = pack(sent, MODELS)
    assert size_of(wire) == counted(sent, up=True)
    found = unpack(wire)
    assert found.keys() == sent.keys()
    assert all(torch.equal(found[name], value) for name, value in sent.items())
    masks = masks_of(sent)
    answer = {**message(1, seed + 1), "kept.weight": masks["weight"]}
    back = pack(answer, MODELS, masks)
    assert size_of(back) == counted(answer, up=False)
    assert torch.equal(
        unpack(back, masks)["weight"], torch.where(masks["weight"], answer["weight"], torch.zeros(()))
    )


@pytest.mark.parametrize("bits", [2, 3, 8, 13, 16])
def test_whole_numbers_take_their_bits(bits: int) -> None:
    largest = 2 ** (bits - 1) - 1
    values = torch.tensor([[-largest, largest, 0, -1, 1, largest, -largest]], dtype=torch.int16)
    wire = pack({"update.values": values}, MODELS, bits=bits)
    assert size_of(wire) == -(-7 * bits // 8)
    assert torch.equal(unpack(wire)["update.values"], values)


@pytest.mark.parametrize("up", [True, False])
def test_rows_that_are_left_out_are_not_sent(up: bool) -> None:
    rows = torch.tensor([[True, False, True]])
    sent = {"means": torch.randn(1, 3, 4) * rows.unsqueeze(2), "kept.means": rows}
    wire = pack(sent, frozenset())
    assert size_of(wire) == counted(sent, up) == 2 * 4 * 4
    assert all(torch.equal(unpack(wire)[name], value) for name, value in sent.items())
