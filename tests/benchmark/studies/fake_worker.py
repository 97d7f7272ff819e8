"""A worker that times nothing: run as `python -m tests.benchmark.studies.fake_worker FD`.

The task's `algorithm` says how it behaves: `fine`, `sleeps`, or `writes:FILE` (appends a line to a file for
every command).
"""

import sys
import time
from types import SimpleNamespace
from typing import Any

if __name__ == "__main__":
    # The import of torch takes longer than all else, and nothing here computes with it.
    sys.modules["torch"] = SimpleNamespace(set_num_threads=abs, manual_seed=abs)  # type: ignore[assignment]

from fedsub.benchmark.studies.handover import Run, serve


def prepare(task: dict[str, Any]) -> tuple[dict[str, Any], Run]:
    """Answer every command with invented seconds."""
    behaviour = task["algorithm"]
    print("noise on standard output")

    def run(command: dict[str, Any]) -> dict[str, Any]:
        time.sleep(60 * (behaviour == "sleeps"))
        if behaviour.startswith("writes:"):
            with open(behaviour.partition(":")[2], "a") as file:
                file.write(f"{command['rounds']}\n")
        return {"seconds": [0.5] * command["rounds"]}

    return {"counts": {"nodes": 1}}, run


if __name__ == "__main__":
    serve(prepare)
