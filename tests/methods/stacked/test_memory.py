"""Freed memory stays in the process during a cell, and goes back to the system after it."""

import subprocess
import sys

SCRIPT = """
import numpy as np
import psutil
from fedsub.methods.stacked.memory import keep_freed_memory, return_freed_memory

assert keep_freed_memory()
resident = psutil.Process().memory_info
before = resident().rss
blocks = [np.ones(2**17) for _ in range(200)]
last = np.ones(2**17)
del blocks
kept = resident().rss - before
assert return_freed_memory()
print(kept >> 20, (resident().rss - before) >> 20)
"""


def test_freed_memory_is_kept_until_it_is_returned() -> None:
    run = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    kept, left = map(int, run.stdout.split())
    assert kept > 190
    assert left < 20
