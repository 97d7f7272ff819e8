"""Locks on files that processes share; a wait is reported and limited."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

TELL_AFTER = 10.0
"""Seconds of waiting before a line names the lock."""
GIVE_UP_AFTER = 120.0
"""Maximum seconds of waiting; no process holds a lock for long."""


@contextmanager
def locked(path: Path, give_up: float = GIVE_UP_AFTER) -> Iterator[None]:
    """Hold the lock on `path` within the block. Raises TimeoutError if another process keeps it."""
    lock = FileLock(path)
    try:
        try:
            lock.acquire(timeout=min(TELL_AFTER, give_up))
        except Timeout:
            print(f"waiting for {path}, which another process has locked", file=sys.stderr)
            lock.acquire(timeout=max(0.0, give_up - TELL_AFTER))
    except Timeout:
        reason = f"another process has locked {path} for {give_up:g} s; remove the file if nothing is running"
        raise TimeoutError(110, reason) from None
    try:
        yield
    finally:
        lock.release()


def open_unlinked(path: str | Path, flags: int) -> int:
    """Serve as the `opener` of `open`, but refuse a symbolic link: its target would be overwritten."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)
