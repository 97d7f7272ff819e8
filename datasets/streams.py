"""Handling of standard output that its reader has closed."""

import os
import sys


def close_output() -> None:
    """Discard remaining output after a BrokenPipeError, as with `| head`."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
