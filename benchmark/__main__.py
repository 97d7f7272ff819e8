"""Entry point of `python -m benchmark`. Sets thread limits before numerical libraries are imported."""

import gc
import os
import sys

from fedsub.benchmark.cli.parser import parse
from fedsub.benchmark.machine import thread_variables


def run() -> int:
    """Parse the command line, set the thread limits and run the command; returns the exit code."""
    # Thousands of cells and records stay alive: frequent collection would take a fifth of a report's time.
    gc.set_threshold(100_000)
    command = parse(sys.argv[1:])
    os.environ.update(thread_variables(command.request.threads))
    if command.name == "study":
        from fedsub.benchmark.studies.command import main as study

        return study(command.options.rest)
    from fedsub.benchmark.cli.commands import main

    return main(command)


if __name__ == "__main__":
    sys.exit(run())
