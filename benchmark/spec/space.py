"""The search space of a method's tuning, and its points.

The shared dimensions are the tunable settings of `Schedule` and `Architecture`. At most `MOST_OWN` tunable
options of the method follow. All methods have the same points in the shared dimensions.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from fedsub.benchmark.spec import catalog
from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.custom import user_objects_of
from fedsub.benchmark.spec.request import Request
from fedsub.datasets.errors import UserError
from fedsub.datasets.limits import Range, ranges_of
from fedsub.datasets.options import format_name
from fedsub.datasets.plugins import user_objects
from fedsub.methods.core.schedule import Schedule
from fedsub.methods.stacked.architecture import Architecture

MOST_OWN = 3
"""Maximum number of tunable options of a method: more would spread the same trials thinner."""
SEED = 0
"""Seed of the Sobol sequence's scrambling: every search has the same points."""


@dataclass(frozen=True)
class Dimension:
    """One tuned setting or option."""

    name: str
    part: str
    """`schedule`, `architecture`, or `options` of the method."""
    range: Range


def shared_dimensions() -> tuple[Dimension, ...]:
    """Return the dimensions that all methods share."""
    parts = (("schedule", Schedule), ("architecture", Architecture))
    return tuple(Dimension(name, part, each) for part, kind in parts for name, each in ranges_of(kind))


def own_dimensions(method: str, fixed: Collection[str] = ()) -> tuple[Dimension, ...]:
    """Dimensions of a method's options. Raises UserError for an unknown method and more than `MOST_OWN` that
    are not `fixed`."""
    found = tuple(Dimension(name, "options", each) for name, each in catalog.describe(method).tuned.items())
    if len(found) > MOST_OWN:
        found = tuple(each for each in found if each.name not in fixed)
    if len(found) > MOST_OWN:
        named = ", ".join(each.name for each in found)
        raise UserError(
            f"{method} has more than {MOST_OWN} tunable options ({named}): fix some of them, as in"
            f" '{method}[{found[0].name}=…]'"
        )
    return found


@cache
def points(count: int = Request.trials) -> np.ndarray:
    """Scrambled Sobol sequence, (count − 1, shared dimensions + MOST_OWN), in [0, 1): the points after the
    defaults. A method with fewer options reads fewer columns; the shared columns are the same for all."""
    from scipy.stats import qmc

    width = len(shared_dimensions()) + MOST_OWN
    found = qmc.Sobol(width, rng=SEED).random_base2(max(count - 1, 1).bit_length())[: count - 1]
    return np.asarray(found)


def trial_cells(base: Cell, count: int = Request.trials, fixed: Collection[str] = ()) -> list[Cell]:
    """Return the trials of a search: `base`, then `base` moved to each point, except the settings and options
    named in `fixed`. Raises UserError as `own_dimensions` does."""
    with user_objects(user_objects_of(base)):
        space = (*shared_dimensions(), *own_dimensions(base.method, fixed))
        return [base, *(_at(base, space, point, fixed) for point in points(count))]


def asked_cell(base: Cell, share_of: Callable[[str], float], fixed: Collection[str]) -> Cell:
    """Return `base` with every tuned setting and option, except those named in `fixed`, at the share of its
    range, in [0, 1), that `share_of` returns for its name."""
    with user_objects(user_objects_of(base)):
        space = (*shared_dimensions(), *own_dimensions(base.method, fixed))
        free = [each for each in space if each.name not in fixed]
        return _at(base, free, [share_of(each.name) for each in free], fixed)


def _at(base: Cell, space: Sequence[Dimension], point: Iterable[float], fixed: Collection[str]) -> Cell:
    """Return the cell at a point of a space; an option without effect beside the others keeps its default."""
    found: dict[str, dict[str, Any]] = {"schedule": {}, "architecture": {}, "options": {}}
    lacking = catalog.describe(base.method).lacks
    for dimension, share in zip(space, point, strict=False):
        is_lacking = dimension.name in lacking and dimension.part == "architecture"
        if not is_lacking and dimension.name not in fixed:
            found[dimension.part][dimension.name] = dimension.range.at(float(share))
    options = {**dict(base.options), **found["options"]}
    idle = catalog.unused_options(base.method, options, base.architecture.backbone)
    options = {name: value for name, value in options.items() if name not in idle}
    own = catalog.differing_options(base.method, options)
    return replace(
        base,
        schedule=replace(base.schedule, **found["schedule"]),
        architecture=replace(base.architecture, **found["architecture"]),
        options=tuple(own.items()),
        label=format_name(base.method, own),
    )


def changes(base: Cell, cell: Cell) -> tuple[str, dict[str, Any]]:
    """Return the method with its options in the form of `--method`, and the settings in which a trial differs
    from its base."""
    found: dict[str, Any] = {}
    for part in ("schedule", "architecture"):
        before, now = vars(getattr(base, part)), vars(getattr(cell, part))
        found |= {name: value for name, value in now.items() if value != before[name]}
    return format_name(cell.method, dict(cell.options)), found
