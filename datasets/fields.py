"""Fields of a user's nodes: features, labels, official splits and attributes.

Labels are whole numbers from 0, or names, which are numbered in alphabetical order. -1, none and an empty
field mean a node without a label, which is never trained, validated or tested on.

A further field with one whole number or one short text per node is an attribute, for natural clients; -1 and
empty text mean no value. `train_mask`, `val_mask` and `test_mask`, each (n,) or for S splits (n, S), are the
official splits. So is an attribute `split` whose values are train, validation and test, or empty.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedsub.datasets.archive import ATTRIBUTE, as_dataset
from fedsub.datasets.errors import UserError
from fedsub.datasets.graph import Dataset
from fedsub.datasets.loaders.raw import MalformedFileError, RawGraph, checked, masks_of

FEATURES = ("x", "feat", "feature", "features", "attr")
"""Names of the features; see `only`."""
LABELS = ("y", "label", "labels", "class")
"""Names of the labels; see `only`."""
MASK = "_mask"
VALIDATION = ("val_mask", "valid_mask", "validation_mask", "dev_mask")
ROLES = {"train": 0, "val": 1, "valid": 1, "validation": 1, "dev": 1, "test": 2, "": 3}
"""Value of an attribute `split` → index in `RawGraph.official`; 3 is outside, for no role."""
MISSING = (
    "na", "n/a", "nan", "none", "null", "nil", "missing", "unknown", "unlabeled", "unlabelled", "?", "-",
)  # fmt: skip
"""Texts that often mean a missing label: they do so among numeric labels; among names each is a class."""
LONGEST_TEXT = 200
"""Maximum characters of a label or an attribute: an array of text uses the longest one's memory per node."""


def build(
    name: str,
    source: np.ndarray,
    target: np.ndarray,
    features: Any,
    labels: np.ndarray,
    further: Mapping[Any, Any],
    unused: Iterable[str] = (),
) -> Dataset:
    """Make the graph whose nodes have these fields; edges from `source` to `target`, (m,) each.

    Official splits and attributes among `further` are kept. The note names the other fields and `unused`.
    Raises UserError if parts are missing or do not fit together.
    """
    codes, classes, names = _numbered(name, labels)
    if isinstance(features, torch.Tensor):
        features = features if features.layout is torch.strided else features.to_dense()
        # numpy has no bfloat16.
        features = features.float() if features.is_floating_point() else features
    features = as_array(features, "features")
    try:
        official, attributes, others = _known(name, further, len(codes))
        raw = checked(
            RawGraph(source, target, features, codes, official, attributes), Path(name), unlabelled=True
        )
        note = left_out(raw, [*unused, *others])
        return replace(as_dataset(name, raw, classes, note), class_names=names)
    except MalformedFileError as error:
        raise UserError(f"{name}: {error.reason}; correct the graph") from error


def left_out(raw: RawGraph, unused: Iterable[str]) -> str:
    """Return the note on a graph's unused parts and its loops; empty if there are none."""
    loops = int((raw.source == raw.target).sum())
    parts = [*unused, *([f"{loops:,} loops"] if loops else [])]
    return f"left out: {', '.join(parts)}" if parts else ""


def only(graph: str, found: Sequence[str]) -> str:
    """Return the one name `found`. Raises UserError for several: a second one of labels may be a feature."""
    if len(found) > 1:
        raise UserError(f"{graph} has {' and '.join(found)}: keep one, and rename or remove the others")
    return found[0]


def as_array(values: Any, what: str) -> np.ndarray:
    """Return values as an array of numbers or text, lists with text as objects. Raises UserError if that is
    impossible."""
    kinds = {*map(type, values)} if isinstance(values, (list, tuple)) else set()
    text = str in kinds <= {str, int, float, bool, type(None)}
    try:
        kept = values.detach().cpu().numpy() if hasattr(values, "detach") else values
        array = np.asarray(kept, object if text else None)
    except (TypeError, ValueError, RuntimeError) as error:
        # For example a sparse, quantised or ragged one.
        raise UserError(f"{what} cannot be read as an array ({error}): give a dense array") from error
    if array.dtype.kind == "O" and not text:
        raise UserError(f"{what} must be a tensor or an array of numbers, not of {type(values).__name__}")
    return array


def _known(
    name: str, further: Mapping[Any, Any], nodes: int
) -> tuple[np.ndarray | None, dict[str, np.ndarray], list[str]]:
    """Return official splits, as in `RawGraph.official`, attributes, (n,) each, and the names of other fields
    with one entry per node. Raises UserError for invalid masks."""
    rest = {str(key): values for key, values in further.items() if key not in (*FEATURES, *LABELS)}
    official = None
    if "train_mask" in rest and "test_mask" in rest:
        masks = [
            _mask(rest.pop(key), key) for key in ("train_mask", _validation(name, rest), "test_mask") if key
        ]
        if len(masks) == 2:
            masks.insert(1, np.zeros((1, nodes), dtype=bool))
        splits = max(map(len, masks))
        masks = [mask.repeat(splits, axis=0) if len(mask) == 1 else mask for mask in masks]
        official = masks_of(masks, nodes, Path(name))
    found = {key: _attribute(values, nodes) for key, values in rest.items()}
    attributes = {key.removeprefix(ATTRIBUTE): values for key, values in found.items() if values is not None}
    others = [key for key, values in found.items() if values is None and _length(rest[key]) == nodes]
    words = attributes.get("split")
    if official is None and words is not None and set(words.tolist()) <= ROLES.keys():
        roles = np.array([ROLES[word] for word in attributes.pop("split").tolist()])
        official = np.stack([roles == role for role in range(3)])[:, None]
    return official, attributes, others


