"""A plug-in as another package would offer it."""

from fedsub.datasets.graph import Dataset
from fedsub.datasets.synthetic import CommunityOptions, community


def load(nodes: int = 50) -> Dataset:
    """A small graph."""
    return community(CommunityOptions(nodes=nodes, communities=5))
