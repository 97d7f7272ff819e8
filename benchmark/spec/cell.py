"""The class `Cell`, one run with all its settings, and its content key."""

import hashlib
import json
import types
import typing
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any

from fedsub.benchmark.spec.schema import Table
from fedsub.datasets.errors import UserError, check_choice
from fedsub.datasets.limits import Share, check_limit
from fedsub.datasets.options import OptionValue, Spec, format_name
from fedsub.methods.core.schedule import Schedule
from fedsub.methods.stacked.architecture import Architecture

Block = tuple[str, str, int]
"""Dataset, partition, clients."""
GROUP_LENGTH = 12
OUTSIDE_KEY = ("protocol", "label", "paths", "further_metrics")
"""Fields that change no result, so that the same run has one key in every table."""
TRANSFORMS = ("raw", "row-normalised", "standardised")
NODE_CLASSIFICATION = Spec("node-classification")
PARTS: Mapping[str, Callable[..., Any]] = {"architecture": Architecture, "schedule": Schedule}
"""Field → class of settings with checks of its own; records store its settings flat."""
USUAL_SPLIT = Spec("ratio[train=0.2,validation=0.4,test=0.4]")


@dataclass(frozen=True)
class Cell:
    """One run: every choice that can change its result."""

    protocol: str = field(compare=False)
    """Name of the table that requests the cell; not part of the key."""
    dataset: Spec
    partition: Spec
    clients: int
    method: str
    seed: int
    """Seed of partition, split, initial weights and batches."""
    options: tuple[tuple[str, OptionValue], ...] = ()
    """The method's options that differ from its defaults, in alphabetical order."""

    task: Spec = NODE_CLASSIFICATION
    largest_component: bool = False
    feature_transform: str = field(default="raw", metadata={"stored_as": "features"})
    """`raw`; `row-normalised`: every row divided by its sum; `standardised`: every feature with mean 0 and
    standard deviation 1."""
    binarise: bool = False
    """Whether positive features become 1, before any normalisation."""
    split: Spec = USUAL_SPLIT
    architecture: Architecture = field(default_factory=Architecture)
    schedule: Schedule = field(default_factory=Schedule)
    class_edges_removed: Share = 0.0
    """Share of the edges within classes that is removed before partitioning (TopFGL, Table VI)."""
    data_seed: int = -1
    """Seed of partition and split in place of `seed`, if not negative. A table's seeds then vary the training
    only, as in papers that draw their clients once."""
    kernel: str = "auto"
    device: str = "cpu"
    files: str = ""
    """SHA-256 over the content of user-supplied parts (`benchmark.spec.custom`), so that editing a method or
    graph makes another cell; empty if there are none."""
    paths: tuple[str, ...] = field(default=(), compare=False)
    """Paths of user-supplied parts, each `part=path`; not part of the key."""
    further_metrics: tuple[str, ...] = ()
    """Metrics that the protocol requests beyond the task's own; not part of the key."""
    versions: str = ""
    """Versions above 1 of method, partition scheme, split and task, as `metis=2,split=2`. A part that gives
    other numbers than before makes other cells."""
    label: str = field(default="", compare=False)
    """The method's name in its table; for display only, not part of the key."""

    def __post_init__(self) -> None:
        """Raises UserError for less than one client, an unknown feature transform, a share of edges outside
        its limits, and a leaving client that does not exist."""
        if self.clients < 1:
            raise UserError(f"clients must be at least 1, not {self.clients}")
        check_choice("feature transform", self.feature_transform, TRANSFORMS)
        check_limit("class_edges_removed", self.class_edges_removed, Share)
        self.schedule.check_clients(self.clients)

    def to_dict(self) -> dict[str, Any]:
        """Return all settings, flat and JSON-ready, by their stored names."""
        return {name: item.of(self) for name, item in FIELDS.items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Cell":
        """Invert `to_dict`; missing settings take their defaults, unknown keys are ignored.

        Raises UserError for a value of the wrong type, an invalid setting, and a missing required one.
        """
        parts: dict[str, dict[str, Any]] = {part: {} for part in ("", *PARTS)}
        if missing := _REQUIRED - values.keys():
            raise UserError(f"a cell must have {', '.join(sorted(missing))}")
        _TABLE.check(values)
        for name in FIELDS.keys() & values.keys():
            item = FIELDS[name]
            parts[item.part][item.field.name] = item.read(values[name])
        own = parts.pop("")
        return cls(**{part: PARTS[part](**given) for part, given in parts.items()}, **own)

    @property
    def key(self) -> str:
        """Content key: the group and the seed.

        A `data_seed` equal to `seed` gives the same key as no `data_seed`.
        """
        drawn_anew = replace(self, data_seed=-1) if self.data_seed == self.seed else self
        return f"{drawn_anew.group}-{self.seed}"

    @cached_property
    def group(self) -> str:
        """Content key without the seed: the start of the SHA-256 of the settings' canonical JSON.

        Defaults and OUTSIDE_KEY are left out. Cells of one group are repetitions of each other.
        """
        own = {
            name: item.of(self) for name, item in _KEYED.items() if item.value_of(self) != item.field.default
        }
        if self.data_seed < 0:
            own.pop("data_seed", None)
        text = json.dumps(own, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:GROUP_LENGTH]

    def with_seed(self, seed: int) -> "Cell":
        """Return the repetition of the cell with this seed."""
        found = copy(self)
        vars(found).update(seed=seed, group=self.group)
        return found

    @property
    def drawn_with(self) -> int:
        """The seed of partition and split."""
        return self.seed if self.data_seed < 0 else self.data_seed

    @property
    def selects_by(self) -> str:
        """Name of the score that selects the round, a file's without folder and ending; empty: the task's."""
        return Path(self.schedule.selection_metric.partition("[")[0]).stem

    @property
    def block(self) -> Block:
        """The cell's graph, partition and number of clients."""
        return self.dataset.text, self.partition.text, self.clients

    @property
    def point(self) -> dict[str, Any]:
        """The cell's value on every axis of its table's grid."""
        return {
            "dataset": self.dataset.text,
            "partition": self.partition.text,
            "clients": self.clients,
            "method": self.variant,
            "backbone": self.architecture.backbone,
        }

    @property
    def variant(self) -> str:
        """The method's name in its table, else its name with options."""
        return self.label or format_name(self.method, dict(self.options))

    @property
    def title(self) -> str:
        """One line that names the cell, for display."""
        place = f"{self.dataset} {self.partition} {self.clients} clients"
        return f"{place} {self.variant} {self.architecture.backbone} seed {self.seed}"


@dataclass(frozen=True)
class StoredField:
    """One stored setting of a cell: flat, of a JSON type."""

    part: str
    """A name in `PARTS`; empty for a field of `Cell` itself."""
    field: Field[Any]
    stored: Any
    """The type of the field's value on disk."""
    plain: Callable[[Any], Any]
    """Converts the field's value to `stored`."""
    read: Callable[[Any], Any]
    """Inverts `plain`."""

    @cached_property
    def default(self) -> Any:
        """The field's default in stored form; MISSING if it has none."""
        return self.field.default if self.field.default is MISSING else self.plain(self.field.default)

    def of(self, cell: Cell) -> Any:
        """Return the field's value in `cell`, JSON-ready."""
        return self.plain(self.value_of(cell))

    @cached_property
    def value_of(self) -> Callable[[Cell], Any]:
        """Function that reads the field's value in a cell."""
        return attrgetter(f"{self.part}.{self.field.name}" if self.part else self.field.name)


def _stored_as(name: str, hint: Any) -> tuple[Any, Callable[[Any], Any], Callable[[Any], Any]]:
    """Return the stored type of a field, the conversion to it, and the conversion back."""
    if name == "options":
        return dict[str, Any], dict, lambda value: tuple(sorted(value.items()))
    if hint is Spec:
        return str, str, Spec
    if typing.get_origin(hint) is tuple:
        return types.GenericAlias(list, typing.get_args(hint)[:1]), list, tuple
    return hint, lambda value: value, lambda value: value


def _stored_fields(kind: type, part: str = "") -> dict[str, StoredField]:
    hints = typing.get_type_hints(kind)
    found: dict[str, StoredField] = {}
    for item in fields(kind):
        if item.name in PARTS and kind is Cell:
            found |= _stored_fields(hints[item.name], item.name)
        else:
            stored = StoredField(part, item, *_stored_as(item.name, hints[item.name]))
            found[item.metadata.get("stored_as", item.name)] = stored
    return found


FIELDS: Mapping[str, StoredField] = _stored_fields(Cell)
"""Name on disk → field, of the cell itself and of its `PARTS`."""
_TABLE = Table({name: item.stored for name, item in FIELDS.items()})
_REQUIRED = {name for name, item in FIELDS.items() if item.default is MISSING}
_KEYED = {name: item for name, item in FIELDS.items() if name not in (*OUTSIDE_KEY, "seed")}
