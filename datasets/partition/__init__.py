"""Partition schemes: `partition(dataset, scheme, clients, seed)` assigns nodes to clients.

A scheme is a module in this package with the scheme's name, `_` in place of `-`. Its function
`partition(dataset, clients, seed, *, option=default, …)` returns a client per node, (n,) integers with −1 for
a node left out, or a list with each client's node ids. `Drawn` holds either, with edges that the scheme adds
to the graph. Other schemes are found through the entry point group `fedsub.partitions`, or by the path of a
.py file in place of a name. A scheme that changes its clients for a seed raises its `VERSION` (1 if unset).
"""

from typing import Any

from fedsub.datasets.errors import UserError
from fedsub.datasets.graph import Dataset
from fedsub.datasets.options import OptionValue, Spec, format_name
from fedsub.datasets.partition.base import Partition, as_partition
from fedsub.datasets.plugins import Kind

SCHEMES = Kind(
    "partition scheme",
    function="partition",
    group="fedsub.partitions",
    package=__name__,
    shared=("balance", "base", "random_edges", "statistics"),
    given=3,
)


def partition(
    dataset: Any, scheme: str | Spec, clients: int, seed: int = 0, **options: OptionValue
) -> Partition:
    """Distribute the nodes of `dataset`, a graph or what `load` takes, over `clients` clients.

    `scheme` is a name of `SCHEMES.names()` or the path of a .py file, with optional options in brackets:
    `metis[recursive=true]`; `options` override these. The same arguments give the same partition.
    Raises UserError for an unknown scheme or option, fewer than one client, more clients than nodes, a
    negative seed, and a scheme that raises, returns an empty client or otherwise breaks its contract.
    """
    if not isinstance(dataset, Dataset):
        from fedsub.datasets.registry import load

        dataset = load(dataset)
    spec = Spec.of(scheme)
    given = SCHEMES.check(spec, **options)
    if clients < 1:
        raise UserError(f"cannot distribute {dataset.name} over {clients} clients: ask for at least one")
    if clients > dataset.nodes:
        raise UserError(
            f"cannot distribute the {dataset.nodes} nodes of {dataset.name} over {clients} clients:"
            " ask for at most one client per node"
        )
    if seed < 0:
        raise UserError(f"cannot distribute {dataset.name} with seed {seed}: give a seed of at least 0")
    usual = SCHEMES.options_of(spec.name)
    title = format_name(spec.name, {key: value for key, value in given.items() if usual.get(key) != value})
    drawn = SCHEMES.call(spec.name, dataset, clients, seed, **given)
    return as_partition(title, drawn, dataset.nodes, clients)
