"""Parsing of a cell's settings by name."""

from typing import Any

from fedsub.benchmark.spec import catalog
from fedsub.benchmark.spec.cell import FIELDS, OUTSIDE_KEY
from fedsub.benchmark.spec.schema import checked
from fedsub.datasets.errors import UserError, unknown
from fedsub.datasets.options import parse_value

AXES = ("dataset", "partition", "clients", "method", "backbone")
"""What the grid of a table varies."""
_BESIDE = (*AXES, "seeds", "table", "results", "workers", "threads", "save", "checkpoint", "rerun")
"""Arguments of `run` and the command line that are no settings."""
_NO_SETTINGS = (*AXES, *OUTSIDE_KEY, "options", "seed", "files", "versions")
SETTINGS = tuple(name for name in FIELDS if name not in _NO_SETTINGS)
_TYPES = {name: FIELDS[name].stored for name in SETTINGS}
USUAL = {
    **dict.fromkeys(("lr", "eta"), "learning_rate"),
    **dict.fromkeys(("wd", "l2"), "weight_decay"),
    **dict.fromkeys(("epochs", "local_steps", "num_epochs"), "local_epochs"),
    **dict.fromkeys(("num_rounds", "n_rounds", "comm_rounds", "communication_rounds"), "rounds"),
    **dict.fromkeys(("hidden_dim", "hidden_size", "hid_dim", "hidden_channels"), "hidden"),
    **dict.fromkeys(("num_layers", "layers"), "hidden, one width per layer (hidden=64,64)"),
    **dict.fromkeys(("optim", "optimizer"), "optimiser"),
    **dict.fromkeys(("num_clients", "n_clients"), "clients"),
    **dict.fromkeys(("seed", "random_state", "num_seeds", "runs"), "seeds"),
    **dict.fromkeys(("frac", "fraction", "client_fraction", "sample_rate"), "participation"),
    **dict.fromkeys(("drop", "dropout_rate"), "dropout"),
    **dict.fromkeys(("model", "gnn"), "backbone"),
    **dict.fromkeys(("gpu", "cuda"), "device"),
    **dict.fromkeys(("algorithm", "algo", "alg"), "method"),
    "graph": "dataset",
    "averaging": "accuracy",
    "feature_transform": "features",
}
"""Name in other libraries, or of a field in the code → our name."""


def checked_setting(name: str, value: Any) -> Any:
    """Return the checked value of a setting, text stripped. Raises UserError if it has the wrong type."""
    found = checked(f"key {name!r}", value, _TYPES[name])
    if isinstance(found, str):
        return found.strip()
    return float(found) if _TYPES[name] is float else found


def unknown_setting(name: str, kind: str = "setting", place: str = "") -> UserError:
    """Return the error for a name that is no setting; `kind` and `place` as in `datasets.errors.unknown`."""
    if name in USUAL:
        return UserError(f"unknown {kind} {name!r}{place}: it is called {USUAL[name]} here")
    if name in _BESIDE:
        where = " or in [grid] of a table" if name in AXES else ""
        return UserError(f"{name} is not a setting: give it with --{name}{where}")
    if owners := [each for each in catalog.methods() if name in catalog.describe(each).options]:
        where = f"it is an option of {', '.join(owners)}: write {owners[0]}[{name}=…]"
        return UserError(f"unknown {kind} {name!r}{place}: {where}")
    return unknown(kind, name, (*SETTINGS, *_BESIDE), place)


def takes_list(name: str) -> bool:
    """Whether a setting's value is a list."""
    return _TYPES.get(name) == list[int]


def setting_from_text(text: str, source: str = "--set") -> tuple[str, Any]:
    """Parse a setting `name=value`; a list is written `a,b` or `a+b`.

    Raises UserError for an unknown name or a value of the wrong type; the message names `source`.
    """
    key, equals, value = text.partition("=")
    if not equals:
        raise UserError(f"cannot read setting {text!r}: write name=value")
    if key not in SETTINGS:
        raise unknown_setting(key)
    hint, parts = _TYPES[key], value.replace("+", ",").split(",")
    parsed: Any = value.strip() if hint is str else parse_value(value.strip())
    if hint == list[int] and all(part.isdecimal() for part in parts):
        parsed = [int(part) for part in parts]
    try:
        return key, checked_setting(key, parsed)
    except UserError as error:
        several = f"; for a grid give {' '.join(f'{key}={part}' for part in parts)}" if "," in value else ""
        raise UserError(f"{source}: {error}{several}") from error
