"""Records: a cell's result or failure, with the machine and commit that it was run on."""

import json
import math
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.schema import Table, checked, parse_line
from fedsub.datasets.errors import UserError
from fedsub.datasets.options import OptionValue

Series = Mapping[str, list[float | None]]
"""Name → one value per evaluation, round or client."""

DIGITS = {"metrics": 7, "seconds": 4}
"""Field → significant digits of its stored figures: one node in 100,000 changes a score's fifth digit."""
OTHER_DIGITS = 10
"""Significant digits of all other fields; enough to store bytes exactly."""
DECIMALS = 7
"""Decimals of a mean of stored scores; further digits are rounding errors."""
OK, FAILED, STOPPED = "ok", "failed", "stopped"
VALIDATION = "validation"
"""The score that selects rounds and hyper-parameters; stored as a metric in records without a curve."""
ALONE = 0.9
"""Share of a core below which a run shared the core with others, so that its seconds mean nothing."""


@dataclass(frozen=True)
class Result:
    """The result of a finished run."""

    metrics: dict[str, float | None] = field(default_factory=dict)
    """Scores in percent at the selected round."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall-clock seconds of `setup`, `train` and `evaluate`."""
    core_share: float | None = None
    """Processor seconds of the process over wall-clock seconds: near 1 for one thread on a core of its own,
    below ALONE on a shared core. None in old records, which did not measure it."""
    selected_round: int | None = None
    peak_memory_mb: float = 0.0
    bytes: dict[str, float] = field(default_factory=dict)
    """`up` and `down`: bytes per round, summed over clients; `once`: total of the one-off exchanges."""
    default_options: dict[str, OptionValue] = field(default_factory=dict)
    """The method's options that the cell leaves at their defaults, as they were at the time of the run."""
    note: str = ""
    privacy: str = ""
    """Why the method breaks privacy; empty if it does not."""
    partition_statistics: dict[str, float | None] = field(default_factory=dict)
    curve: Series = field(default_factory=dict)
    """Per evaluation: round, validation and test in percent, loss, and the bytes and seconds until then."""
    by_round: Series = field(default_factory=dict)
    """A method's own figures for every round, from 1."""
    by_client: Series = field(default_factory=dict)
    """`test`: score of every client in percent in the selected round, None without test nodes."""
    extras: dict[str, Any] = field(default_factory=dict)
    """A method's other figures."""

    def __post_init__(self) -> None:
        """Raises UserError for curves of different lengths."""
        # The curves of a stored record are read and checked at their first use.
        if isinstance(self.curve, dict):
            check_curve(self.curve)


def check_curve(curve: Series) -> None:
    """Raises UserError for curves of different lengths, and for a test curve without rounds."""
    lengths = {len(values) for values in curve.values()}
    if len(lengths) > 1 or ("test" in curve and "round" not in curve):
        raise UserError("every curve must have one value per round, and the curve of rounds")


@dataclass(frozen=True)
class Failure:
    """Why a run gave no result."""

    error: str
    """One sentence."""
    traceback: str | None = None
    """Traceback of an unexpected error, else None."""
    stopped: bool = False
    """Whether a callback ended the run, which is no failure."""


