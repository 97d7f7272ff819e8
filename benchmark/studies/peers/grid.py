"""Grid of the comparison: methods shared with openfgl-lib, five graphs, 5 to 100 clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from fedsub.datasets.errors import UserError, unknown
from fedsub.datasets.options import OptionValue

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
"""The network of the peer's FED-PUB."""


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


PAIRINGS = {
    pairing.method: pairing
    for pairing in (
        Pairing("fedavg", "fedavg", PLAIN),
        Pairing("fedprox", "fedprox", PLAIN, {"mu": 0.001}),
        Pairing("local", "isolate", PLAIN),
        Pairing("fedpub", "fedpub", MASKED, {"tau": 10.0, "lambda1": 0.001, "lambda2": 0.001}),
        Pairing("scaffold", "scaffold", PLAIN, {"control_weights": "uniform"}),
        Pairing("moon", "moon", PLAIN),
        Pairing("feddc", "feddc", PLAIN, {"variant": "openfgl"}),
        Pairing("fedproto", "fedproto", PLAIN, {"distance": "classes", "average": "openfgl"}),
        Pairing("fedgta", "fedgta", PLAIN, {"propagation": "openfgl", "order": 10}),
        Pairing("fedtad", "fedtad", PLAIN, {"shared_over": "classes", "divergence": "l1"}),
    )
}
"""By the method's name here."""


@dataclass(frozen=True)
class PeerCell:
    """One comparison."""

    pairing: Pairing
    dataset: str
    clients: int

    @property
    def key(self) -> str:
        """Key of its record."""
        return f"{self.pairing.method} {self.dataset} {self.clients}"


def plan(datasets: Sequence[str], methods: Sequence[str], clients: Sequence[int]) -> list[PeerCell]:
    """The comparisons that the filters leave; an empty filter leaves all.

    Raises UserError for a method that is not shared, an unknown graph and a number of clients not compared.
    """
    for count in clients:
        if count not in CLIENTS:
            numbers = ", ".join(map(str, CLIENTS))
            raise UserError(f"peers are compared with {numbers} clients, not with {count}")
    for kind, chosen, choices in (("method", methods, PAIRINGS), ("graph", datasets, DATASETS)):
        for name in chosen:
            if name not in choices:
                raise unknown(f"{kind} of the comparison", name, choices)
    points = product(methods or PAIRINGS, datasets or DATASETS, clients or CLIENTS)
    return [PeerCell(PAIRINGS[method], dataset, count) for method, dataset, count in points]
