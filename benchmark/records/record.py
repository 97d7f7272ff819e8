"""What a cell gave: its result or its failure, and where it was made."""

from __future__ import annotations

import json
import math
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any

from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.schema import Table, checked, parse_line
from fedsub.datasets.errors import UserError
from fedsub.datasets.options import OptionValue

Series = Mapping[str, list[float | None]]
"""Name → one value an evaluation or a round."""

DIGITS = {"metrics": 7, "seconds": 4}
"""Field → significant digits of its stored figures: one node of 100,000 moves a score's fifth."""
OTHER_DIGITS = 10
"""Of fields that DIGITS does not name: bytes are exact."""
DECIMALS = 7
"""Decimals of a mean of stored scores; what lies below is rounding."""
OK, FAILED, STOPPED = "ok", "failed", "stopped"
VALIDATION = "validation"
"""The score by which rounds and hyper-parameters are chosen; a metric of records that keep no curve."""
ALONE = 0.9
"""Share of a core below which a run was not alone on it: its seconds say nothing."""


@dataclass(frozen=True)
class Result:
    """What came out of a finished run."""

    metrics: dict[str, float | None] = field(default_factory=dict)
    """Scores in percent at the selected round."""
    seconds: dict[str, float] = field(default_factory=dict)
    """setup, train and evaluate."""
    core_share: float | None = None
    """Processor seconds of the process over those on the clock: near 1 for one thread on a core of its own,
    below ALONE on one that it shared. None in records from before it was taken."""
    selected_round: int | None = None
    peak_memory_mb: float = 0.0
    bytes: dict[str, float] = field(default_factory=dict)
    """up and down: per round, summed over clients; once: total of the one-off exchanges."""
    default_options: dict[str, OptionValue] = field(default_factory=dict)
    """The method's options that the cell leaves at their default, as that was."""
    note: str = ""
    privacy: str = ""
    """Why the method breaks privacy, or empty."""
    partition_statistics: dict[str, float | None] = field(default_factory=dict)
    curve: Series = field(default_factory=dict)
    """Per evaluation: round, validation and test in percent, loss, and the bytes and seconds until then."""
    by_round: Series = field(default_factory=dict)
    """What a method reports of every round, from 1."""
    by_client: Series = field(default_factory=dict)
    """test: score of every client in percent in the selected round, None without test nodes."""
    extras: dict[str, Any] = field(default_factory=dict)
    """What a method reports besides."""

    def __post_init__(self) -> None:
        """Raises UserError for curves that do not belong together."""
        # Those of a stored record are read, and checked, when they are asked for.
        if isinstance(self.curve, dict):
            check_curve(self.curve)


def check_curve(curve: Series) -> None:
    """Raises UserError for curves that do not belong together."""
    lengths = {len(values) for values in curve.values()}
    if len(lengths) > 1 or ("test" in curve and "round" not in curve):
        raise UserError("every curve must have one value a round, and rounds beside it")


@dataclass(frozen=True)
class Failure:
    """Why a run gave no result."""

    error: str
    """One sentence."""
    traceback: str | None = None
    """Where it was raised, if that was not foreseen."""
    stopped: bool = False
    """Whether a callback ended the run, which is no failure."""


@dataclass(frozen=True)
class Record:
    """A cell and what it gave."""

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
        """Why the cell failed, if it did."""
        return self.outcome.error if isinstance(self.outcome, Failure) else None

    @property
    def result(self) -> Result:
        """The result; of a failed cell one that holds nothing."""
        return Result() if isinstance(self.outcome, Failure) else self.outcome

    @property
    def options(self) -> dict[str, Any]:
        """All options of the method, defaults filled in."""
        return {**self.result.default_options, **dict(self.cell.options)}

    @property
    def score(self) -> float | None:
        """The metric that is named to select the round; else accuracy, or a link predictor's ROC-AUC."""
        named = self.cell.schedule.selection_metric or "accuracy"
        return self.result.metrics.get(named, self.result.metrics.get("roc_auc"))

    @property
    def validation(self) -> float | None:
        """The validation score in the selected round, in percent; None of a failure."""
        result = self.result
        if VALIDATION in result.metrics:
            return result.metrics[VALIDATION]
        found = dict(zip(result.curve.get("round", ()), result.curve.get("validation", ()), strict=False))
        return found.get(result.selected_round)

    @property
    def core_seconds(self) -> dict[str, float]:
        """`seconds`, in those of one core: what other processes took from the run is left out."""
        share = self.result.core_share
        cores = self.environment.get("threads", 1) if share is None else share
        return {part: seconds * cores for part, seconds in self.seconds.items()}

    @property
    def seconds_per_round(self) -> float:
        """Training and evaluation, a round; 0 where no seconds are known."""
        seconds = self.seconds
        return float(seconds.get("train", 0.0) + seconds.get("evaluate", 0.0)) / max(self.rounds, 1)

    # What pages ask for most, in one step.
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
        """Flat and JSON-ready: key, status, the cell's settings, the result or the failure, the machine.

        `options` holds all options of the method; `chosen` names those that the cell sets. Figures are
        rounded to DIGITS.
        """
        values = {"key": self.key, "status": self.status, **self.cell.to_dict(), "options": self.options}
        values |= {"chosen": [name for name, _ in self.cell.options]}
        values |= {"environment": self.environment, "commit": self.commit}
        outcome = {item.name: getattr(self.outcome, item.name) for item in fields(self.outcome)}
        for derived in ("default_options", "stopped"):
            outcome.pop(derived, None)
        ready = {name: json_ready(value, DIGITS.get(name, OTHER_DIGITS)) for name, value in outcome.items()}
        return {**json_ready(values), **ready}

    def to_json(self) -> str:
        """One compact line of JSON; numbers that are not finite become null.

        Raises UserError for a value that is not JSON's.
        """
        try:
            return to_json(self.to_dict())
        except (TypeError, ValueError, RecursionError) as error:
            raise UserError(f"the record of {self.key} cannot be written as JSON: {error}") from error

    def reread(self) -> Record:
        """The record as it comes back from disk. Raises UserError if it cannot."""
        values = parse_line(self.to_json().encode())
        if values is None:
            raise UserError(f"the record of {self.key} cannot be read again: its text is not Unicode")
        return Record.of(cell_of(values), values)

    @classmethod
    def of(cls, cell: Cell, values: Mapping[str, Any], **series: Series) -> Record:
        """The record of a cell by stored values, as `to_dict` gives them; what they lack is at its default.

        `series` are the fields of APART where they lie elsewhere. Raises UserError for what is no record
        of the cell.
        """
        if values.get("key") != cell.key:
            raise UserError(f"key {values.get('key')!r} is not that of its cell, {cell.key}")
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
"""What a method reports under names that have a meaning."""


def cell_of(values: Mapping[str, Any]) -> Cell:
    """The cell of flat stored values, whose `options` are all of the method's. Raises UserError if there is
    none."""
    options = checked("options", values.get("options", {}), dict[str, OptionValue])
    chosen = checked("chosen", values.get("chosen", []), list[str])
    return Cell.from_dict({**values, "options": {name: options[name] for name in chosen if name in options}})


def to_json(values: Mapping[str, Any]) -> str:
    """One compact line. Raises TypeError or ValueError for what JSON cannot hold."""
    return json.dumps(values, separators=(",", ":"), allow_nan=False)


def json_ready(value: Any, digits: int = 17) -> Any:
    """`value` as plain JSON types: arrays as lists, numbers that are not finite as None, other numbers to so
    many significant digits; 17 change nothing."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: json_ready(item, digits) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_ready(item, digits) for item in value]
    return value
