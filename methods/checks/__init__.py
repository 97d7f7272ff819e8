"""Checks that a method keeps the rules on which the benchmark relies, run on small generated graphs.

    check_method(MyMethod)
    check_method("./my_method.py", {"mu": 0.1})

`fedsub check ./my_method.py` does the same.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fedsub.datasets.errors import UserError
from fedsub.methods.checks import rounds, runs
from fedsub.methods.checks.subject import CheckError as CheckError
from fedsub.methods.checks.subject import Skipped, Subject
from fedsub.methods.core.base import FederatedMethod

CHECKS: Mapping[str, Callable[[Subject], None]] = {
    "options state their limits": runs.options,
    "trains with every network and task it lists": runs.trains,
    "same seed, same run": runs.repeats,
    "a resumed run equals an unbroken one": runs.survives,
    "no gradient between clients": rounds.isolated,
    "every exchange is counted in bytes": rounds.counted,
    "absent clients keep their state": rounds.absent,
    "separate clients match the stacked run": rounds.alone,
}
"""Name → check, which raises CheckError, or Skipped with a reason."""


def check_method(
    method: type[FederatedMethod] | str | Path, options: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """Run all checks; return check → "passed", or why it does not apply.

    `method` is a class with `@register`, or a name or the path of a file, with options in brackets. Raises
    CheckError for the first check that fails, and UserError for a method that cannot be found or made.
    """
    return dict(checked(method, options or {}))


def checked(
    method: type[FederatedMethod] | str | Path, options: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Run the checks of `check_method` and yield each result."""
    subject = Subject.of(method, options)
    for name, check in CHECKS.items():
        try:
            check(subject)
        except Skipped as reason:
            yield name, f"skipped: {reason}"
        except CheckError:
            raise
        except UserError as error:
            raise CheckError(f"{subject.info.name}, {name}: {error}") from error
        except Exception as error:
            raise CheckError(f"{subject.info.name}, {name}: {type(error).__name__}: {error}") from error
        else:
            yield name, "passed"
