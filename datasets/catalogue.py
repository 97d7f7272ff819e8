"""The published graphs: expected counts, upstream addresses, citations, licences (`catalogue.toml`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsub.datasets.fetch import Source
from fedsub.datasets.files import read_toml


@dataclass(frozen=True)
class DatasetInfo:
    """Expected counts, sources and citation of one published graph."""

    name: str
    title: str
    """The graph's name in papers."""
    nodes: int
    undirected_edges: int
    features: int
    classes: int
    loader: str
    """A module of `datasets.loaders`, which reads the files."""
    sources: tuple[Source, ...]
    citation: str
    licence: str
    homophily: float | None = None
    """Share of edges within a class, to three digits, measured or from the literature; None if unknown."""
    largest_component: int | None = None
    """Number of nodes of the largest connected component; None if unknown."""
    metric: str = ""
    """Metric of node classification that papers report for the graph; empty for accuracy."""
    counts: bool = False
    """Whether upstream features are counts or weights that the usual loaders and, by default, we binarise."""
    incomplete_edges: int | None = None
    """Number of undirected edges in a known incomplete archive of this graph."""
    incomplete_note: str = ""
    """What the incomplete archive lacks; stored in every record made with it."""

    @property
    def urls(self) -> tuple[str, ...]:
        """Addresses of the upstream files."""
        return tuple(source.url for source in self.sources)


def _read(content: Mapping[str, Any]) -> dict[str, DatasetInfo]:
    found = {}
    for name, entry in content["graph"].items():
        entry = dict(entry)
        if upstream := entry.pop("upstream", None):
            entry |= {"loader": upstream, **content["upstream"][upstream]}
        unchecked = dict.fromkeys(entry.pop("parts", ("",)))
        parts = entry.pop("sha256", unchecked)
        url, file = entry.pop("url"), entry.pop("file", "")
        sources = tuple(
            Source(url.format(file=file, part=part), sha256, part) for part, sha256 in parts.items()
        )
        found[name] = DatasetInfo(name=name, sources=sources, **entry)
    return found


REGISTRY: Mapping[str, DatasetInfo] = _read(read_toml(Path(__file__).with_suffix(".toml")))
"""Name → published graph."""