@dataclass(frozen=True)
class Record:
    """A cell and its outcome."""

    cell: Cell
    outcome: Result | Failure
    environment: dict[str, Any] = field(default_factory=dict)
    commit: str = "unknown"

    @property
    def key(self) -> str:
        """The cell's content key."""
        return self.cell.key

    @property
    def status(self) -> str:
        """`ok`, `failed` or `stopped`."""
        if not isinstance(self.outcome, Failure):
            return OK
        return STOPPED if self.outcome.stopped else FAILED

    @property
    def error(self) -> str | None:
        """Why the cell failed; None if it did not."""
        return self.outcome.error if isinstance(self.outcome, Failure) else None

    @property
    def result(self) -> Result:
        """The result; an empty one for a failed cell."""
        return Result() if isinstance(self.outcome, Failure) else self.outcome

    @property
    def options(self) -> dict[str, Any]:
        """All options of the method, defaults filled in."""
        return {**self.result.default_options, **dict(self.cell.options)}

    @property
    def score(self) -> float | None:
        """The test score: the selection metric if the cell names one, else accuracy, else ROC-AUC."""
        named = self.cell.selects_by or "accuracy"
        return self.result.metrics.get(named, self.result.metrics.get("roc_auc"))

    @property
    def validation(self) -> float | None:
        """The validation score in the selected round, in percent; None for a failure."""
        result = self.result
        if VALIDATION in result.metrics:
            return result.metrics[VALIDATION]
        found = dict(zip(result.curve.get("round", ()), result.curve.get("validation", ()), strict=False))
        return found.get(result.selected_round)

    @property
    def core_seconds(self) -> dict[str, float]:
        """`seconds` as core-seconds: time that other processes took from the run is left out."""
        share = self.result.core_share
        cores = self.environment.get("threads", 1) if share is None else share
        return {part: seconds * cores for part, seconds in self.seconds.items()}

    @property
    def seconds_per_round(self) -> float:
        """Seconds of training and evaluation per round; 0 if no seconds are known."""
        seconds = self.seconds
        return float(seconds.get("train", 0.0) + seconds.get("evaluate", 0.0)) / max(self.rounds, 1)

    # Shortcuts for the attributes that pages read most.
    backbone = property(attrgetter("cell.architecture.backbone"))
    rounds = property(attrgetter("cell.schedule.rounds"))
    metrics = property(attrgetter("result.metrics"))
    seconds = property(attrgetter("result.seconds"))
    bytes = property(attrgetter("result.bytes"))
    curve = property(attrgetter("result.curve"))
    extras = property(attrgetter("result.extras"))
    note = property(attrgetter("result.note"))
    privacy = property(attrgetter("result.privacy"))

    def to_dict(self) -> dict[str, Any]:
        """Return key, status, the cell's settings, the outcome and the machine, flat and JSON-ready.

        `options` holds all options of the method; `chosen` names those that the cell sets. Figures are
        rounded to DIGITS.
        """
        values = {"key": self.key, "status": self.status, **self.cell.to_dict(), "options": self.options}
        values |= {"chosen": [name for name, _ in self.cell.options]}
        values |= {"environment": self.environment, "commit": self.commit}
        derived = ("default_options", "stopped")
        outcome = {name: value for name, value in vars(self.outcome).items() if name not in derived}
        ready = {name: json_ready(value, DIGITS.get(name, OTHER_DIGITS)) for name, value in outcome.items()}
        return {**json_ready(values), **ready}

    def to_json(self) -> str:
        """Return one compact line of JSON; non-finite numbers become null.

        Raises UserError for a value that JSON cannot hold.
        """
        try:
            return to_json(self.to_dict())
        except (TypeError, ValueError, RecursionError) as error:
            raise UserError(f"the record of {self.key} cannot be written as JSON: {error}") from error

    def reread(self) -> "Record":
        """Return the record as read back from its JSON. Raises UserError if it cannot be read back."""
        values = parse_line(self.to_json().encode())
        if values is None:
            raise UserError(f"the record of {self.key} cannot be read back: its text is not Unicode")
        return Record.of(cell_of(values), values)

    @classmethod
    def of(cls, cell: Cell, values: Mapping[str, Any], **series: Series) -> "Record":
        """Make the record of a cell from stored values, as from `to_dict`; missing ones take their defaults.

        `series` are the fields of APART if they are stored elsewhere. Raises UserError if the values are no
        record of the cell.
        """
        if values.get("key") != cell.key:
            raise UserError(f"key {values.get('key')!r} does not match its cell, whose key is {cell.key}")
        _TABLE.check(values)
        found = {name: values[name] for name in _TYPES if name in values}
        status, where = found.pop("status", None), (found.pop("environment", {}), found.pop("commit", ""))
        if status in (FAILED, STOPPED):
            error = checked("error", values.get("error"), str)
            trace = checked("traceback", values.get("traceback"), str | None)
            return cls(cell, Failure(error, trace, status == STOPPED), *where)
        if status != OK:
            raise UserError(f"status must be {OK}, {FAILED} or {STOPPED}, not {status!r}")
        for name, hint in _EXTRAS.items():
            if name in found.get("extras", {}):
                checked(name, found["extras"][name], hint)
        options, chosen = found.pop("options", {}), dict(cell.options)
        found["default_options"] = {name: options[name] for name in options if name not in chosen}
        return cls(cell, Result(**{**found, **series}), *where)


SERIES = dict[str, list[float | None]]
APART = ("curve", "by_round", "by_client")
"""Fields of a result that are stored apart from the record."""
_TYPES = {
    **typing.get_type_hints(Result),
    **dict.fromkeys(APART, SERIES),
    "options": dict[str, OptionValue],
    "status": str,
    "environment": dict[str, Any],
    "commit": str,
}
del _TYPES["default_options"]
_TABLE = Table(_TYPES)
_EXTRAS = {"client_names": list[str], "not_saved": dict[str, str]}
"""Reserved name in `Result.extras` → its type."""


def cell_of(values: Mapping[str, Any]) -> Cell:
    """Return the cell of flat stored values, whose `options` hold all of the method's options. Raises
    UserError if they describe no cell."""
    options = checked("options", values.get("options", {}), dict[str, OptionValue])
    chosen = checked("chosen", values.get("chosen", []), list[str])
    return Cell.from_dict({**values, "options": {name: options[name] for name in chosen if name in options}})


def to_json(values: Mapping[str, Any]) -> str:
    """Return one compact line of JSON. Raises TypeError or ValueError for values that JSON cannot hold."""
    return json.dumps(values, separators=(",", ":"), allow_nan=False)


def json_ready(value: Any, digits: int = 17) -> Any:
    """Return `value` in plain JSON types: arrays become lists, non-finite numbers None. Other floats are
    rounded to `digits` significant digits; 17 digits change nothing."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: json_ready(item, digits) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_ready(item, digits) for item in value]
    return value
