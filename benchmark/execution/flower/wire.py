"""Serialised messages of one client: the bytes that the channel counts, and a form that describes them.

A tensor is sent as its values. If a mask says which entries of a model are sent (`kept.X`), all shared models
are sent as one list of values and their positions, or whole if that is shorter. The server's answer leaves
the positions out, since the client knows which entries it sent. Masks of rows are part of the form.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from torch import Tensor

from fedsub.methods.core.channel import FLOAT, INDEX, KEPT, Message

LISTED, PLACES, WHOLE = "listed", "places", "whole"
Masks = Mapping[str, Tensor]
"""Name → (1, …) bool mask of the entries that a client sent."""


def masks_of(message: Message) -> dict[str, Tensor]:
    """Masked tensor's name → mask of entries, from a message."""
    found = {name.removeprefix(KEPT): mask for name, mask in message.items() if name.startswith(KEPT)}
    return {name: mask for name, mask in found.items() if mask.shape == message[name].shape}


def pack(message: Message, models: Collection[str], sent: Masks | None = None, bits: int = 0) -> RecordDict:
    """Return one client's message, name → (1, …), as Flower's record: its arrays `sent`, and in `told` their
    `form`, which is JSON: shapes, masks of rows, and how models are packed.

    `models` are the names of shared parameters. `sent` are the masks of the message that this one answers.
    `bits` is the width of the integers that int16 tensors hold.
    """
    masks, whole = masks_of(message), message
    message = {name: value.detach() for name, value in message.items() if not name.startswith(KEPT)}
    together = sorted(name for name in message if masks and (name in masks or name in models))
    form: dict[str, Any] = {"masked": sorted(masks), "together": together, "shapes": {}, "rows": {}}
    arrays: dict[str, np.ndarray] = {}
    for name, value in message.items():
        form["shapes"][name] = list(value.shape)
        if name in together:
            continue
        if (mask := whole.get(KEPT + name)) is not None:
            form["rows"][name] = mask.tolist()
            value = value[mask]
        arrays[name] = value.numpy()
        if value.dtype == torch.int16:
            form["bits"] = {name: bits}
            # Keep the lowest `bits` of each number, in two's complement, most significant bit first.
            wide = arrays[name].astype(">i2").view(np.uint8)
            arrays[name] = np.packbits(np.unpackbits(wide).reshape(-1, 16)[:, -bits:])
    if together:
        values = torch.cat([message[name].flatten() for name in together])
        kept = _flat(masks if sent is None else sent, together, form["shapes"])
        if int(kept.sum()) * (FLOAT + INDEX) >= len(kept) * FLOAT:
            arrays[WHOLE] = torch.where(kept, values, 0).numpy()
        else:
            arrays[LISTED] = values[kept].numpy()
            if sent is None:
                arrays[PLACES] = kept.nonzero().squeeze(1).to(torch.int32).numpy()
    record = ArrayRecord({name: Array(np.ascontiguousarray(each)) for name, each in arrays.items()})
    return RecordDict({"sent": record, "told": ConfigRecord({"form": json.dumps(form)})})


def size_of(content: RecordDict) -> int:
    """Return the bytes of a packed message's arrays."""
    return sum(array.numpy().nbytes for array in content["sent"].values())


def unpack(content: RecordDict, sent: Masks | None = None) -> dict[str, Tensor]:
    """Return the packed message; `sent` as in `pack`. Raises any exception if it does not fit."""
    form = json.loads(str(content["told"]["form"]))
    shapes: dict[str, list[int]] = form["shapes"]
    arrays = {name: torch.from_numpy(np.array(array.numpy())) for name, array in content["sent"].items()}
    message = {name: arrays[name] for name in shapes if name in arrays}
    for name, rows in form["rows"].items():
        mask, whole = torch.tensor(rows), torch.zeros(shapes[name])
        whole[mask] = message[name]
        message |= {name: whole, KEPT + name: mask}
    for name, bits in form.get("bits", {}).items():
        own = np.unpackbits(arrays[name].numpy(), count=int(np.prod(shapes[name])) * bits).reshape(-1, bits)
        # Extend the sign to 16 bits.
        both = np.packbits(np.hstack([np.repeat(own[:, :1], 16 - bits, axis=1), own]))
        message[name] = torch.from_numpy(both.view(">i2").astype(np.int16)).view(shapes[name])
    if together := form["together"]:
        sizes = [int(np.prod(shapes[name])) for name in together]
        values = arrays.get(WHOLE, torch.zeros(sum(sizes)))
        kept = values != 0 if sent is None else _flat(sent, together, shapes)
        if PLACES in arrays:
            kept = kept.index_fill(0, arrays[PLACES].long(), True)
        if WHOLE not in arrays:
            values[kept] = arrays[LISTED]
        for name, part, mask in zip(together, values.split(sizes), kept.split(sizes), strict=True):
            message[name] = part.view(shapes[name])
            if name in form["masked"]:
                message[KEPT + name] = mask.view(shapes[name])
    return message


def _flat(masks: Masks, names: Sequence[str], shapes: Mapping[str, Sequence[int]]) -> Tensor:
    """Return the mask of sent values, (total,) bool, over the concatenated tensors of these names."""
    whole = {name: torch.ones(shapes[name], dtype=torch.bool) for name in names}
    return torch.cat([masks.get(name, mask).flatten() for name, mask in whole.items()])
