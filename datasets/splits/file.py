"""`file`: a split read from a user's npz file with an array for each role."""

import numpy as np

from fedsub.datasets.errors import UserError
from fedsub.datasets.files import find_data
from fedsub.datasets.graph import Dataset
from fedsub.datasets.limits import Size
from fedsub.datasets.loaders.npz import NpzReader, open_npz
from fedsub.datasets.loaders.raw import MalformedFileError
from fedsub.datasets.partition.base import Partition
from fedsub.datasets.splits.official import as_roles

ROLES = ("train", "validation", "test")


def check_options(*, path: str, **others: object) -> None:
    """Raises UserError if no path is given."""
    if not path:
        raise UserError("split file needs a path: write file[path=split.npz]")


def split(
    dataset: Dataset,
    partition: Partition,
    generator: np.random.Generator,
    *,
    path: str = "",
    index: Size = 0,
) -> np.ndarray:
    """Read a role per copy, (Σ n_k,), from the file at `path`; nothing is drawn.

    Its arrays `train`, `validation` (optional) and `test` are masks of the n nodes, (n,) bool, or integer
    node ids, or masks of S splits, (S, n) bool, of which `index` selects one. If only the graph's largest
    component is used, ids are those of the whole graph and masks may cover all its nodes; nodes outside the
    component have no role. A relative path is searched in the working folder, then in FEDSUB_DATA. Raises
    UserError if the file is missing or cannot be read, gives a node two roles, or holds a single split and
    `index` is not 0.
    """
    found = find_data("split file", path)
    try:
        with open_npz(found) as content:
            masks = np.stack([_mask(content, role, dataset, index) for role in ROLES])
            single = all(content[role].ndim == 1 for role in ROLES if role in content)
    except MalformedFileError as error:
        raise error.of_own(f"the split in {found}", "write it again") from None
    if masks.sum(axis=0).max(initial=0) > 1:
        node = int(masks.sum(axis=0).argmax())
        raise UserError(
            f"the split in {found} gives node {node} two roles: give it one of {', '.join(ROLES)}"
        )
    if single and index:
        raise UserError(f"{found} holds only one split: index must be 0, not {index}")
    return as_roles(masks)[partition.origin]


def _mask(content: NpzReader, role: str, dataset: Dataset, index: int) -> np.ndarray:
    """Return the mask of a role's nodes, (n,) bool."""
    nodes, component = dataset.nodes, dataset.component
    within = np.ones(nodes, dtype=bool) if component is None else component
    mask = np.zeros(len(within), dtype=bool)
    if role == "validation" and role not in content:
        return mask[within]
    stored = content[role]
    if stored.dtype.kind == "b" and stored.ndim == 2 and 0 <= index < len(stored):
        stored = stored[index]
    if stored.dtype.kind == "b" and stored.shape == (nodes,):
        return stored
    if stored.dtype.kind == "b" and stored.shape == within.shape:
        return stored[within]
    whole = stored.ndim == 1 and (stored.dtype.kind in "iu" or not stored.size)
    # More than two numbers that are all 0 or 1 are a mask of wrong type, not ids of two nodes.
    whole = whole and (len(stored) <= 2 or not np.isin(stored, (0, 1)).all())
    if whole and (not stored.size or (int(stored.min()) >= 0 and int(stored.max()) < len(within))):
        mask[stored.astype(np.int64)] = True
        return mask[within]
    fix = "write such a list, or a mask of bool"
    if component is not None:
        fix += (
            f", for the {nodes} nodes of the largest component or all {len(component)} of the graph, or set"
            " largest_component=false"
        )
    raise UserError(
        f"{role} in {content.path} is neither a mask of {nodes} nodes nor a list of their ids"
        f" ({stored.dtype} of shape {stored.shape}, index={index}): {fix}"
    )
