"""Public codes of papers that run on our clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PublicCode:
    """The public code of a paper."""

    name: str
    """Name on the command line and in records."""
    title: str
    repository: str
    """Its address on GitHub."""
    entry: str
    """A file that every checkout has."""
    methods: tuple[str, ...]
    """As the tables spell them."""
    datasets: tuple[str, ...]
    tables: tuple[tuple[str, tuple[int, ...]], ...]
    """Each with the numbers of clients that are run, all that it lists if empty."""
    lacks: str = ""
    """Parts of its paper's tables that it cannot run here, and why."""

    def has(self, table: str, point: Mapping[str, Any]) -> bool:
        """Whether it can run the cell at this place of a table's grid."""
        numbers = dict(self.tables).get(table)
        return (
            numbers is not None
            and (not numbers or point["clients"] in numbers)
            and point["method"] in self.methods
            and point["dataset"] in self.datasets
        )


CODES = {
    code.name: code
    for code in (
        PublicCode(
            "fedpub",
            "FED-PUB",
            "JinheonBaek/FED-PUB",
            "models/fedpub/server.py",
            ("local", "fedavg", "fedpub"),
            ("cora", "citeseer", "pubmed"),
            (
                ("fedpub-2", (5, 10, 20)),
                ("fedpub-1", (10, 30, 50)),
                ("fedpub-6", (10,)),
                ("fedpub-7", (10,)),
                ("fedpub-8", (3,)),
                ("fedpub-fig12", (10,)),
            ),
        ),
        PublicCode(
            "fedspray",
            "FedSpray",
            "xbfu/FedSpray",
            "server.py",
            ("local", "fedspray"),
            ("pubmed", "coauthor_physics"),
            (("fedspray-2", ()),),
            lacks="It has no FedAvg. It is slow on a processor, so that of its 500 rounds 100 are run of "
            "most cells.",
        ),
        PublicCode(
            "fedstruct",
            "FedStruct",
            "JavadAliakbari/FedStruct",
            "src/GNN/GNN_server.py",
            (
                "central",
                "local",
                "fedsgd",
                "fedsage+",
                "fedsage-true",
                "fedstruct[features=deg]",
                "fedstruct[features=gdv]",
                "fedstruct[features=n2v]",
                "fedstruct[features=h2v]",
            ),
            ("cora", "citeseer", "chameleon"),
            (("fedstruct-1", (5, 10)),),
        ),
    )
}
"""By name."""
