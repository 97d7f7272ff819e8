"""What is compared: the methods that this suite and a peer have, on five graphs, from 5 to 100 clients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from fedsub.benchmark.studies.peers.pipe import PACKAGES
from fedsub.datasets.errors import UserError, unknown
from fedsub.datasets.options import OptionValue
from fedsub.methods.core import registry

DATASETS = ("cora", "citeseer", "pubmed", "amazon_photo", "amazon_computers")
CLIENTS = (5, 10, 20, 50, 100)

SCHEDULE: dict[str, Any] = {
    "local_epochs": 1,
    "learning_rate": 0.01,
    "weight_decay": 1e-6,
    # The peer weighs clients by their nodes.
    "weighting": "nodes",
}
"""The same for both; both evaluate every client in every round."""

PLAIN: dict[str, Any] = {"backbone": "gcn", "hidden": (128,), "head": "convolution", "dropout": 0.5}
"""The peer's GCN of two layers: the second convolution is the classifier."""
MASKED: dict[str, Any] = {"backbone": "gcn", "hidden": (128, 128), "head": "linear", "dropout": 0.5}
"""The network that the peer's FED-PUB brings along."""
SAGE: dict[str, Any] = {**PLAIN, "backbone": "graphsage"}
"""The peer's GraphSAGE of two layers."""


@dataclass(frozen=True)
class Peer:
    """A library of openfgl-lib's design: a trainer with clients, a server and a pool of messages."""

    name: str
    """As the records spell it."""
    title: str
    trainer: str
    """The module of its trainer."""
    arguments: str
    """The module that holds its settings."""
    packages: tuple[str, ...]
    """Whose versions are recorded."""


OPENFGL = Peer(
    "openfgl", "openfgl-lib", "openfgl.flcore.trainer", "openfgl.config", ("openfgl-lib", *PACKAGES)
)
FEDGB = Peer("fedgb", "FedGB", "fedgb.training.trainer", "fedgb.legacy_config", PACKAGES)
"""Brought by the user: github.com/SuperYeYu/FedGB."""
PEERS = {peer.name: peer for peer in (OPENFGL, FEDGB)}


@dataclass(frozen=True)
class Pairing:
    """One method in both suites."""

    method: str
    """Its name here."""
    algorithm: str
    """Its name there."""
    architecture: dict[str, Any]
    options: dict[str, OptionValue] = field(default_factory=dict)
    """The peer's variants and hyper-parameters, as options here."""
    phases: tuple[str, ...] = ("round",)
    """What is timed, in this order."""
    peer: Peer = OPENFGL

    @property
    def key(self) -> str:
        """The method, after the peer's name where that is not openfgl-lib."""
        return self.method if self.peer is OPENFGL else f"{self.peer.name} {self.method}"

    @property
    def title(self) -> str:
        """As the page shows it."""
        title = registry.describe(self.method).title
        return title if self.peer is OPENFGL else f"{title} ({self.peer.title})"


PERSONAL: dict[str, OptionValue] = {"alpha": 0.5, "beta": 0.0, "epochs": 1, "width": 128}
_PAIRINGS = (
    Pairing("fedavg", "fedavg", PLAIN),
    Pairing("fedprox", "fedprox", PLAIN, {"mu": 0.001}),
    Pairing("local", "isolate", PLAIN),
    Pairing("fedpub", "fedpub", MASKED, {"tau": 10.0, "lambda1": 0.001, "lambda2": 0.001}),
    Pairing("fedsage+", "fedsage_plus", SAGE, {"generator_epochs": 7}, ("generator", "round")),
    Pairing("gcfl+", "gcfl_plus", PLAIN),
    Pairing("fedstar", "fedstar", PLAIN),
    Pairing("scaffold", "scaffold", PLAIN, {"control_weights": "uniform"}),
    Pairing("moon", "moon", PLAIN),
    Pairing("feddc", "feddc", PLAIN, {"variant": "openfgl"}),
    Pairing("fedproto", "fedproto", PLAIN, {"distance": "classes", "average": "openfgl"}),
    Pairing("fedgta", "fedgta", PLAIN, {"propagation": "openfgl", "order": 10}),
    Pairing("fedtad", "fedtad", PLAIN, {"shared_over": "classes", "divergence": "l1"}),
    # Its first step is FedAvg: one round of it, untimed.
    Pairing("adafgl", "adafgl", PLAIN, {"federated": 0.001, **PERSONAL}, ("personal",)),
)
ALA: dict[str, OptionValue] = {"layers": 0, "share": 0.2, "rate": 1.0, "threshold": 0.01}
IIH: dict[str, OptionValue] = {
    "factors": 2,
    "width": 128,
    "layers": 4,
    "iterations": 6,
    "scale": 10.0,
    # The peer's bound moves means of priors that neither its network nor its server reads.
    "variational": 0.0,
}
LIT: dict[str, OptionValue] = {
    "types": 4,
    "layers": 2,
    "self_loops": True,
    # Here its network is its own; the peer's is as wide as the others.
    "width": MASKED["hidden"][0],
    "dropout": MASKED["dropout"],
}
SPRAY: dict[str, OptionValue] = {
    "lambda1": 0.1,
    "lambda2": 1.0,
    "width": 64,
    "proxy_learning_rate": 0.02,
    "confidence": 0.7,
    "targets": "own",
    "projector": "received",
}
_FEDGB = (
    # What it has of these, as openfgl-lib has it; its GCN has a linear classifier, as FED-PUB's.
    *(
        replace(pairing, architecture=MASKED, peer=FEDGB)
        for pairing in _PAIRINGS
        if pairing.method not in ("local", "fedsage+", "gcfl+", "fedstar")
    ),
    Pairing("fedala", "fedala", MASKED, ALA, peer=FEDGB),
    Pairing("fediih", "fediih", {**MASKED, "dropout": 0.3}, IIH, peer=FEDGB),
    Pairing("fedlit", "fedlit", MASKED, LIT, peer=FEDGB),
    Pairing("fedspray", "fedspray", MASKED, SPRAY, peer=FEDGB),
)
PAIRINGS = {pairing.key: pairing for pairing in _PAIRINGS + _FEDGB if pairing.method in registry.names()}
"""By the pairing's key, those whose method is registered here."""


@dataclass(frozen=True)
class PeerCell:
    """One comparison."""

    pairing: Pairing
    dataset: str
    clients: int

    @property
    def key(self) -> str:
        """What its record is found by."""
        return f"{self.pairing.key} {self.dataset} {self.clients}"


def plan(
    datasets: Sequence[str],
    methods: Sequence[str],
    clients: Sequence[int],
    peers: Sequence[Peer] = (OPENFGL,),
) -> Iterator[PeerCell]:
    """The comparisons with these peers that the filters leave; an empty filter leaves all.

    Raises UserError for a method that no peer shares, an unknown graph and a number of clients not compared.
    """
    for count in clients:
        if count not in CLIENTS:
            numbers = ", ".join(map(str, CLIENTS))
            raise UserError(f"peers are compared with {numbers} clients, not with {count}")
    shared = list(dict.fromkeys(pairing.method for pairing in PAIRINGS.values()))
    for kind, chosen, choices in (("method", methods, shared), ("graph", datasets, DATASETS)):
        for name in chosen:
            if name not in choices:
                raise unknown(f"{kind} of the comparison", name, choices)
    for pairing, dataset, count in product(PAIRINGS.values(), datasets or DATASETS, clients or CLIENTS):
        if pairing.peer in peers and pairing.method in (methods or shared):
            yield PeerCell(pairing, dataset, count)
