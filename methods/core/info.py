"""What is said of a method without running it: its options, and what the registry and pages tell of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from fedsub.datasets.limits import check_limits
from fedsub.methods.stacked.architecture import NETWORKS, OWN


@dataclass(frozen=True)
class Options:
    """A method's own hyper-parameters; each method subclasses it with a docstring for every field."""

    def __post_init__(self) -> None:
        """Raises UserError for a number outside the limit that its type states (`datasets.limits`)."""
        owner = type(self).__name__.removesuffix("Options").replace("Plus", "+").lower()
        check_limits(f"{owner}'s ", self)

    def unused(self, backbone: str) -> Mapping[str, str]:
        """Options that cannot act beside the others with this backbone, each with what it would need;
        `backbone` itself where the method takes none."""
        return {}

    def breaks_privacy(self) -> str | None:
        """Why a method with these options breaks privacy, empty if it does not; None: see `MethodInfo`."""
        return None


@dataclass(frozen=True)
class MethodInfo:
    """What the registry and the leaderboards say about a method."""

    name: str
    title: str
    """As its paper writes it."""
    paper: str
    options: type[Options] = Options
    tasks: tuple[str, ...] = ("node-classification",)
    backbones: tuple[str, ...] = (*NETWORKS, OWN)
    """Networks that it runs with; `own` stands for any of a user's, which shows no hidden layer."""
    lacks: tuple[str, ...] = ()
    """Settings of the architecture that its own layers have not: they must keep their defaults."""
    exchanges: str = "model parameters"
    """What crosses the network."""
    breaks_privacy: str = ""
    """Why the method would not be allowed between real clients, or which of its variants would not; empty if
    all keep to the rules. Where options decide, `Options.breaks_privacy` says what a record has."""
    exposes: tuple[str, ...] = ()
    """The name in `extras` of how many nodes a run cannot protect, and why, if it counts them."""
    merged: bool = False
    """Whether it trains on one client that holds every node and every edge."""
    tells_attendance: bool = False
    """Whether who sees the averaged models sees in them who took part in a round."""
    simulation_only: str = ""
    """Why clients cannot run apart, each with its own data and the server's messages; empty if they can."""
    predicts_with: str = ""
    """What it predicts with beside parameters; another client's model then cannot be scored (`evaluate`)."""
    needs_everyone: str = ""
    """Why no client may be absent from a round; empty if one may."""
    version: int = 1
    """Raise when its results change: records of another version are of another cell."""

    def __post_init__(self) -> None:
        """Raises ValueError for a name that no command line could ask for, and for options that would not be
        read."""
        if not re.fullmatch(r"[\w.+-]+", self.name):
            raise ValueError(f"the name {self.name!r} may have letters, digits and . + - _ alone")
        if "__dataclass_fields__" not in vars(self.options):
            raise ValueError(f"{self.options.__name__} is no dataclass: put @dataclass(frozen=True) above it")


def privacy_of(info: MethodInfo, options: Options) -> str:
    """Why a method with these options breaks privacy, empty if it does not."""
    own = options.breaks_privacy()
    return info.breaks_privacy if own is None else own
