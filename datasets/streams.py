"""Standard output whose reader may have gone."""

from __future__ import annotations

import os
import sys


def close_output() -> None:
    """Send what is still to be written nowhere: after a BrokenPipeError, as with `| head`, none wants it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
