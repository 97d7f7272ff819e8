"""Entry point. Thread limits are set before anything that reads them is imported."""

from __future__ import annotations

import os
import sys

from fedsub.benchmark.cli.arguments import parse
from fedsub.benchmark.machine import thread_variables


def run() -> int:
    """Parse the command line, set the thread limits, run; the exit code."""
    arguments = parse(sys.argv[1:])
    os.environ.update(thread_variables(arguments.threads))
    # DGL asks for its backend on standard output; the answer is always torch.
    os.environ.setdefault("DGLBACKEND", "pytorch")
    from fedsub.benchmark.cli.commands import main

    return main(arguments)


if __name__ == "__main__":
    sys.exit(run())
