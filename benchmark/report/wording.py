"""Names, lists and tables as text."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from fedsub.benchmark.analysis.metrics import CHANGE, COMMUNICATION, GAIN, unit_of
from fedsub.benchmark.spec import catalog
from fedsub.benchmark.spec.protocol import AT_CLIENTS, AT_ROUND
from fedsub.datasets.catalogue import REGISTRY
from fedsub.datasets.options import Spec

PUBLISHED = "partitions"
"""Folder of clients published with papers, each file named by its method."""
SCHEMES = {
    "metis": "METIS",
    "metis-overlapping": "METIS overlapping",
    "metis-imbalanced": "METIS imbalanced",
    "louvain": "Louvain",
    "louvain-openfgl": "Louvain of OpenFGL",
    "louvain-largest": "Louvain, largest",
    "louvain-federatedscope": "Louvain of FederatedScope",
    "kmeans": "k-means",
    "random": "random",
    "dirichlet": "Dirichlet",
    "label-dirichlet": "Dirichlet by label",
    "attribute": "natural",
    "planted": "planted",
    "metis or kmeans (unsaid)": "METIS or k-means (not said)",
    "metis->kmeans": "METIS, then k-means",
}
"""Partition schemes as papers write them."""
GENERATED = {
    "community": "Generated communities",
    "synthetic_figure1": "FED-PUB synthetic, Figure 1",
    "synthetic_figure3": "FED-PUB synthetic, Figure 3",
}
"""Titles of generated graphs, written here because importing `datasets.synthetic` needs DGL."""
NETWORKS = {name: name.upper() for name in ("gcn", "sgc", "mlp", "gat")}
NETWORKS |= {"graphsage": "GraphSAGE", "gprgnn": "GPR-GNN"}
"""Backbone → its title."""
_UNSPOKEN = ("pct", "mb", "seconds")
"""Words that a heading leaves out because its unit contains them."""


def sentence_list(items: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, [", ".join(items[:-1]), *items[-1:]]))


def ends(interval: tuple[float, float] | None) -> str:
    """Return both ends of an interval of differences, `-1.00 to +2.00`; empty without one."""
    return "{:+.2f} to {:+.2f}".format(*interval) if interval else ""


def span(values: Sequence[float], form: str = "", word: str = " to ") -> str:
    """Return the least and the greatest value, as `1 to 4`, or one of them if they are printed alike; a dash
    without any."""
    if not values:
        return "–"
    return word.join(dict.fromkeys(f"{value:{form}}" for value in (min(values), max(values))))


def scheme_title(scheme: str) -> str:
    """Return a scheme as papers write it, its options in brackets; clients read from a file are named by the
    file, not by its path.

    `file[path=partitions/fedspray.npz,key=PubMed]` is "FedSpray's clients (PubMed)".
    """
    name, _, options = scheme.partition("[")
    if name in SCHEMES:
        return _with_options(SCHEMES[name], options)
    spec = Spec(scheme)
    if spec.name != "file" or "path" not in spec.written:
        return scheme
    path = Path(spec.written["path"])
    title = f"{title_of(path.stem)}'s clients" if path.parent.name == PUBLISHED else path.name
    return f"{title} ({spec.written['key']})" if "key" in spec.written else title


def _with_options(title: str, options: str) -> str:
    """Return the title with the options, as `a=1,b=2]`, in brackets."""
    return f"{title} ({options.removesuffix(']').replace(',', ', ')})" if options else title


def graph_title(name: str) -> str:
    """Return a graph as papers write it, its options in brackets; unknown ones as given."""
    bare, _, options = name.partition("[")
    if bare in GENERATED:
        return _with_options(GENERATED[bare], options)
    return REGISTRY[name].title if name in REGISTRY else name


def network_title(name: str) -> str:
    """Return a backbone as papers write it; one from a file as given."""
    return NETWORKS.get(name, name)


def block_title(block: tuple[str, str, int]) -> str:
    """Return a graph with its clients in one line."""
    dataset, partition, clients = block
    return f"{graph_title(dataset)}, {scheme_title(partition)}, {clients} client{'s' * (clients != 1)}"


def title_of(method: str, backbone: str = "") -> str:
    """Return a method's name in its paper, with its options in brackets, and the backbone if one is given;
    unknown ones as given."""
    name, _, options = method.partition("[")
    title = _with_options(catalog.describe(name).title, options) if name in catalog.methods() else method
    return f"{title} · {network_title(backbone)}" if backbone else title


def heading_of(metric: str) -> str:
    """Return the column heading of a score."""
    if metric.startswith(GAIN):
        return f"gain over {title_of(metric.removeprefix(GAIN))}"
    if metric.startswith(CHANGE):
        return f"change from {scheme_title(metric.removeprefix(CHANGE))}"
    if metric.startswith(COMMUNICATION):
        return f"communication in % of {title_of(metric.removeprefix(COMMUNICATION))}"
    metric, at_clients, span = metric.partition(AT_CLIENTS)
    if at_clients:
        return f"{heading_of(metric)} of clients {span}"
    name, at, number = metric.partition(AT_ROUND)
    words = [word for word in name.split("_") if word not in _UNSPOKEN]
    return " ".join(filter(None, [*words, unit_of(name)])) + (f" in round {number}" if at else "")


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table with every cell escaped; all columns except the first are aligned right."""
    lines = [map(escape, head), ["---", *["---:"] * (len(head) - 1)], *(map(escape, row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def escape(text: str) -> str:
    """Return the text on one line, escaped for Markdown's tables, links, images and HTML."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    # A backslash before the bar would fail: the text may have a backslash there already.
    return line.replace("&", "&amp;").replace("<", "&lt;").replace("|", "&#124;").replace("](", "]&#40;")
