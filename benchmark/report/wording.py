"""Names, lists and tables as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from fedsub.benchmark.spec import catalog
from fedsub.datasets.catalogue import REGISTRY
from fedsub.datasets.options import Spec

PUBLISHED = "partitions"
"""The folder of clients that came with a paper, each file named by its method."""


SCHEMES = {
    "metis": "METIS",
    "metis-overlapping": "METIS overlapping",
    "metis-imbalanced": "METIS imbalanced",
    "louvain": "Louvain",
    "louvain-openfgl": "Louvain of OpenFGL",
    "louvain-largest": "Louvain, largest",
    "kmeans": "k-means",
    "random": "random",
    "dirichlet": "Dirichlet",
    "label-dirichlet": "Dirichlet by label",
    "attribute": "natural",
    "planted": "planted",
}
"""Partition schemes as papers write them."""
GENERATED = {
    "community": "Generated communities",
    "synthetic_figure1": "FED-PUB synthetic, Figure 1",
    "synthetic_figure3": "FED-PUB synthetic, Figure 3",
}
"""Titles of generated graphs (`datasets.synthetic`), which needs DGL."""
NETWORKS = {"graphsage": "GraphSAGE", "gprgnn": "GPR-GNN"}
"""Networks whose titles are not their names in capitals."""


def sentence_list(items: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, [", ".join(items[:-1]), *items[-1:]]))


def partition_title(scheme: str) -> str:
    """A scheme for a reader: clients read from a file are called by the file, not by its path.

    `file[path=partitions/fedspray.npz,key=PubMed]` is "fedspray's clients (PubMed)".
    """
    spec = Spec(scheme)
    if spec.name != "file" or "path" not in spec.written:
        return scheme
    path = Path(spec.written["path"])
    title = f"{path.stem}'s clients" if path.parent.name == PUBLISHED else path.name
    return f"{title} ({spec.written['key']})" if "key" in spec.written else title


def scheme_title(scheme: str) -> str:
    """A scheme as papers write it, its options in brackets."""
    name, bracket, options = scheme.partition("[")
    if name not in SCHEMES:
        return partition_title(scheme)
    return f"{SCHEMES[name]} ({options.removesuffix(']').replace(',', ', ')})" if bracket else SCHEMES[name]


def graph_title(name: str) -> str:
    """A graph as papers write it, its options in brackets; others as given."""
    bare, bracket, options = name.partition("[")
    if bare not in GENERATED:
        return REGISTRY[name].title if name in REGISTRY else name
    title = GENERATED[bare]
    return f"{title} ({options.removesuffix(']').replace(',', ', ')})" if bracket else title


def network_title(name: str) -> str:
    """A network as papers write it; a file's as given."""
    return NETWORKS.get(name, name.upper() if name.isalnum() else name)


def block_title(block: tuple[str, str, int]) -> str:
    """A graph with its clients, one line."""
    dataset, partition, clients = block
    return f"{graph_title(dataset)}, {scheme_title(partition)}, {clients} client{'s' * (clients != 1)}"


def title_of(method: str) -> str:
    """A method's name in its paper, with its options in brackets; others as given."""
    name, bracket, options = method.partition("[")
    if name not in catalog.methods():
        return method
    title = catalog.describe(name).title
    return f"{title} ({options.removesuffix(']').replace(',', ', ')})" if bracket else title


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table, every cell escaped; every column but the first is aligned to the right."""
    lines = [map(escape, head), ["---", *["---:"] * (len(head) - 1)], *(map(escape, row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def escape(text: str) -> str:
    """The text on one line and with no meaning in Markdown's tables, links, images or HTML."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    # A backslash before the bar would not do: the text may end in one of its own.
    return line.replace("&", "&amp;").replace("<", "&lt;").replace("|", "&#124;").replace("](", "]&#40;")
