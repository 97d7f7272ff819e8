"""`benchmark/spec/messages.toml` says what the channel sees leave a client.

`python -m tests.methods.test_messages` writes it anew.
"""

import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import chain, combinations
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

import pytest
from torch import Tensor

from fedsub.benchmark.spec import catalog, protocol
from fedsub.benchmark.spec.plan import grid_cells
from fedsub.datasets.errors import UserError
from fedsub.datasets.options import OptionValue, format_name, parse_name
from fedsub.methods.core import registry
from fedsub.methods.core.channel import KEPT, Channel, Message, slice_size
from fedsub.methods.core.schedule import Schedule
from fedsub.methods.core.training import train
from fedsub.methods.fedsgd import GRADIENT
from fedsub.methods.stacked.architecture import Architecture
from tests.methods.federations import community_federation, make_method

CLIENTS, ROUNDS = 3, 2
PROBE = community_federation(CLIENTS, split="ratio[train=0.3,validation=0.3,test=0.4]")
"""Three clients of the generated graph."""


def usual_backbone(name: str) -> str:
    backbones = registry.describe(name).backbones
    return "gcn" if "gcn" in backbones else backbones[0]


def leaving(name: str, options: Mapping[str, OptionValue] = MappingProxyType({})) -> dict[str, Any]:
    """Name of what a client sends → bytes in a round, the mean of the rounds.

    `model`: the shared parameters of networks, whose names have several parts; `once`: the names and bytes
    of what is sent beside the rounds, in all, and of what a first message alone contains.
    """
    seen, messages, once, up = Counter[str](), Counter[str](), Counter[str](), Channel.up

    def watched_up(
        self: Channel, message: Message, known: Message | None = None, who: Tensor | None = None
    ) -> Message:
        before = self.bytes_up
        arrived = up(self, message, known, who)
        senders = int((self.sending if who is None else who).sum())
        sizes = Counter[str]()
        for part in message:
            if not part.startswith(KEPT) and (part not in self.models or "." not in part):
                rows = message.get(KEPT + part)
                sent = senders if rows is None else int(rows.sum()) / rows[0].numel()
                own = part.startswith(GRADIENT) and part.count(".") == 1
                title = part.replace(".", "_") if own else part.split(".")[0]
                sizes[title] += round(slice_size(message[part]) * sent)
        if any(part in self.models for part in message):
            sizes["model"] = self.bytes_up - before - sizes.total()
        seen.update(sizes)
        messages.update({part for part, size in sizes.items() if size})
        return arrived

    def watched(count: Callable[..., None], found: Counter[str]) -> Callable[..., None]:
        def counted(self: Channel, **rows: Tensor | Sequence[Tensor]) -> None:
            for part, value in rows.items():
                before = self.total
                count(self, **{part: value})
                found[part] += self.total - before

        return counted

    backbone = str(options.get("backbone", usual_backbone(name)))
    network = Architecture(backbone=backbone, hidden=(16, 16))
    chosen = {option: value for option, value in options.items() if option != "backbone"}
    with (
        patch.object(Channel, "up", watched_up),
        patch.object(Channel, "rows_up", watched(Channel.rows_up, seen)),
        patch.object(Channel, "once_up", watched(Channel.once_up, once)),
    ):
        train(make_method(name, chosen, PROBE, network, Schedule(rounds=ROUNDS)))
    first_alone = [part for part, count in messages.items() if count == 1 and part != "model"]
    once.update({part: seen.pop(part) for part in first_alone})
    found: dict[str, Any] = _each(seen, ROUNDS)
    return found | ({"once": _each(once)} if once.total() else {})


def _each(sizes: Counter[str], rounds: int = 1) -> dict[str, Any]:
    return {part: round(size / CLIENTS / rounds) for part, size in sorted(sizes.items()) if size}


PROBED = [name for name in registry.names() if not registry.describe(name).merged]
"""Merged methods, whose data are in one place, send nothing through the channel."""


STATED = tomllib.loads(catalog.MESSAGES.read_text("utf-8"))


@pytest.mark.parametrize("name", STATED)
def test_the_table_is_what_the_channel_sees(name: str) -> None:
    """Within 2 %: masks and k-means may move by a rounding on another processor."""
    stated, found = (sent | sent.pop("once", {}) for sent in (dict(STATED[name]), leaving(*parse_name(name))))
    assert stated == pytest.approx(found, rel=0.02)


