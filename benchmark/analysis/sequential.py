"""Intervals and p-values that stay valid when seeds are added until a figure is decided.

A figure is planned to be tested with 3, 5 and 10 seeds until it is decided; tables that share runs give other
numbers. Ordinary intervals then err too often: without any difference they find one in 7 to 10 of 100 cases
instead of 5. The bounds here have the shape of O'Brien and Fleming (1979): with n of 10 seeds the interval is
√(10/n) times as wide as an ordinary one, and the level is divided by `INFLATION`. They are repeated
confidence intervals (Jennison and Turnbull 1989): each holds at every look.
`tests/benchmark/analysis/test_sequential.py` simulates the errors.
"""

from typing import Any

import numpy as np
from scipy.special import stdtr, stdtrit

ALPHA = 0.05
"""Probability of each wrong decision, over all looks."""
LEVEL = 1 - 2 * ALPHA
"""Level of the shown interval, whose ends are one-sided bounds at `ALPHA`."""
LOOKS = (3, 5, 10)
"""Numbers of seeds at which a figure is tested."""
DRAWS = (3, 5, 10, 20, 40)
"""Numbers of draws of a place at which the authors' code was compared with ours. Each look has an equal part
of the level (Bonferroni): the bounds below err in nine of a hundred cases if two looks follow that at 10."""
INFLATION = 1.5
"""Factor of a p-value for several looks: the least, in steps of 0.1, that keeps every simulated error at
`ALPHA`."""

Numbers = np.ndarray[Any, Any]


def width(seeds: float | Numbers) -> Any:
    """Width of an interval with this many seeds relative to an ordinary one."""
    return np.sqrt(np.maximum(1.0, LOOKS[-1] / np.asarray(seeds, dtype=float)))


def half_width(error: Any, freedom: Any, seeds: Any, alpha: float = ALPHA) -> Any:
    """Distance of a one-sided bound from the mean.

    `error` is the standard error and `freedom` its degrees of freedom, each a number or an array as `seeds`.
    """
    return error * width(seeds) * stdtrit(freedom, 1 - alpha / INFLATION)


def p_value(distance: float, error: float, freedom: float, seeds: int) -> float:
    """One-sided p-value, over all looks, of a mean that is `distance` beyond the bound to be shown."""
    if error == 0:
        return 0.0 if distance > 0 else 1.0
    statistic = distance / (error * float(width(seeds)))
    return min(1.0, INFLATION * float(stdtr(freedom, -statistic)))