def _validation(name: str, rest: Mapping[str, Any]) -> str:
    """Return the name of the validation mask, empty if there is none. Raises UserError if it is ambiguous."""
    found = [key for key in VALIDATION if key in rest]
    others = [key for key in rest if key.endswith(MASK) and key not in ("train_mask", "test_mask")]
    if len(found) > 1 or (others and not found):
        raise UserError(
            f"{name} has {' and '.join(found or others)} beside train_mask and test_mask: call the mask of "
            "validation nodes val_mask, and leave out other masks"
        )
    return found[0] if found else ""


def _length(values: Any) -> int:
    """Return the number of entries along the first axis; -1 without one."""
    shape = getattr(values, "shape", None)
    if shape is None:
        return len(values) if isinstance(values, (list, tuple)) else -1
    return int(shape[0]) if len(shape) else -1


def _mask(values: Any, what: str) -> np.ndarray:
    """Return a 0/1 mask, (n,) or (n, S), as (S, n) bool; other values keep their type."""
    mask = np.atleast_2d((values if isinstance(values, np.ndarray) else as_array(values, what)).T)
    whole = mask.dtype.kind in "iuf" and np.isin(mask, (0, 1)).all()
    return mask.astype(bool) if whole else mask


def _attribute(values: Any, nodes: int) -> np.ndarray | None:
    """One whole number or short text per node, (n,), -1 or empty for no value; None for other fields."""
    import pandas

    if isinstance(values, torch.Tensor):
        if values.layout is not torch.strided or values.is_quantized or values.is_complex():
            return None
        values = values.detach().cpu()
        values = (values.double() if values.is_floating_point() else values).numpy()
    elif isinstance(values, (list, tuple)) and all(isinstance(each, (str, int)) for each in values):
        values = np.array(values, dtype=object)
    if not isinstance(values, np.ndarray) or values.shape not in ((nodes,), (nodes, 1)):
        return None
    values = values.ravel()
    if values.dtype.kind == "O":
        missing = pandas.isna(values)
        kinds = {type(each) for each in values[~missing]}
        if not (kinds <= {str} or kinds <= {int, bool}):
            return None
        values = np.where(missing, "" if kinds <= {str} else -1, values)
        if kinds <= {str} and max(map(len, values), default=0) > LONGEST_TEXT:
            return None
        # Integers of more than 64 bits stay objects, which the last line refuses.
        values = np.array(values.tolist())
    elif values.dtype.kind == "f":
        values = np.where(np.isnan(values), -1, values)
        # From 2**53 on, floats no longer represent every whole number.
        if not (np.abs(values) < 2**53).all() or (values != np.round(values)).any():
            return None
        values = values.astype(np.int64)
    short = values.dtype.kind != "U" or values.dtype.itemsize <= 4 * LONGEST_TEXT
    return values if values.dtype.kind in "biuU" and short else None


def _numbered(name: str, labels: np.ndarray) -> tuple[np.ndarray, int, tuple[str, ...]]:
    """Return labels as 0…C−1 and −1, C, and the class names if labels are names.

    Raises UserError for labels that are neither numbers nor names, and for -1 beside only one class.
    """
    import pandas

    values = np.asarray(labels)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise UserError(f"{name}: the labels have the shape {values.shape}: give one label per node")
    names: tuple[str, ...] = ()
    if values.dtype.kind in "OUST":
        if (longest := max((len(str(each)) for each in values), default=0)) > LONGEST_TEXT:
            raise UserError(
                f"{name}: a label has {longest:,} characters, but the maximum is {LONGEST_TEXT}: shorten it"
            )
        texts = np.where(pandas.isna(values), "", np.char.strip(values.astype(str)))
        missing = np.isin(texts, ["", "-1", "-1.0"])
        marked = missing | np.isin(np.char.lower(texts), MISSING)
        if not np.isnan(pandas.to_numeric(texts[~marked], errors="coerce")).any():
            missing = marked
        found, codes = np.unique(texts[~missing], return_inverse=True)
        values, names = np.full(len(values), -1), tuple(found.tolist())
        values[~missing] = codes
    if values.dtype.kind == "f":
        values = np.where(np.isnan(values), -1, values)
    if values.dtype.kind not in "biuf" or (values != np.round(values)).any() or (values < -1).any():
        raise UserError(f"{name}: labels must be whole numbers from 0, or -1 for a node without a label")
    whole = values.astype(np.int64)
    if len(np.unique(whole)) == 2 and (whole == -1).any():
        raise UserError(
            f"all labelled nodes of {name} are of class {(names or whole[whole >= 0])[0]!s}. -1 and none "
            "mean no label: name the other classes, or number them from 0"
        )
    return whole, len(names) or int(whole.max(initial=-1)) + 1, names