def test_the_table_has_every_method_and_no_other() -> None:
    assert {name for name in STATED if "[" not in name} == {*PROBED}


MORE = (
    "fedcog[convolution=gbp]",
    "fedstruct[features=deg,private=true,version=b]",
    "fedstruct[private=true,transform=none,version=b]",
)
"""Variants of no table with messages of their own."""


def variants() -> list[tuple[str, dict[str, OptionValue]]]:
    """Methods with the options and backbones that the benchmark's tables and searches give them, and `MORE`;
    the fewest options first."""
    found = {(name, (*options.items(),)) for name, options in map(parse_name, MORE)}
    for cell in chain(*(grid_cells(protocol.load_protocol(name)) for name in protocol.names())):
        if cell.method in PROBED:
            usual = cell.architecture.backbone == usual_backbone(cell.method)
            network = () if usual else (("backbone", cell.architecture.backbone),)
            found.add((cell.method, (*cell.options, *network)))
    for name in PROBED:
        tuned = catalog.describe(name).tuned.items()
        found |= {(name, ((option, value),)) for option, each in tuned for value in each.choices}
    return [
        (name, dict(options))
        for name, options in sorted(found, key=lambda each: (len(each[1]), str(each)))
        if options
    ]


def named(sent: Mapping[str, Any]) -> set[str]:
    """Names of messages; those sent once apart from the others."""
    return {*sent, *(f"once.{part}" for part in sent.get("once", ()))}


def test_a_variant_of_a_table_sends_what_is_stated_for_it() -> None:
    for name, options in variants():
        stated = catalog.sent(name, options.items())
        assert stated is not None
        assert named(stated) == named(leaving(name, options)), format_name(name, options)


def test_a_message_of_another_name_than_a_models_is_more_than_models() -> None:
    alone = ["local", "fedper", "scaffold", "fedsgd"]
    # Nodes' gradients, a vector of projections, features before the first round, all data, a user's file.
    more = ["fedlap", "fedaux", "fedgnn", "central", "./mine.py"]
    assert [name for name in (*alone, *more) if catalog.models_only(name)] == alone


@pytest.mark.parametrize(
    ("name", "leaves"),
    [
        ("local", "nothing"),
        ("fedavg", "model 33,560 B a round"),
        ("fedpub", "model 33,560 B, embedding 64 B a round"),
        ("fedgnn", "model 33,560 B a round; features 2,464 B once"),
        ("central", "all data, once (not counted)"),
    ],
)
def test_pages_say_it_by_name_and_size(name: str, leaves: str) -> None:
    assert catalog.describe(name).leaves == leaves


def entries() -> dict[str, dict[str, Any]]:
    """What every method sends at its defaults, and with the fewest options that give other names to the
    messages of a table's variant."""
    found = {name: leaving(name) for name in PROBED}
    for name, options in variants():
        wanted = named(leaving(name, options))
        fitting = [key for key in found if parse_name(key)[0] == name and fits(key, options)]
        if named(found[max(fitting, key=lambda key: len(parse_name(key)[1]))]) == wanted:
            continue
        for chosen in chain(*(combinations(options.items(), size) for size in range(1, 1 + len(options)))):
            with suppress(UserError):
                if named(sent := leaving(name, dict(chosen))) == wanted:
                    found[format_name(name, dict(chosen))] = sent
                    break
    return found


def fits(key: str, options: Mapping[str, OptionValue]) -> bool:
    return parse_name(key)[1].items() <= options.items()


def table() -> str:
    lines = [
        "# What the channel sees leave a client at a method's defaults, or with the options in brackets:",
        "# bytes a round; `once`: in all, with what a first message alone contains. Three clients of",
        "# community[nodes=120], two hidden layers of 16. Made by `python -m tests.methods.test_messages`.",
    ]
    for name, sent in entries().items():
        once = sent.pop("once", {})
        sent |= {f"once.{part}": size for part, size in once.items()}
        sizes = ", ".join(f"{part} = {size}" for part, size in sent.items())
        lines.append(f'"{name}" = {{ {sizes} }}' if sizes else f'"{name}" = {{}}')
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    catalog.MESSAGES.write_text(table(), encoding="utf-8")
